"""Stores a table in an object store (S3, GCS or Azure).

An object store has no folders. A conditional put creates a file at most once; `prove` tests
that the store supports it. The library runs its own threads, which do not survive a fork, so
this module is imported only where a bucket is opened.
"""

import io
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import obstore
import pyarrow as pa
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import ObjectStore, from_url

from pipeline.delta.local import LEFTOVER, Entry
from pipeline.errors import ConfigError, UnreachableError

ANSWERED = timedelta(seconds=30)  # one request with its answer; a large file is sent in parts
CONNECTED = timedelta(seconds=5)
TRIED = timedelta(seconds=30)  # retries with growing pauses, so that throttled requests succeed
_CODE = re.compile(r"<Code>(\w+)</Code>")
_ADVICE = {
    "NoSuchBucket": "there is no such bucket; make it, or correct `lake`",
    "InvalidAccessKeyId": "the key is unknown there; correct AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the secret is wrong; correct AWS_SECRET_ACCESS_KEY",
    "ExpiredToken": "the session token has expired; renew AWS_SESSION_TOKEN",
    "AccessDenied": "allow Sluice's key to list, read, write and delete there",
    "PermanentRedirect": "the bucket is in another region; set AWS_REGION",
    "SlowDown": "the store asks for fewer requests, and Sluice retries automatically",
}


def open_bucket(uri: str) -> "Bucket":
    """Open a table in a bucket; keys and endpoint come from the environment (``AWS_...``).

    Raises:
        ConfigError: the address or the environment is invalid.
    """
    address = uri.rstrip("/")
    scheme, _, rest = address.partition("://")
    known = f"s3://{rest}" if scheme == "s3a" else address
    plain = os.environ.get("AWS_ALLOW_HTTP", "").lower() in {"true", "1"}
    try:
        objects = from_url(
            known,
            client_options={
                "timeout": ANSWERED,
                "connect_timeout": CONNECTED,
                "allow_http": plain,  # with options, the library ignores the environment variable
            },
            retry_config={"max_retries": 8, "retry_timeout": TRIED},
        )
        return Bucket(address, objects)
    except (BaseError, ValueError) as error:
        raise ConfigError(f"{uri}: {str(error).partition(chr(10))[0]}") from error


@dataclass(eq=False)
class Bucket:
    """A prefix in an object store; it implements ``Store``, which describes the methods."""

    uri: str
    objects: ObjectStore
    ranged: bool = True

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        with _translated(self, name):
            if length is None:
                return bytes(obstore.get(self.objects, name).bytes())[start:]
            return bytes(obstore.get_range(self.objects, name, start=start, length=length))

    def after(self, folder: str, name: str) -> list[str]:
        prefix = f"{folder}/"
        with _translated(self, folder):
            offset = f"{prefix}{name}" if name else None
            found = [
                str(one["path"]).removeprefix(prefix)
                for chunk in obstore.list(self.objects, prefix=folder, offset=offset)
                for one in chunk
            ]
        return sorted(one for one in found if "/" not in one and one > name)

    def names(self, folder: str) -> list[Entry]:
        with _translated(self, folder):
            found = obstore.list_with_delimiter(self.objects, prefix=folder or None)["objects"]
        entries = [Entry(str(one["path"]), one["size"], one["last_modified"]) for one in found]
        return sorted(entries, key=lambda one: one.name)

    def put_new(self, name: str, data: bytes) -> None:
        """Make a complete file, or raise FileExistsError.

        Raises:
            UnreachableError: it is unknown whether the file was made.
        """
        with _translated(self, name), _no_bucket(self, name):
            obstore.put(self.objects, name, data, mode="create", use_multipart=False)

    def prove(self, folder: str) -> None:
        """Put a file into *folder* twice, and remove it; the store must reject the second put.

        Raises:
            ConfigError: the store accepts both puts, or does not support conditional ones.
            UnreachableError: it does not answer, or denies access.
        """
        name = f"{folder}/{LEFTOVER}{uuid.uuid4()}.tmp"  # `sweep_files` removes leftovers
        try:
            self.put_new(name, b"1")
            self.put_new(name, b"2")
        except FileExistsError:
            return
        except UnreachableError as error:
            if "NotImplemented" not in str(error):
                raise
        finally:
            self._take_back(name)
        raise ConfigError(
            f"{self.uri}: this store does not refuse to write a file that is there (a put with "
            "`If-None-Match: *`), so two writers could both win; put the lake on one that does"
        )

    def _take_back(self, name: str) -> None:
        with suppress(UnreachableError):
            self.remove(name)

    def put(self, name: str, data: bytes) -> None:
        with _translated(self, name), _no_bucket(self, name):
            obstore.put(self.objects, name, data)

    def sync(self, name: str) -> None:
        """Do nothing: an acknowledged put is durable."""

    def exists(self, name: str) -> bool:
        try:
            self.size(name)
        except FileNotFoundError:
            return False
        return True

    def size(self, name: str) -> int:
        with _translated(self, name):
            return int(obstore.head(self.objects, name)["size"])

    def remove(self, name: str) -> None:
        try:
            with _translated(self, name):
                obstore.delete(self.objects, name)
        except FileNotFoundError:
            return

    def source(self, name: str) -> Any:
        return pa.PythonFile(RangeFile(self, name, self.size(name)), mode="r")

    @contextmanager
    def sink(self, name: str) -> Iterator[Any]:
        """An output for pyarrow, held in memory; the complete file appears at the end, or never."""
        output = pa.BufferOutputStream()
        yield output
        self.put(name, output.getvalue().to_pybytes())

    def make_folder(self, folder: str) -> None:
        """Do nothing: a bucket has no folders."""

    def place(self, staged: str, folder: str) -> None:
        came = [entry.name for entry in self.names(staged)]
        before = [entry.name for entry in self.names(folder)]
        named = {name: f"{folder}/{name.rpartition('/')[2]}" for name in came}
        stale = sorted(set(before) - set(named.values()))
        for name in (
            *filter(_is_metadata, before),
            *stale,
        ):  # all of them, before a new metadata file names the new files
            self.remove(name)
        for name in sorted(came, key=_is_metadata):
            with _translated(self, name):
                obstore.copy(self.objects, name, named[name], overwrite=True)
        for name in came:
            self.remove(name)

    def drop(self, folder: str) -> None:
        """Remove all files below *folder*, in the order of their names."""
        with _translated(self, folder):
            found = [str(one["path"]) for some in self._all(folder) for one in some]
        for name in sorted(found):
            self.remove(name)

    def _all(self, folder: str) -> Any:
        return obstore.list(self.objects, prefix=folder)


