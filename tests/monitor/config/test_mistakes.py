import pytest

from monitor.config.file import parse
from pipeline.errors import ConfigError
from tests.monitor.config.test_config import MINIMAL, PLACE

SECOND = """
  - name: second
    host: 127.0.0.1
    port: 3306
    user: sluice
    collector: {url: http://127.0.0.1:8083, connector: second}
    prefix: """


def faults(text: str) -> list[str]:
    try:
        parse(text, PLACE)
    except ConfigError as error:
        return [line.removeprefix(f"{PLACE}: ") for line in str(error).splitlines()]
    return []


@pytest.mark.parametrize("prefix", ["shop", "there.shop", "Shop-1_b.2", "a..b", ".shop", "shop."])
@pytest.mark.parametrize("odd", [" ", "/", "é", ""])
def test_a_prefix_is_a_name_that_a_topic_can_begin_with(prefix: str, odd: str) -> None:
    written = f"'{prefix}{odd}'"

    told = faults(MINIMAL.replace("prefix: shop", f"prefix: {written}"))

    fine = not odd and prefix in ("shop", "there.shop", "Shop-1_b.2")
    assert told == (
        [] if fine else [f"sources[0].prefix: {written} can begin no topic's name; {W}"]
    )


@pytest.mark.parametrize(
    ("name", "fine"),
    [
        pytest.param("eu.shop-1", True, id="odd and fine"),
        pytest.param("eu/shop", False, id="a slash ends the source in the name of a shard"),
        pytest.param("", False, id="empty"),
        pytest.param(" ", False, id="blank"),
    ],
)
def test_a_source_has_a_name_that_names_of_shards_can_begin_with(*, name: str, fine: bool) -> None:
    told = faults(MINIMAL.replace("name: shop", f"name: '{name}'"))

    write = "names no source; write a word without a slash"
    assert told == ([] if fine else [f"sources[0].name: {name!r} {write}"])


W = "write letters, digits, '_' and '-', with dots between"


@pytest.mark.parametrize(
    ("first", "second", "line"),
    [
        pytest.param(
            "shop",
            "shop",
            "'shop' is that of source shop, too; each connector needs its own",
            id="the same",
        ),
        pytest.param(
            "shop",
            "shop.eu",
            "source shop reads all topics below 'shop', also these; "
            "name the topics of source shop by `topics`",
            id="below the first",
        ),
        pytest.param(
            "shop.eu",
            "shop",
            "source second reads all topics below 'shop', also these; "
            "name the topics of source second by `topics`",
            id="above the first",
        ),
        pytest.param(r"shop", "shop2", "", id="beside it"),
        pytest.param("shop\n    topics: shop[.]a[.].+", "shop.eu", "", id="topics are named"),
    ],
)
def test_a_topic_is_read_as_one_sources_only(first: str, second: str, line: str) -> None:
    told = faults(MINIMAL.replace("prefix: shop", f"prefix: {first}") + SECOND.strip("\n") + second)

    assert told == ([f"sources[1].prefix: {line}"] if line else [])


@pytest.mark.parametrize(
    ("shards", "table", "line"),
    [
        pytest.param(r"shop\.orders_\d+", "shop.orders", "", id="folded"),
        pytest.param(r"(\w+)\.(\w+)_\d+", r"\1.\2", "", id="by groups"),
        pytest.param(r"(?P<db>\w+)\.t", r"\g<db>.t", "", id="by a name"),
        pytest.param(r"(\w+\.\w+)", r"\1", "", id="database and table in one group"),
        pytest.param(
            r"shop\.(\w+)",
            r"shop.\2",
            r"'shop.\\2' does not fit shards, which has 1 groups: invalid group reference 2",
            id="a group that is not there",
        ),
        pytest.param(
            r"shop\.x", r"\g<n>.t", r"'\\g<n>.t' does not fit shards, which has 0", id="a name"
        ),
        pytest.param(r"shop\.x", r"a\q.t", r"'a\\q.t' does not fit shards", id="a bad escape"),
        pytest.param(r"shop\.x", "orders", "'orders' names no table; write", id="no database"),
        pytest.param(r"shop\.x", "", "'' names no table; write database.table", id="empty"),
        pytest.param(r"shop\.x", "shop.", "'shop.' names no table; write", id="no name"),
        pytest.param(r"shop\.x", "shop.a/b", "'shop.a/b' names no table; write", id="a slash"),
    ],
)
def test_a_rule_names_a_table(shards: str, table: str, line: str) -> None:
    told = faults(MINIMAL + f"tables: [{{shards: '{shards}', table: '{table}'}}]")

    assert len(told) == (1 if line else 0)
    assert all(fault.startswith(f"tables[0].table: {line}") for fault in told)


def test_a_rule_that_ignores_names_what_it_likes() -> None:
    assert faults(MINIMAL + "tables: [{shards: 'shop[.]x', table: '', ignore: true}]") == []


@pytest.mark.parametrize(
    ("master", "fine"),
    [
        *((word, True) for word in ("local", "local[4]", "local[*]", "local[2,3]", "yarn")),
        *((word, True) for word in ("spark://host:7077", "k8s://https://host:443")),
        *((word, False) for word in ("", "locl[2]", "local[0]", "local[x]", "host:7077", "spark:")),
    ],
)
def test_a_master_is_one_that_spark_knows(master: str, fine: bool) -> None:
    told = faults(MINIMAL + f"pipeline: {{master: '{master}'}}")

    write = "write local[4], local[*], yarn, spark://host:port or k8s://address"
    assert told == ([] if fine else [f"pipeline.master: {master!r} is no Spark; {write}"])


@pytest.mark.parametrize("url", ["m:8083", "//m:8083", "ftp://m", "http://"])
def test_a_mirror_answers_at_an_address(url: str) -> None:
    mirror = f"{{kafka: k:1, url: '{url}', connector: m}}"

    told = faults(MINIMAL + f"    mirrored: {mirror}\n")

    assert told == [f"sources[0].mirrored.url: {url!r} is no address; write http://host:port"]
