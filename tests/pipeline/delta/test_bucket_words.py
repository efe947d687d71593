"""What a bucket does beyond the contract of every store: its words, its limits and its order."""

import io
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError, PermissionDeniedError, UnauthenticatedError
from obstore.store import MemoryStore

from pipeline.delta import object_store
from pipeline.delta.object_store import Bucket, RangeFile, open_bucket
from pipeline.errors import ConfigError, UnreachableError

SECRET = "s3cr3t"
GENERIC = "Sluice retries automatically"


@pytest.fixture
def bucket() -> Bucket:
    return Bucket("s3://lake/t", MemoryStore())


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception], None]:
    """Let the next requests fail with an error."""

    def begin(error: Exception) -> None:
        def ask(*_: object, **__: object) -> None:
            raise error

        for name in ("get", "put", "head", "delete", "list", "list_with_delimiter", "copy"):
            monkeypatch.setattr(obstore, name, ask)

    return begin


def answer(code: str) -> str:
    """An error as the library spells what S3 answers."""
    return (
        "Generic S3 error: Error performing GET http://h/lake/t/x in 1ms - Server returned"
        f" <Error><Code>{code}</Code><Key>{SECRET}</Key></Error>\nDebug: {SECRET}"
    )


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("NoSuchBucket", "there is no such bucket; make it, or correct `lake`"),
        ("InvalidAccessKeyId", "the key is unknown there; correct AWS_ACCESS_KEY_ID"),
        ("SignatureDoesNotMatch", "the secret is wrong; correct AWS_SECRET_ACCESS_KEY"),
        ("ExpiredToken", "the session token has expired; renew AWS_SESSION_TOKEN"),
        ("AccessDenied", "allow Sluice's key to list, read, write and delete there"),
        ("PermanentRedirect", "the bucket is in another region; set AWS_REGION"),
        ("SlowDown", "the store asks for fewer requests, and Sluice retries automatically"),
        ("InternalError", GENERIC),
    ],
)
def test_a_refusal_is_told_by_its_code_with_what_helps_and_no_secret(
    bucket: Bucket, fails: Callable[[Exception], None], code: str, advice: str
) -> None:
    fails(GenericError(answer(code)))

    with pytest.raises(UnreachableError) as found:
        bucket.read("log/1")

    assert str(found.value) == f"s3://lake/t/log/1: {code}; {advice}"


KEY_NEEDS = "403: no words; allow Sluice's key to list, read, write and delete there"
CLEAR_TEXT = "Generic S3 error: Error performing GET http://h: builder error\nmore"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        pytest.param(
            PermissionDeniedError(f"403: no words\nDebug: {SECRET}"), KEY_NEEDS, id="not permitted"
        ),
        pytest.param(
            UnauthenticatedError(f"403: no words\nDebug: {SECRET}"), KEY_NEEDS, id="not known"
        ),
        pytest.param(
            GenericError(CLEAR_TEXT),
            "GET http://h: builder error; an endpoint without TLS needs AWS_ALLOW_HTTP=true",
            id="clear text",
        ),
    ],
)
def test_an_error_names_what_the_key_or_the_endpoint_needs(
    bucket: Bucket, fails: Callable[[Exception], None], error: Exception, words: str
) -> None:
    fails(error)

    with pytest.raises(UnreachableError) as found:
        bucket.size("log/1")

    assert str(found.value) == f"s3://lake/t/log/1: {words}"


def test_words_without_end_are_cut(bucket: Bucket, fails: Callable[[Exception], None]) -> None:
    fails(OSError("x" * 1_000))

    with pytest.raises(UnreachableError) as found:
        bucket.after("log", "")

    assert str(found.value) == f"s3://lake/t/log: {'x' * 200}; {GENERIC}"


