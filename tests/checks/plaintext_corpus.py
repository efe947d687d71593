"""Columns of which somebody knows what they hold: made values, of no person and no account."""

import json
import string
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

from stdnum import luhn
from stdnum.cn import ric

WORDS = ("late", "parcel", "left", "at", "the", "door", "ring", "twice", "no", "answer", "paid")
ROWS = 300
RARE = 0.05  # of the rows of a column of free text


@dataclass(frozen=True, slots=True)
class Case:
    """A column's values, and the kinds that they hold."""

    name: str
    values: list[str]
    kinds: frozenset[str] = frozenset()


def digits(rng: Random, count: int) -> str:
    return "".join(rng.choices(string.digits, k=count))


def email(rng: Random) -> str:
    name = "".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 12)))
    return f"{name}.{rng.randint(1, 99)}@{rng.choice(('example.com', 'mail.example.co.uk'))}"


def card(rng: Random) -> str:
    start, length = rng.choice((("4", 16), ("55", 16), ("37", 15), ("6222", 19), ("6011", 16)))
    body = start + digits(rng, length - len(start) - 1)
    return body + luhn.calc_check_digit(body)


def grouped(rng: Random) -> str:
    number = card(rng)
    return rng.choice(" -").join(number[at : at + 4] for at in range(0, len(number), 4))


def identity(rng: Random) -> str:
    born = datetime(1950, 1, 1, tzinfo=UTC) + timedelta(days=rng.randrange(20_000))
    body = f"{rng.choice(('110105', '310101', '440305'))}{born:%Y%m%d}{digits(rng, 3)}"
    return body + str(ric.calc_check_digit(body + "0"))


def mobile(rng: Random) -> str:
    return rng.choice(("138", "139", "150", "159", "186", "188", "177")) + digits(rng, 8)


def abroad(rng: Random) -> str:
    return f"+44 20 7946 0{digits(rng, 3)}"


def secret(rng: Random) -> str:
    return "AKIA" + "".join(rng.choices(string.ascii_uppercase + string.digits, k=16))


def note(rng: Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(2, 9)))


def rarely(made: Callable[[Random], str]) -> Callable[[Random], str]:
    """Free text that holds one now and then."""

    def text(rng: Random) -> str:
        told = f", {made(rng)}, {note(rng)}" if rng.random() < RARE else ""
        return note(rng) + told

    return text


def inside(made: Callable[[Random], str]) -> Callable[[Random], str]:
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
    """One column of each kind."""
    rng = Random(seed)
    held = [
        Case(name, [made(rng) for _ in range(ROWS)], frozenset({kind}))
        for name, (made, kind) in HELD.items()
    ]
    return held + [Case(name, [made(rng) for _ in range(ROWS)]) for name, made in HARMLESS.items()]
