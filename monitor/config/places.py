"""Can the lake and the store lie where the config says?  Better told here than by each reader.

Looks at what is there already; nothing is made.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from monitor.config.model import Config
from monitor.config.text import placed
from pipeline.installed import fix, is_installed
from pipeline.settings import without_login

OBJECT_STORES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl")  # as the lake's own
HDFS = ("hdfs", "viewfs")
UNREADABLE = re.compile(r"[%\\\x00-\x1f\x7f]")  # what a reader takes for something else
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def misplaced(config: Config, path: Path) -> Iterator[str]:
    """Each as ``place: fault``; *path* is the config's own."""
    if fault := _no_lake(config.lake, path):
        yield f"lake: {fault}"
    if "://" in config.store:
        yield "store: must be the path of a file, of SQLite; other databases cannot be used"
    elif fault := _no_file(config.store, path):
        yield f"store: {fault}"
    elif placed(config.store, path) == _whole(config.lake, path):
        yield "store: is the lake's folder; name a file beside it, such as sluice.db"
    for i, rule in enumerate(config.publish):
        if rule.where and (fault := _no_images(rule.where, config.lake, path)):
            yield f"publish[{i}].where: {fault}"


def _no_lake(text: str, path: Path) -> str:
    scheme = _SCHEME.match(text.strip())
    kind = scheme[1].lower() if scheme else ""
    if kind in HDFS:
        return (
            "Sluice does not write tables on HDFS itself; put the lake on a local folder or on S3"
        )
    place, fault = _bucket(text, kind) if kind else _folder(text, path)
    if not fault and (sign := UNREADABLE.search(place)):
        return f"{place!r} holds {sign[0]!r}, which not every reader takes as it is; name another"
    return fault


def _bucket(text: str, kind: str) -> tuple[str, str]:
    if kind == "file" and text.startswith("file:///"):
        return text, ""
    shown = without_login(text)
    if "?" in text or "#" in text:
        return "", "holds a query, which may be a key; give keys in the environment instead"
    if kind not in OBJECT_STORES:
        known = ", ".join(f"{name}://" for name in ("file", *OBJECT_STORES))
        return "", f"{shown!r} is of no known kind; write the path of a folder, or {known}"
    login, at, _ = urlsplit(text).netloc.rpartition("@")
    if at and (":" in login or not kind.startswith("abfs")):  # of Azure it is the container
        return "", "holds a key; give it in the environment (AWS_ACCESS_KEY_ID, ...) instead"
    if text != text.strip() or not text.startswith(f"{kind}://") or not urlsplit(text).netloc:
        return "", f"{shown!r} is no address; write {kind}://bucket/folder"
    return text, fix("obstore") if not is_installed("obstore") else ""


def _folder(text: str, path: Path) -> tuple[str, str]:
    place, fault = _placed(text, path)
    if not text.strip():
        fault = "is empty; write the path of a folder"
    elif not fault and (above := _file_above(Path(place))):
        fault = f"{above} is a file; name a folder"
    return place, fault


def _no_images(where: str, lake: str, path: Path) -> str:
    """Why images cannot be in *where*: vacuum deletes files in mirrors and log that none names."""
    place, fault = _placed(where, path)
    if fault:
        return fault
    if "://" not in where and (above := _file_above(Path(place))):
        return f"{above} is a file; name a folder"
    here = f"{place.rstrip('/')}/"
    for own in ("mirrors", "changes"):
        theirs = f"{_whole(lake, path)}/{own}/"
        if here.startswith(theirs) or theirs.startswith(here):
            deleted = f"{where!r} shares files with {theirs[:-1]}, where upkeep deletes them"
            return f"{deleted}; write a folder apart, such as {_whole(lake, path)}/images"
    return ""


def _whole(place: str, path: Path) -> str:
    return _placed(place, path)[0].rstrip("/")


def _no_file(text: str, path: Path) -> str:
    if text.strip().startswith(":") or not text.strip():
        return f"{text!r} is no file that stays; write its path, such as sluice.db"
    place, fault = _placed(text, path)
    if fault:
        return fault
    if Path(place).is_dir():
        return f"{place} is a folder; name a file in it"
    if above := _file_above(Path(place).parent):
        return f"{above} is a file; name a folder for it that is none"
    return ""


def _placed(text: str, path: Path) -> tuple[str, str]:
    try:
        return placed(text, path), ""
    except (RuntimeError, ValueError) as error:  # a stranger's home, a letter no path holds
        return "", f"{text!r} is no path: {error}"


def _file_above(folder: Path) -> Path | None:
    """What stands in the way of *folder*, if it is none and cannot be made."""
    there = next((one for one in (folder, *folder.parents) if one.exists()), None)
    return None if there is None or there.is_dir() else there
