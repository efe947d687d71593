"""A lake or a store that could not lie where the config says is told, and nothing is made."""

from pathlib import Path

import pytest

from monitor.config.file import parse_config
from monitor.config.validation import OBJECT_STORES
from pipeline.delta import store
from pipeline.errors import ConfigError
from tests.monitor.config.plain import without_place
from tests.monitor.config.test_config import MINIMAL


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the config stands, beside a file and a folder."""
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    return tmp_path / "sluice.yaml"


def _told(path: Path, text: str) -> str:
    with pytest.raises(ConfigError) as refused:
        parse_config(text, path)
    return without_place(str(refused.value))


@pytest.mark.parametrize(
    ("lake", "said"),
    [
        pytest.param("a%20b", "lake: '{here}/a%20b' contains '%'", id="a sign for another letter"),
        pytest.param("'a\\b'", "contains '\\\\'", id="a backslash"),
        pytest.param("s3://bucket/a%20b", "contains '%'", id="in a bucket"),
        pytest.param(
            "s3:/x", "'s3:/x' is not an address; write s3://bucket/folder", id="a slash less"
        ),
        pytest.param("s3://", "is not an address", id="no bucket"),
        pytest.param("' s3a://b'", "is not an address", id="a blank before"),
        pytest.param("S3a://b", "is not an address", id="in other letters"),
        pytest.param("foo://x", "'foo://x' has an unknown scheme", id="no such kind"),
        pytest.param("file:/x", "has an unknown scheme", id="Hadoop's way of a path"),
        pytest.param("C:/x", "has an unknown scheme", id="another system's path"),
        pytest.param("s3://k:s@b/x", "lake: contains a key; set it in the env", id="a secret"),
        pytest.param("s3://b/x?k=SIG", "lake: contains a query, which may be a key", id="a query"),
        pytest.param("abfss://c@a/x?sv=1&sig=SIG", "contains a query", id="a signature"),
        pytest.param("'s3://b/x#SIG'", "contains a query", id="a fragment"),
        pytest.param("abfss://c:SIG@a/x", "lake: contains a key", id="a password of Azure"),
        pytest.param("https://a/x?sig=SIG", "contains a query", id="a signature of no known kind"),
        pytest.param("ftp://k:SIG@b/x", "'ftp://(hidden)@b/x' has an unknown", id="a login"),
        pytest.param("HDFS://x", "does not write tables on HDFS", id="HDFS"),
        pytest.param("'  '", "lake: is empty", id="blanks"),
        pytest.param("file", "{here}/file is a file", id="a file"),
        pytest.param("file/lake", "{here}/file is a file", id="below a file"),
    ],
)
def test_a_lake_that_cannot_be_read_by_all_is_refused(path: Path, lake: str, said: str) -> None:
    text = MINIMAL.replace("lake: lake", f"lake: {lake}")

    told = _told(path, text)

    assert said.format(here=path.parent) in told
    assert "SIG" not in told


@pytest.mark.parametrize(
    "lake",
    ["lake", "a b", "./x:y", "/no/such/folder", "file:///data", "s3://bucket", "abfss://c@a/x"],
)
def test_a_lake_elsewhere_is_fine_and_is_not_made(path: Path, lake: str) -> None:
    config = parse_config(MINIMAL.replace("lake: lake", f"lake: {lake}"), path)

    assert config.lake in (lake, str((path.parent / lake).resolve()))
    assert sorted(one.name for one in path.parent.iterdir()) == ["file", "folder"]


def test_the_kinds_of_lakes_are_those_that_the_lake_knows() -> None:
    assert OBJECT_STORES == store._OBJECT_STORES


@pytest.mark.parametrize(
    ("place", "said"),
    [
        pytest.param(
            "folder", "store: {here}/folder is a directory; use a file in it", id="folder"
        ),
        pytest.param(".", "store: {here} is a directory", id="its own folder"),
        pytest.param("file/sluice.db", "store: {here}/file is a file", id="below a file"),
        pytest.param("lake", "store: is the directory of the lake; use a file", id="the lake"),
        pytest.param("':memory:'", "store: ':memory:' is not a file on a disk", id="no file"),
        pytest.param(
            "mysql://x/y", ("store: must be the path of an SQLite file"), id="another database"
        ),
    ],
)
def test_a_store_that_can_be_no_file_is_refused(path: Path, place: str, said: str) -> None:
    told = _told(path, f"{MINIMAL}store: {place}\n")

    assert told.startswith(said.format(here=path.parent))


@pytest.mark.parametrize("how", ["parquet", "clone"])
@pytest.mark.parametrize(
    ("where", "said"),
    [
        pytest.param("lake/mirrors", "overlaps with {here}/lake/mirrors", id="the mirrors"),
        pytest.param("lake/mirrors/shop/", "overlaps with {here}/lake/mirrors", id="inside"),
        pytest.param("lake/changes", "overlaps with {here}/lake/changes", id="the log"),
        pytest.param("x/../lake/changes/a", "overlaps with {here}/lake/changes", id="in it"),
        pytest.param("lake", "overlaps with {here}/lake/mirrors", id="the lake"),
        pytest.param("/", "overlaps with {here}/lake/mirrors", id="above it"),
        pytest.param("file", "{here}/file is a file; use a directory", id="a file"),
        pytest.param("file/images", "{here}/file is a file; use a directory", id="below a file"),
    ],
)
def test_images_where_upkeep_deletes_files_are_refused(
    path: Path, how: str, where: str, said: str
) -> None:
    told = _told(path, f"{MINIMAL}publish: [{{tables: '*', how: {how}, where: {where}}}]\n")

    assert told.startswith("publish[0].where: ")
    assert said.format(here=path.parent) in told


@pytest.mark.parametrize("where", ["images", "lake/images", "lake/mirrors2", "folder", "s3://b/x"])
def test_images_in_a_folder_of_their_own_are_fine(path: Path, where: str) -> None:
    text = f"{MINIMAL}publish: [{{tables: '*', how: parquet, where: {where}}}]\n"

    assert parse_config(text, path).publish[0].where.endswith(where)


def test_images_in_a_bucket_do_not_share_the_mirrors(path: Path) -> None:
    text = MINIMAL.replace("lake: lake", "lake: s3://b/lake")

    told = _told(path, f"{text}publish: [{{tables: '*', how: parquet, where: s3://b/lake/}}]\n")

    assert "overlaps with s3://b/lake/mirrors" in told