def _is_metadata(name: str) -> bool:
    """Whether the file describes other files of its folder: its name begins with `_`."""
    return name.rpartition("/")[2].startswith("_")


class RangeFile(io.RawIOBase):
    """A file in a bucket, as a readable file of Python; each read is one request."""

    def __init__(self, bucket: Bucket, name: str, size: int) -> None:
        super().__init__()
        self._bucket, self._name, self._size, self._at = bucket, name, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        length = max(0, min(len(view), self._size - self._at))
        if length:
            view[:length] = self._bucket.read(self._name, self._at, length)
            self._at += length
        return length


@contextmanager
def _no_bucket(bucket: Bucket, name: str) -> Iterator[None]:
    """Turn FileNotFoundError of a write into UnreachableError: the bucket is missing."""
    try:
        yield
    except FileNotFoundError as error:
        raise UnreachableError(_describe_error(bucket, name, error)) from error


@contextmanager
def _translated(bucket: Bucket, name: str) -> Iterator[None]:
    """Translate errors: FileExistsError, FileNotFoundError, and UnreachableError for the rest."""
    try:
        yield
    except (AlreadyExistsError, PreconditionError) as error:
        raise FileExistsError(f"{bucket.uri}/{name}: another writer made it") from error
    except FileNotFoundError as error:
        if "<Code>NoSuchBucket</Code>" in str(error):  # the bucket is missing, not only the table
            raise UnreachableError(_describe_error(bucket, name, error)) from error
        raise
    except (BaseError, OSError) as error:
        raise UnreachableError(_describe_error(bucket, name, error)) from error


def _describe_error(bucket: Bucket, name: str, error: Exception) -> str:
    """The store's error in one line, without secrets, and the fix."""
    text = str(error)
    code = next(iter(_CODE.findall(text)), "")
    denied = isinstance(error, PermissionDeniedError | UnauthenticatedError)
    advice = _ADVICE.get(
        code, _ADVICE["AccessDenied"] if denied else "Sluice retries automatically"
    )
    if "builder error" in text:
        advice = "an endpoint without TLS needs AWS_ALLOW_HTTP=true"
    line = text.partition("\n")[0]
    said = code or line.partition(": Error performing ")[2] or line[:200]
    return f"{bucket.uri}/{name}: {said}; {advice}"
