"""What do verbs have in common that let rows be read again?  They ask, look on, and give up."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from monitor.client import listed, posted
from monitor.terminal import say, visible

PACE = 1.0  # seconds between two looks
FAILED = 4
MOST = 10_000  # that the service lists at once
OTHERS = 1_000  # that may have been asked for meanwhile


def ask(base: str, path: str, body: Mapping[str, Any], *, wait: bool, as_json: bool) -> None:
    """Ask for *body*; tell of it, and if told to *wait*, until all has ended and been checked.

    Exits with 4 if something, or a check that it was to put right, did not end well.
    """
    _follow(base, _ids(base, path, body), wait=wait, as_json=as_json)


def give_up(base: str, tables: Sequence[str], said: Mapping[str, str], *, as_json: bool) -> None:
    """Give up what of *tables* is read now, and tell of it; *said* is why and by whom."""
    ids = _ids(base, "/v1/rereads/cancelled", {"tables": list(tables), **said})
    _follow(base, ids, wait=False, as_json=as_json)


def _ids(base: str, path: str, body: Mapping[str, Any]) -> set[str]:
    return {one["id"] for one in posted(base, path, "rereads", body)["rereads"]}


def _follow(base: str, ids: set[str], *, wait: bool, as_json: bool) -> None:
    found = _watched(base, ids, quiet=as_json) if wait else _told(base, ids)
    if as_json:
        say(json.dumps(found))
    elif not wait:
        for one in found:
            say(_line(one))
    if gone := len(ids) - len(found):
        say(f"{gone} more are too old to be listed, so how they ended is not known", err=True)
    well = {one["id"] for one in found if one["done"] and not one["unchecked"]}
    if wait and well != ids:
        sys.exit(FAILED)


def _told(base: str, ids: set[str]) -> list[dict[str, Any]]:
    found = listed(base, "/v1/rereads", {"limit": min(MOST, OTHERS + len(ids))})
    return [one for one in found if one["id"] in ids]


def _watched(base: str, ids: set[str], *, quiet: bool) -> list[dict[str, Any]]:
    """Look on until all have ended; on a terminal a line each that moves, else one a change."""
    shown: dict[str, str] = {}
    while True:
        found = _told(base, ids)
        for one in found:
            line = _line(one)
            if not quiet and shown.get(one["id"]) != line:
                _show(line, moving=_goes_on(one))
                shown[one["id"]] = line
        if not any(_goes_on(one) for one in found):
            return found
        time.sleep(PACE)


def _goes_on(one: Mapping[str, Any]) -> bool:
    """Whether it is read on, or a check has yet to say what it says now."""
    if one["ended"] is None:
        return True
    ruled = {proof["check"] for proof in one["proofs"]}
    return bool(one["awaits_checks"]) and not set(one["unchecked"]) <= ruled


def _show(line: str, *, moving: bool) -> None:
    """On a terminal the line of one that goes on is written over."""
    live = sys.stdout.isatty()
    click.echo(f"\r\x1b[K{visible(line)}" if live else visible(line), nl=not (live and moving))


def _line(one: Mapping[str, Any]) -> str:
    rows, based = one["rows"], one["kind"] == "bootstrap"
    if one["done"] and (found := one["preview"]) is not None:
        counts = ", ".join(f"{found[what]} {what}" for what in ("missing", "extra", "different"))
        return "\n  ".join((f"{one['table']}: a repair would change {counts}", *found["keys"]))
    if one["done"]:
        told = "the new base is complete" if based else "they are in the change log"
        return f"{one['table']}: {rows} rows read, {told}{_checked(one)}"
    if one["ended"]:
        ended = "ended without a new base" if based else f"the {one['kind']} ended incomplete"
        return f"{one['table']}: {ended}: {one['why'] or 'cancelled'}"
    told = f"{one['table']}: {one['told']}"
    return f"{told}; waits: {one['why']}" if one["why"] else told


def _checked(one: Mapping[str, Any]) -> str:
    """What the checks said that it was to put right."""
    said = {proof["check"]: proof for proof in one["proofs"]}
    told = [
        f"{check} {'passes' if said[check]['passed'] else 'fails'}: {said[check]['reason']}"
        if check in said
        else f"{check} is asked again"
        for check in one["checks"]
    ]
    return "".join(f"; {text}" for text in told)
