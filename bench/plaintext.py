"""Creates columns with known contents, and measures how well personal data is found in them.

    python -m bench.plaintext --rows 100000

Values are generated; they belong to no person and no account. Each kind is planted at three rates
in a column of notes, and in one whose values look alike. The invariant `plaintext` scans each
column as one slice. Precision is by row: the share of planted rows among the reported ones. Only
the CPU time of this process counts.
"""

import json
import string
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

import click
import numpy as np
import pyarrow as pa
from stdnum import luhn
from stdnum.cn import ric

from pipeline.pii import find_rows, list_detectors

WORDS = ("late", "parcel", "left", "at", "the", "door", "ring", "twice", "no", "answer", "paid")
ROWS = 300
RARE = 0.05  # share of the rows of a column of free text


@dataclass(frozen=True, slots=True)
class Case:
    """A column's values, and the kinds that they contain."""

    name: str
    values: list[str]
    kinds: frozenset[str] = frozenset()


def digits(rng: Random, count: int) -> str:
    """Return random digits."""
    return "".join(rng.choices(string.digits, k=count))


def email(rng: Random) -> str:
    """Return an e-mail address."""
    name = "".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 12)))
    return f"{name}.{rng.randint(1, 99)}@{rng.choice(('example.com', 'mail.example.co.uk'))}"


def card(rng: Random) -> str:
    """Return a card number with a valid check digit."""
    start, length = rng.choice((("4", 16), ("55", 16), ("37", 15), ("6222", 19), ("6011", 16)))
    body = start + digits(rng, length - len(start) - 1)
    return body + luhn.calc_check_digit(body)


def grouped(rng: Random) -> str:
    """Return a card number in groups of four digits."""
    number = card(rng)
    return rng.choice(" -").join(number[at : at + 4] for at in range(0, len(number), 4))


def identity(rng: Random) -> str:
    """Return a valid identity number."""
    born = datetime(1950, 1, 1, tzinfo=UTC) + timedelta(days=rng.randrange(20_000))
    body = f"{rng.choice(('110105', '310101', '440305'))}{born:%Y%m%d}{digits(rng, 3)}"
    return body + str(ric.calc_check_digit(body + "0"))


def mobile(rng: Random) -> str:
    """Return a mobile number without a country code."""
    return rng.choice(("138", "139", "150", "159", "186", "188", "177")) + digits(rng, 8)


def abroad(rng: Random) -> str:
    """Return a phone number with its country code."""
    return f"+44 20 7946 0{digits(rng, 3)}"


def secret(rng: Random) -> str:
    """Return a key in Amazon's form."""
    return "AKIA" + "".join(rng.choices(string.ascii_uppercase + string.digits, k=16))


def note(rng: Random) -> str:
    """Return some words."""
    return " ".join(rng.choices(WORDS, k=rng.randint(2, 9)))


def rarely(made: Callable[[Random], str]) -> Callable[[Random], str]:
    """Return a maker of free text that sometimes contains a value."""

    def text(rng: Random) -> str:
        told = f", {made(rng)}, {note(rng)}" if rng.random() < RARE else ""
        return note(rng) + told

    return text


def inside(made: Callable[[Random], str]) -> Callable[[Random], str]:
    """Return a maker of JSON that contains a value."""
    return lambda rng: json.dumps({"at": note(rng), "to": {"who": made(rng)}})


HELD: dict[str, tuple[Callable[[Random], str], str]] = {
    "e-mail": (email, "e-mail"),
    "e-mail in notes": (rarely(email), "e-mail"),
    "e-mail in JSON": (inside(email), "e-mail"),
    "card": (card, "card"),
    "card in groups": (grouped, "card"),
    "card in notes": (rarely(card), "card"),
    "card in JSON": (inside(card), "card"),
    "identity": (identity, "identity cn.ric"),
    "identity in notes": (rarely(identity), "identity cn.ric"),
    "mobile": (mobile, "phone"),
    "mobile in notes": (rarely(mobile), "phone"),
    "phone abroad": (abroad, "phone"),
    "phone abroad in notes": (rarely(abroad), "phone"),
    "key in notes": (rarely(secret), "secret key"),
}


def _instant(rng: Random) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=rng.randrange(30_000_000))


