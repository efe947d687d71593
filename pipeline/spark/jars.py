"""Finds the locked jars of each class path, and fetches missing ones with Ivy.

`jars.lock` is flat: no transitive dependency is resolved, so a jar that is not listed is
absent. The Ivy inside PySpark fetches the jars, from its default repository unless another one
is named. A file is moved into its folder only after its SHA-256 matched. Fetching also deletes
files that are no longer locked, because a class path is its whole folder.

In a checkout the folders are in `build/jars`. An installed package has `jars.lock` among its
data files and keeps jars in the user's cache. `SLUICE_JARS` names another folder in both cases.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from pipeline import installed
from pipeline.errors import ConfigError, SluiceError, UnreachableError
from pipeline.settings import without_login

ROOT = Path(__file__).resolve().parent.parent.parent
LOCK = installed.data_file("jars.lock")
PLACE = "SLUICE_JARS"
JARS = Path(
    os.environ.get(PLACE)
    or (
        ROOT / "build" / "jars"
        if installed.is_checkout()
        else installed.find_cache_folder() / "jars"
    )
)
SPARK = "spark"  # the one folder that a service needs
JAVA = 17  # the oldest release that Spark 4.0 runs on
FETCHERS = 4  # one Ivy fetches one jar at a time; four processes take half the time
ATTEMPTS = 3
PACE = 5.0  # seconds between two reports of progress
# Ivy's default settings, but without poms: a flat list needs none, and a parent may be missing.
SETTINGS = (
    '<ivysettings><settings defaultResolver="public"/><resolvers>'
    '<ibiblio name="public" m2compatible="true" usepoms="false"{root}/></resolvers></ivysettings>'
)
_INSTALL = f"install a Java {JAVA} runtime, or set JAVA_HOME"
SCHEMES = ("https", "http", "file")


@dataclass(frozen=True, slots=True)
class Jar:
    """One locked file: the class path it belongs to, its coordinate, its SHA-256."""

    folder: str
    coordinate: str
    sha256: str

    @property
    def file(self) -> str:
        """Name of the file in its folder: `artifact-version[-classifier].packaging`."""
        _, artifact, version, packaging, classifier = self._parts()
        return f"{artifact}-{version}{classifier and f'-{classifier}'}.{packaging}"

    @property
    def dependency(self) -> str:
        """The Ivy element that requests this file without its dependencies."""
        group, artifact, version, packaging, classifier = map(quoteattr, self._parts())
        chosen = "" if classifier == '""' else f" m:classifier={classifier}"
        return (
            f'<dependency org={group} name={artifact} rev={version} transitive="false">'
            f"<artifact name={artifact} type={packaging} ext={packaging}{chosen}/></dependency>"
        )

    def _parts(self) -> tuple[str, str, str, str, str]:
        group, artifact, version, *rest = self.coordinate.split(":")
        packaging, classifier = rest or ("jar", "")
        return group, artifact, version, packaging, classifier


def spark_jars() -> tuple[Path, ...]:
    """Jars for `spark.jars`: those that Spark needs and pyspark does not contain."""
    return jar_files(SPARK)


def jar_files(folder: str) -> tuple[Path, ...]:
    """Paths of the locked files of *folder*, in the order of the lock file.

    Raises:
        ConfigError: if one of them has not been fetched.
    """
    paths = tuple(JARS / jar.folder / jar.file for jar in locked_jars() if jar.folder == folder)
    missing = [path.name for path in paths if not path.is_file()]
    if missing or not paths:
        command = "make setup" if installed.is_checkout() else "sluice jars"
        msg = f"{len(missing)} jars are not in {JARS / folder}; run `{command}`"
        raise ConfigError(msg)
    return paths


def missing_jars() -> list[str]:
    """Requirements of Spark that this machine does not meet, each as ``what; fix``."""
    lacks = []
    for need in (_recent_java, spark_jars):
        try:
            need()
        except ConfigError as error:
            lacks.append(str(error))
    return lacks


def locked_jars(lock: Path = LOCK) -> tuple[Jar, ...]:
    """Jars named by the lock file, in its order."""
    lines = (line.split() for line in lock.read_text(encoding="utf-8").splitlines())
    return tuple(Jar(*words) for words in lines if words and not words[0].startswith("#"))


def fetch_jars(
    folders: Iterable[str] = (),
    *,
    home: Path = JARS,
    lock: Path = LOCK,
    repository: str = "",
    report: Callable[[str], None] = lambda _: None,
) -> int:
    """Make *folders* hold exactly the locked files; return the number of files fetched.

    No *folders* means all.  *repository* is the URL of a Maven repository; empty means Ivy's
    default.  *report* gets a line of progress at the beginning, every few seconds and at the end.

    Raises:
        ConfigError: if there is no Java to fetch with, or *repository* is not a URL.
        UnreachableError: if a file cannot be fetched, or its digest is not the locked one.
    """
    settings, chosen = _settings(repository), set(folders)
    jars = [jar for jar in locked_jars(lock) if not chosen or jar.folder in chosen]
    wanted = [jar for jar in jars if _sha256(home / jar.folder / jar.file) != jar.sha256]
    for jar in jars:
        (home / jar.folder).mkdir(parents=True, exist_ok=True)
    if wanted:
        _fetch_all(wanted, home, settings, report)
    _drop_strangers(jars, home)
    return len(wanted)


def find_java() -> str:
    """Path of the `java` to run: the one in JAVA_HOME, or without JAVA_HOME the first on the PATH.

    Raises:
        ConfigError: no `java` exists.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if found is None:
        where = f"in JAVA_HOME, {home}" if home else "on the PATH"
        raise ConfigError(f"no Java found {where}; {_INSTALL}")
    return found