@pytest.mark.parametrize("write", [Bucket.put, Bucket.put_new])
def test_what_is_not_there_for_a_writer_is_the_bucket(
    bucket: Bucket, fails: Callable[[Exception], None], write: Callable[..., None]
) -> None:
    fails(FileNotFoundError("Object at location x not found: Error performing PUT h\nmore"))

    with pytest.raises(
        UnreachableError, match="s3://lake/t/log/1: PUT h; Sluice retries automatically"
    ):
        write(bucket, "log/1", b"")


def test_a_missing_bucket_is_no_missing_file(
    bucket: Bucket, fails: Callable[[Exception], None]
) -> None:
    fails(FileNotFoundError(answer("NoSuchBucket")))

    with pytest.raises(UnreachableError, match="there is no such bucket"):
        bucket.exists("log/1")
    with pytest.raises(UnreachableError, match="there is no such bucket"):
        bucket.remove("log/1")


@pytest.mark.parametrize(
    ("uri", "known", "plain"),
    [
        ("s3://lake/t/", "s3://lake/t", None),
        ("s3a://lake/t", "s3://lake/t", "true"),
        ("s3a://lake/s3a://t", "s3://lake/s3a://t", "1"),
        ("s3://lake/t", "s3://lake/t", "TRUE"),
        ("s3://lake/t", "s3://lake/t", "no"),
    ],
)
def test_a_bucket_is_opened_with_limits_and_in_clear_text_only_if_told(
    monkeypatch: pytest.MonkeyPatch, uri: str, known: str, plain: str | None
) -> None:
    asked = list[Any]()

    def opened(address: str, **options: Any) -> MemoryStore:
        asked.append((address, options))
        return MemoryStore()

    monkeypatch.setattr(object_store, "from_url", opened)
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    if plain is not None:
        monkeypatch.setenv("AWS_ALLOW_HTTP", plain)

    found = open_bucket(uri)

    assert (found.uri, found.ranged) == (uri.rstrip("/"), True)
    clear = plain in ("true", "1", "TRUE")
    client = {
        "timeout": timedelta(seconds=30),
        "connect_timeout": timedelta(seconds=5),
        "allow_http": clear,
    }
    retried = {"max_retries": 8, "retry_timeout": timedelta(seconds=30)}
    assert asked == [(known, {"client_options": client, "retry_config": retried})]


def test_an_address_that_makes_no_sense_is_a_fault_of_the_config() -> None:
    with pytest.raises(ConfigError, match=r"^foo://bar: [^\n]+$"):
        open_bucket("foo://bar")


def test_a_store_that_knows_no_conditions_is_refused_and_one_that_is_away_is_not(
    bucket: Bucket, fails: Callable[[Exception], None]
) -> None:
    fails(GenericError(answer("NotImplemented")))
    with pytest.raises(ConfigError, match="s3://lake/t: this store does not refuse to write"):
        bucket.prove("log")

    fails(GenericError(answer("SlowDown")))
    with pytest.raises(UnreachableError, match="fewer requests"):
        bucket.prove("log")