HARMLESS: dict[str, Callable[[Random], str]] = {
    "orders of 16 digits": lambda rng: digits(rng, 16),
    "orders that begin like a card": lambda rng: "4" + digits(rng, 15),
    "orders of 18 digits": lambda rng: str(rng.randint(10**17, 10**18 - 1)),
    "orders with a date": lambda rng: f"110105{_instant(rng):%Y%m%d}{digits(rng, 4)}",
    "numbers of eleven": lambda rng: digits(rng, 11),
    "counter like a phone": lambda rng: str(13_800_000_000 + rng.randrange(1_000_000)),
    "milliseconds": lambda rng: str(int(_instant(rng).timestamp() * 1000)),
    "instants": lambda rng: f"{_instant(rng):%Y-%m-%d %H:%M:%S}",
    "days": lambda rng: f"{_instant(rng):%Y%m%d}",
    "UUIDs": lambda rng: str(UUID(int=rng.getrandbits(128))),
    "hashes": lambda rng: rng.randbytes(32).hex(),
    "masked e-mail": lambda rng: f"{email(rng)[0]}***@example.com",
    "masked cards": lambda rng: f"{card(rng)[:4]} **** **** {digits(rng, 4)}",
    "masked phones": lambda rng: f"{mobile(rng)[:3]}****{digits(rng, 4)}",
    "amounts": lambda rng: f"{rng.randrange(10**6)}.{digits(rng, 2)}",
    "notes": note,
    "addresses of hosts": lambda rng: ".".join(str(rng.randrange(256)) for _ in range(4)),
    "places": lambda rng: f"{rng.uniform(-90, 90):.6f},{rng.uniform(-180, 180):.6f}",
    "IMEI": lambda rng: "35" + digits(rng, 13),
    "EAN": lambda rng: "69" + digits(rng, 11),
    "versions": lambda rng: f"sluice@{rng.randrange(9)}.{rng.randrange(99)}.{rng.randrange(99)}",
    "links": lambda rng: f"https://example.com/items/{digits(rng, 11)}?page={rng.randrange(9)}",
    "mentions": lambda rng: f"@{rng.choice(WORDS)} {note(rng)}",
    "tracking": lambda rng: f"SF{digits(rng, 13)}",
    "words": lambda rng: rng.choice(WORDS),
}


def corpus(seed: int) -> list[Case]:
    """Return one column of each kind."""
    rng = Random(seed)
    held = [
        Case(name, [made(rng) for _ in range(ROWS)], frozenset({kind}))
        for name, (made, kind) in HELD.items()
    ]
    return held + [Case(name, [made(rng) for _ in range(ROWS)]) for name, made in HARMLESS.items()]


RATES = (0.0001, 0.001, 0.01)
DETECTORS = list_detectors(("cn.ric", "iban"), ("CN",))
PLANTED: dict[str, tuple[Callable[[Random], str], str]] = {
    "card": (card, "orders that begin like a card"),
    "card in groups": (grouped, "orders of 16 digits"),
    "e-mail": (email, "masked e-mail"),
    "identity": (identity, "orders with a date"),
    "mobile": (mobile, "numbers of eleven"),
    "phone abroad": (abroad, "masked phones"),
    "key": (secret, "hashes"),
}
WIDE = ("notes", "UUIDs", "hashes", "orders of 16 digits", "instants", "links", "words", "amounts")


@dataclass(frozen=True, slots=True)
class Quality:
    """How many rows contain a kind, how many are reported, and how many are both."""

    planted: int
    reported: int
    right: int

    @property
    def text(self) -> str:
        """Return recall and precision; no precision if nothing is reported."""
        precision = f"{self.right / self.reported:.2f}" if self.reported else "-"
        return f"{self.right / self.planted:.2f} / {precision}"


def measure_quality(
    make: Callable[[Random], str], among: Callable[[Random], str], rows: int, rate: float, seed: int
) -> Quality:
    """Plant values of *make* in a share of a column's *rows*, within a note or alone; measure."""
    rng = Random(seed)
    planted = np.zeros(rows, np.bool_)
    planted[rng.sample(range(rows), max(1, round(rows * rate)))] = True
    in_notes = among is note
    values = [
        (f"{note(rng)}, {make(rng)}, {note(rng)}" if in_notes else make(rng)) if one else among(rng)
        for one in planted
    ]
    reported = np.zeros(rows, np.bool_)
    for found in find_rows(pa.array(values), DETECTORS):
        reported |= found.rows
    return Quality(int(planted.sum()), int(reported.sum()), int((planted & reported).sum()))


@click.command()
@click.option("--rows", default=100_000, show_default=True)
@click.option("--seeds", default=3, show_default=True)
def main(rows: int, seeds: int) -> None:
    """Print recall and precision by kind and rate, and the CPU seconds of a slice."""
    click.echo("| planted | among | " + " | ".join(f"{one:.2%}" for one in RATES) + " |")
    click.echo("|---|---|" + "---|" * len(RATES))
    for name, (make, like) in PLANTED.items():
        for among, other in (("notes", note), (like, HARMLESS[like])):
            cells = []
            for rate in RATES:
                each = [measure_quality(make, other, rows, rate, seed) for seed in range(seeds)]
                total = Quality(
                    sum(one.planted for one in each),
                    sum(one.reported for one in each),
                    sum(one.right for one in each),
                )
                cells.append(total.text)
            click.echo(f"| {name} | {among} | {' | '.join(cells)} |")
    rng = Random(1)
    wide = [pa.array([HARMLESS[name](rng) for _ in range(rows)]) for name in WIDE]
    began = time.process_time()
    reported = [name for name, one in zip(WIDE, wide, strict=True) if find_rows(one, DETECTORS)]
    took = time.process_time() - began
    click.echo(f"{rows} rows of {len(WIDE)} harmless columns: {took:.2f} s of CPU")
    click.echo(f"of these columns reported: {', '.join(reported) or 'none'}")
    full = pa.array([email(rng) for _ in range(rows)])
    began = time.process_time()
    find_rows(full, DETECTORS)
    click.echo(f"{rows} e-mail addresses: {time.process_time() - began:.2f} s of CPU")


if __name__ == "__main__":
    main()