def _recent_java() -> None:
    path = find_java()
    try:
        done = subprocess.run([path, "-version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise ConfigError(f"{path} cannot be run: {error.strerror}; {_INSTALL}") from None
    said = (done.stderr + done.stdout).strip()  # it answers on stderr
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None:
        raise ConfigError(f"{path} does not print its version: {said[:200]!r}; {_INSTALL}")
    if int(found[1]) < JAVA:
        raise ConfigError(f"{path} is Java {found[1]}, Spark needs Java {JAVA}; {_INSTALL}")


def _settings(repository: str) -> str:
    """Ivy's settings file for *repository*; empty means Ivy's default."""
    if repository and urlsplit(repository).scheme not in SCHEMES:
        shown = without_login(repository)
        msg = f"{shown!r} is no URL of a Maven repository; write https://host/path, or file://"
        raise ConfigError(msg)
    return SETTINGS.format(root=f" root={quoteattr(repository)}" if repository else "")


def _fetch_all(
    wanted: Sequence[Jar], home: Path, settings: str, report: Callable[[str], None]
) -> None:
    began, total = time.monotonic(), len(wanted)
    parts = [part for part in (wanted[i::FETCHERS] for i in range(FETCHERS)) if part]
    report(f"jars: fetched 0 of {total} into {home}")
    with tempfile.TemporaryDirectory(dir=home, prefix=".fetch-") as scratch:
        homes = [Path(scratch, str(number)) for number in range(len(parts))]
        with ThreadPoolExecutor(FETCHERS) as pool:
            tasks = zip(parts, homes, strict=True)
            running = {
                pool.submit(_fetch_part, part, place, home, settings) for part, place in tasks
            }
            while running:
                done, running = wait(running, PACE, FIRST_EXCEPTION)
                for each in done:
                    each.result()
                if running:
                    seconds = time.monotonic() - began
                    report(f"jars: fetched {_count(homes)} of {total}, {seconds:.0f} s so far")
    report(f"jars: fetched {total} of {total} in {time.monotonic() - began:.0f} s")


def _count(homes: Iterable[Path]) -> int:
    """Count the complete files that Ivy has downloaded to `cache/group/artifact/jars/file`.

    An incomplete file ends in `.part`.
    """
    found = (path for home in homes for path in home.glob("cache/*/*/*s/*"))
    return sum(path.suffix != ".part" for path in found)


def _fetch_part(jars: Sequence[Jar], scratch: Path, home: Path, settings: str) -> None:
    scratch.mkdir()
    (scratch / "settings.xml").write_text(settings, encoding="utf-8")
    for attempt in range(1, ATTEMPTS + 1):
        said = _run_ivy(jars, scratch)
        missing = [jar for jar in jars if not (scratch / jar.file).is_file()]
        if not missing:
            break
        if attempt == ATTEMPTS:
            msg = f"cannot fetch {', '.join(jar.coordinate for jar in missing)}: {said}"
            raise UnreachableError(msg)
    for jar in jars:
        _accept(jar, scratch / jar.file, home / jar.folder / jar.file)


def _run_ivy(jars: Sequence[Jar], scratch: Path) -> str:
    """Retrieve *jars* into *scratch*, which has `settings.xml`; return the end of Ivy's output."""
    (scratch / "ivy.xml").write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="sluice" module="jars"/><dependencies>'
        + "".join(jar.dependency for jar in jars)
        + '<conflict module="*" manager="all"/>'  # two class paths may want two versions of one jar
        + "</dependencies></ivy-module>",
        encoding="utf-8",
    )
    done = subprocess.run(
        [
            *(find_java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-jar", str(_ivy()), "-ivy", str(scratch / "ivy.xml")),
            *("-settings", str(scratch / "settings.xml")),
            *("-cache", str(scratch / "cache")),
            *("-retrieve", f"{scratch}/[artifact]-[revision](-[classifier]).[ext]"),
        ],
        capture_output=True,
        text=True,
        check=False,  # the caller checks which files exist afterwards
    )
    return without_login(done.stdout + done.stderr)[-500:]  # Ivy prints the repository's URL


def _ivy() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        msg = "pyspark is not installed; run `make setup`"
        raise ConfigError(msg)
    return next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))


def _accept(jar: Jar, fetched: Path, place: Path) -> None:
    found = _sha256(fetched)
    if found != jar.sha256:
        msg = f"{jar.coordinate} has SHA-256 {found}, jars.lock says {jar.sha256}"
        raise UnreachableError(msg)
    fetched.replace(place)


def _sha256(path: Path) -> str | None:
    """SHA-256 of a file, in hex; None if the file does not exist."""
    if not path.is_file():
        return None
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _drop_strangers(jars: Iterable[Jar], home: Path) -> None:
    """Remove files that are no longer locked, because a class path is its whole folder."""
    known = {home / jar.folder / jar.file for jar in jars}
    for folder in {path.parent for path in known}:
        for path in folder.iterdir():
            if path.is_file() and path not in known:
                path.unlink()


def _print(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    try:
        count = fetch_jars(sys.argv[1:], report=_print)
    except SluiceError as error:
        sys.exit(str(error))
    sys.stdout.write(f"{count} jars fetched, {len(locked_jars())} locked\n")