def test_the_files_of_the_root_are_listed_too(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b", "a", "log/1"):
        bucket.put(name, b"12")
    asked, plain = list[str | None](), obstore.list_with_delimiter

    def listed(objects: Any, prefix: str | None) -> Any:
        asked.append(prefix)
        return plain(objects, prefix=prefix)

    monkeypatch.setattr(obstore, "list_with_delimiter", listed)

    assert [(one.name, one.size) for one in bucket.names("")] == [("a", 2), ("b", 2)]
    assert asked == [None]


def test_an_open_file_is_read_from_any_place(bucket: Bucket) -> None:
    bucket.put("log/1", b"0123456789")
    file = bucket.source("log/1")

    assert (file.readable(), file.seekable(), file.size()) == (True, True, 10)
    assert (file.read(1), file.tell()) == (b"0", 1)
    assert (file.seek(3), file.read(2), file.tell()) == (3, b"34", 5)
    assert (file.seek(1, io.SEEK_CUR), file.read(1)) == (6, b"6")
    assert (file.seek(-2, io.SEEK_END), file.read(), file.read()) == (8, b"89", b"")


def test_a_listing_is_asked_for_from_a_name_on_and_what_comes_before_it_is_left_out(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[tuple[str, str | None]]()

    def listed(objects: object, *, prefix: str, offset: str | None) -> list[list[dict[str, str]]]:
        asked.append((prefix, offset))
        return [[{"path": "log/0"}, {"path": "log/1"}], [{"path": "log/2"}]]

    monkeypatch.setattr(obstore, "list", listed)

    assert (bucket.after("log", "1"), bucket.after("log", "")) == (["2"], ["0", "1", "2"])
    assert asked == [("log", "log/1"), ("log", None)]


def test_a_file_is_made_in_one_request_for_parts_know_no_condition(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[dict[str, Any]]()
    monkeypatch.setattr(obstore, "put", lambda *_, **how: asked.append(how))

    bucket.put_new("log/1", b"")

    assert asked == [{"mode": "create", "use_multipart": False}]


def test_a_file_of_the_bucket_can_be_sought_in(bucket: Bucket) -> None:
    assert RangeFile(bucket, "log/1", 10).seekable()


def test_a_read_file_is_asked_for_no_more_than_is_there(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put("log/1", b"0123")
    asked, plain = list[tuple[int, int]](), obstore.get_range

    def counted(objects: Any, name: str, *, start: int, length: int) -> Any:
        asked.append((start, length))
        return plain(objects, name, start=start, length=length)

    monkeypatch.setattr(obstore, "get_range", counted)
    file = bucket.source("log/1")
    file.seek(1)

    assert (file.read(100), file.read(100)) == (b"123", b"")
    assert asked == [(1, 3)]


def test_a_folder_that_takes_a_place_tells_of_itself_last(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, data in [("new/_SUCCESS", b"n"), ("new/a", b"n"), ("new/c", b"n")]:
        bucket.put(name, data)
    for name in ("old/_SUCCESS", "old/a", "old/b", "old/_stale"):
        bucket.put(name, b"o")
    did = list[str]()
    remove, copy = obstore.delete, obstore.copy

    def removed(objects: Any, name: str) -> None:
        did.append(f"-{name}")
        remove(objects, name)

    def copied(objects: Any, name: str, into: str, **how: Any) -> None:
        did.append(f"+{into}")
        copy(objects, name, into, **how)

    monkeypatch.setattr(obstore, "delete", removed)
    monkeypatch.setattr(obstore, "copy", copied)

    bucket.place("new", "old")

    first = {"-old/_SUCCESS", "-old/_stale", "-old/b"}
    assert set(did[: did.index("+old/a")]) == first
    assert did[did.index("+old/a") :] == [
        *("+old/a", "+old/c", "+old/_SUCCESS"),
        *("-new/_SUCCESS", "-new/a", "-new/c"),
    ]
    assert bucket.names("new") == []
    assert {one.name: bucket.read(one.name) for one in bucket.names("old")} == {
        "old/_SUCCESS": b"n",
        "old/a": b"n",
        "old/c": b"n",
    }


def test_a_folder_that_came_whole_on_a_second_try_stays_whole(bucket: Bucket) -> None:
    bucket.put("new/a", b"n")
    bucket.place("new", "old")

    bucket.put("new/a", b"again")
    bucket.place("new", "old")

    assert bucket.read("old/a") == b"again"


def test_all_below_a_folder_goes_the_lowest_names_first(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("t/b", "t/_log/1", "t/a", "t2/a"):
        bucket.put(name, b"")
    gone, remove = list[str](), obstore.delete

    def removed(objects: Any, name: str) -> None:
        gone.append(name)
        remove(objects, name)

    monkeypatch.setattr(obstore, "delete", removed)

    bucket.drop("t")

    assert gone == ["t/_log/1", "t/a", "t/b"]
    assert bucket.exists("t2/a")


def test_what_was_asked_to_be_drained_or_made_needs_nothing(bucket: Bucket) -> None:
    bucket.make_folder("log")
    bucket.sync("log/1")

    assert bucket.names("") == []
