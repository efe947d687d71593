"""Builds the command that runs a class of a folder of jars, small and fast enough for two cores.

A server spends most of its start on loading classes. The first run that ends without a kill leaves
an archive of them (class data sharing). With it, every later start takes a third of the time.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from demo import unpack
from pipeline.spark import jars


@dataclass(frozen=True, slots=True)
class Program:
    """A class with its arguments, run in *home*; *level* is the lowest that slf4j-simple logs.

    ``beside`` names further folders of jars for its class path.
    """

    main: str
    arguments: tuple[str, ...]
    home: Path
    heap: str
    level: str = "info"
    beside: tuple[str, ...] = ()

    @property
    def command(self) -> tuple[str, ...]:
        """Return the command line; its class path is the folder of Kafka's jars."""
        return (
            jars.find_java(),
            f"-Xmx{self.heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",  # the better compiler costs more than it gains in minutes
            "-XX:+ExitOnOutOfMemoryError",  # a dead server should look dead
            "-XX:-UsePerfData",
            self._sharing(),
            f"-Dorg.slf4j.simpleLogger.defaultLogLevel={self.level}",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSX",
            "-Duser.timezone=UTC",
            *("-cp", ":".join(f"{jars.JARS / name}/*" for name in ("kafka", *self.beside))),
            self.main,
            *self.arguments,
        )

    def keep_classes(self) -> None:
        """Keep the archive of classes; call this after the program ended without a kill."""
        if self._left.exists() and not self._kept.exists():
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            whole = shutil.copyfile(self._left, self._kept.with_name(f"{self.home.name}.part"))
            whole.replace(self._kept)
        self._left.unlink(missing_ok=True)

    def _sharing(self) -> str:
        if self._kept.exists():
            return f"-XX:SharedArchiveFile={self._kept}"
        if self.beside:
            return "-Xshare:auto"  # an archive of a longer class path fits no other program
        return f"-XX:ArchiveClassesAtExit={self._left}"

    @property
    def _left(self) -> Path:
        return self.home / f"{self.main}.jsa"

    @property
    def _kept(self) -> Path:
        return unpack.UNPACKED / f"{self.main}.jsa"
