"""`sluice quarantine list | show | resend`: correct and resend unreadable messages."""

import base64
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

import click
import msgspec

from monitor.cli.client import get_mapping, send_post, service_address
from monitor.cli.options import service_options, who_option
from monitor.display_text import escape_line, say, say_lines
from pipeline.errors import ConfigError

PACE = 1.0  # seconds between two requests for progress
REFUSED = 4
WHOLE = 16 * 2**20
SHORT = 160  # longest reason in a list, in characters


@click.group("quarantine")
def quarantine() -> None:
    """List, show, correct and resend messages that could not be read."""


@quarantine.command("list")
@click.argument("table", required=False)
@click.option("--all", "every", is_flag=True, help="Include closed ones.")
@click.option("--limit", default=100, show_default=True, help="How many at most, newest first.")
@service_options
def list_(
    *,
    table: str | None,
    every: bool,
    limit: int,
    config: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """List messages of TABLE, or of all tables, that could not be read; no value is shown.

    The last lines show, for each table, how many changes were read, and how many of them are in the
    mirror and in quarantine.
    """
    asked = {"limit": limit, "every": every} | ({} if table is None else {"table": table})
    found = get_mapping(service_address(server, config), "/v1/quarantine", "changes", asked)
    if as_json:
        say(json.dumps(found))
        return
    for one in found["changes"]:
        _say(_line(one))
    more = sum(found["open"].values()) - sum(one["state"] == "open" for one in found["changes"])
    if more > 0:
        say(f"and {more} more are open")
    for one in found["tables"]:
        _say(escape_line(_book(one)))
    if not found["changes"] and not found["open"]:
        say("no message is in quarantine")


@quarantine.command("show")
@click.argument("id_", metavar="ID")
@click.option(
    "--letters",
    default=1000,
    show_default=True,
    type=click.IntRange(0, WHOLE),
    help="How many characters of the message to show; 0 shows none.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), help=("Write the whole message to this file.")
)
@service_options
def show(
    *, id_: str, letters: int, out: Path | None, config: Path, server: str | None, as_json: bool
) -> None:
    """Show one message with its values, as JSON or text where possible.

    The service logs that the message was shown.
    """
    asked = {"id": id_, "letters": WHOLE if out is not None else letters}
    found = get_mapping(service_address(server, config), "/v1/quarantine/message", "bytes", asked)
    if out is not None:
        _write(out, found)
        return
    if as_json:
        say(json.dumps(found))
        return
    _say(_line(found))
    for name in ("key", "schema_id", "unread"):
        if found[name] is not None:
            _say(escape_line(f"{name}: {found[name]}"))
    if not found["kept"]:
        say("its bytes were not kept: it was empty, or a standard keeps it out of the lake")
    elif not found["in_topic"]:
        say("its topic no longer has it; to resend it, set its key with --key, if it had one")
    if letters and found["kept"]:
        _say(found["text"] or f"base64: {found['value']}")
    if 0 < letters < found["letters"]:
        say(f"... {found['letters'] - letters} more characters (use --letters, or --out FILE)")


@quarantine.command("resend")
@click.argument("id_", metavar="ID")
@click.option(
    "--text",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    help="File with the corrected message, as `show --out` writes it; - reads standard input.",
)
@click.option(
    "--bytes",
    "raw",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    help="File with the bytes of the message.",
)
@click.option(
    "--unchanged", is_flag=True, help="Resend it unchanged, because it can be read by now."
)
@click.option("--key", help="Key of the message; by default the key in its topic.")
@click.option(
    "--schema", type=int, help="Id of the schema to encode the text with; by default its own."
)
@click.option("--reason", required=True, help="What was wrong; stored for ever.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until it has landed.")
@who_option
@service_options
def resend(
    *,
    id_: str,
    text: Path | None,
    raw: Path | None,
    unchanged: bool,
    key: str | None,
    schema: int | None,
    reason: str,
    who: str,
    wait: bool,
    config: Path,
    server: str | None,
    as_json: bool,
) -> None:
    """Resend the corrected message ID. The original bytes are kept.

    It lands at the position of the original, or with the version that it contains, so newer changes
    win. Its table is unblocked once it has landed and is merged. Exit status 4: it cannot land.
    """
    if (text is not None) + (raw is not None) + unchanged != 1:
        raise ConfigError("no message to send; use --text FILE, --bytes FILE, or --unchanged")
    said = {"id": id_, "reason": reason, "who": who, "key": key, "schema_id": schema}
    what: dict[str, Any] = {"unchanged": unchanged}
    if text is not None:
        what["text"] = _text(text)
    if raw is not None:
        what["value"] = base64.b64encode(_bytes(raw)).decode()
    base = service_address(server, config)
    found = send_post(base, "/v1/resubmissions", "change", said | what)
    found = _wait_for_end(base, found["id"]) if wait else found
    _say(json.dumps(found) if as_json else escape_line(_became(found)))
    if found["ended"] and found["batch"] is None:
        sys.exit(REFUSED)


def _bytes(path: Path) -> bytes:
    if str(path) == "-":
        return sys.stdin.buffer.read()
    return path.read_bytes()


def _text(path: Path) -> str:
    """Decode strictly, because a replaced character would land."""
    try:
        return _bytes(path).decode()
    except UnicodeDecodeError as error:
        msg = f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8, or use --bytes"
        raise ConfigError(msg) from None


def _wait_for_end(base: str, id_: str) -> dict[str, Any]:
    while True:
        found = get_mapping(base, f"/v1/resubmissions/{id_}", "change")
        if found["ended"]:
            return found
        time.sleep(PACE)


def _say(text: str) -> None:
    """Print *text* without control characters, because a message may contain any bytes."""
    shown = (x if x.isprintable() or x in "\n\t" else ascii(x)[1:-1] for x in text)
    say_lines("".join(shown))


def _write(out: Path, found: Mapping[str, Any]) -> None:
    """Write for editing: JSON with a line per field, other text, or raw bytes."""
    text, size = found["text"], found["letters"] if found["text"] else found["bytes"]
    if size > WHOLE:
        raise ConfigError(
            f"{found['id']} is too long to write out: {size}, at most {WHOLE}; resend it as it is"
        )
    try:
        out.write_bytes(_laid_out(text) if text else base64.b64decode(found["value"]))
    except OSError as error:
        raise ConfigError(
            f"cannot write {out}: {error.strerror}; set another file with --out"
        ) from error
    kind = "text" if text else "bytes"
    again = f"sluice quarantine resend {quote(found['id'])} --{kind} {quote(str(out))}"
    say(f"{out} written; correct it, then run: {again}")


def _laid_out(text: str) -> bytes:
    """Return formatted JSON; values stay as sent, so no digit of a number is lost."""
    try:
        return msgspec.json.format(text.encode(), indent=1)
    except (ValueError, RecursionError):
        return text.encode()


def _line(one: Mapping[str, Any]) -> str:
    of = one["table"] or one["shard"] or "an unknown table"
    why = one["why"] if len(one["why"]) <= SHORT else one["why"][:SHORT] + "..."
    size = f"{one['bytes']} bytes" if one["bytes"] else "bytes not kept"
    head = f"{one['id']}: {one['state']}, of {of}, {size}, landed {one['received']}"
    made = one["correction"]
    lines = [head, why] if made is None else [head, why, _became(made)]
    return "\n  ".join(map(escape_line, lines))


def _became(made: Mapping[str, Any]) -> str:
    by = f"by {made['who']} at {made['at']}: {made['reason']}"
    if made["batch"] is not None:
        return f"corrected {by}; it landed in batch {made['batch']}"
    if made["ended"]:
        return f"a correction {by} was refused: {made['why']}"
    return f"corrected {by}; it has not landed yet" + (f": {made['why']}" if made["why"] else "")


def _book(one: Mapping[str, Any]) -> str:
    sums = f"{one['read']} changes read = {one['main']} in the mirror + {one['error']} here"
    return f"{one['table']}: {sums}" + (f"; {one['lost']} ARE IN NEITHER" if one["lost"] else "")


COMMAND = quarantine
