"""What lies in a folder?  Names are bytes, links may lead nowhere, and files go meanwhile."""

import errno
import os
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from pipeline.errors import UnreachableError
from pipeline.files.content import stamp_of
from pipeline.files.layout import HourPartition, is_finished
from pipeline.files.stamp import FileStamp

PAUSE = 5_000  # files between two pauses of who digests them
NO_TEXT = "a name that is no UTF-8; rename it"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a partition by its name, as a look finds it; ``why`` it can never be taken, if so.

    A name that is no UTF-8 is told as it can be.
    """

    part: HourPartition
    name: str
    stamp: FileStamp
    why: str = ""

    @property
    def path(self) -> str:
        """Below the base."""
        return f"{self.part.path}/{self.name}"


def folders(at: Path) -> list[str]:
    """Names of what is a folder there, or a link to one; none where nothing is there.

    Raises:
        OSError: it cannot be read.
        UnreachableError: one has a name that nobody can write down.
    """
    try:
        with os.scandir(at) as listing:
            found = sorted(one.name for one in listing if _leads_to(one.is_dir))
    except FileNotFoundError:
        return []
    if odd := [name for name in found if not _is_text(name)]:
        raise UnreachableError(f"folder {os.fsencode(odd[0])!r} in {at} has {NO_TEXT}")
    return found


def files(base: Path, part: HourPartition, unfinished: tuple[str, ...]) -> Iterator[FoundFile]:
    """Files of a partition, or links to some, but for those whose names say *unfinished*.

    Raises:
        OSError: it cannot be read.
    """
    return (_found(part, name, stamp_of(told)) for name, told in _entries(base, part, unfinished))


def footprint(
    base: Path, part: HourPartition, unfinished: tuple[str, ...]
) -> Generator[None, None, bytes]:
    """Names and stamps of the same files in 16 bytes, in the order in which they are listed.

    Raises:
        OSError: it cannot be read.
    """
    made = blake2b(digest_size=16)
    for number, (name, told) in enumerate(_entries(base, part, unfinished), start=1):
        made.update(b"%s/%d/%d/%d/%d\n" % (os.fsencode(name), *stamp_of(told).parts))
        if number % PAUSE == 0:
            yield
    return made.digest()


def _entries(
    base: Path, part: HourPartition, unfinished: tuple[str, ...]
) -> Iterator[tuple[str, os.stat_result]]:
    try:
        listing = os.scandir(base / part.path)
    except FileNotFoundError:
        return
    with listing:
        for one in listing:
            try:
                if is_finished(one.name, unfinished) and _leads_to(one.is_file):
                    yield one.name, one.stat()
            except FileNotFoundError:
                continue  # renamed or deleted meanwhile


def _found(part: HourPartition, name: str, stamp: FileStamp) -> FoundFile:
    if _is_text(name):
        return FoundFile(part, name, stamp)
    told = os.fsencode(name).decode("utf-8", "backslashreplace")
    return FoundFile(part, told, stamp, f"it has {NO_TEXT}")


def _leads_to(asked: Callable[[], bool]) -> bool:
    """Whether it is one; a link that leads round in a circle is nothing."""
    try:
        return asked()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def _is_text(name: str) -> bool:
    """Whether its bytes are UTF-8: Python has these characters for those that are not."""
    return not any("\udc80" <= one <= "\udcff" for one in name)
