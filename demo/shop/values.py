"""Creates values of the shop's rows: ordinary ones, and sometimes one at the edge of its type."""

import json
import random
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TypeVar

T = TypeVar("T")
Row = dict[str, object]

EDGE = 0.06
"""How often a value is taken from the edges of its type."""

NULL = 0.08
"""How often a nullable value is NULL."""

ODD = 0.3
"""How often a text or JSON value is one that faulty code handles wrongly."""

TEXTS = (
    "",
    " spaces around ",
    'it\'s "quoted" and \\back\\slashed\\',
    "percent % underscore _ semicolon ; -- comment",
    "tab\tnewline\ncarriage\rreturn",
    "emoji \U0001f6d2\U0001f469\u200d\U0001f680 and \u6f22\u5b57 \u0416 \u05d0",
    "e\u0301 is not \u00e9",
    '{"looks": "like json"}',
    "NULL",
    "\\N",
    "1970-01-01",
)
FIRST = datetime.fromisoformat("2020-01-01")
MOMENTS = tuple(map(datetime.fromisoformat, ("1000-01-01", "9999-12-31T23:59:59.999999")))
INSTANTS = tuple(map(datetime.fromisoformat, ("1970-01-01T00:00:01", "2038-01-19T03:14:07.999")))
DOUBLES = (1.7976931348623157e308, 2.2250738585072014e-308, -0.1, 1e-7)
JSONS: tuple[object, ...] = (
    None,
    True,
    [],
    {},
    'text with "quotes" and \U0001f4b3',
    {"deep": {"list": [1, 2.5, None, True, "\u00fc"]}, "big": 9007199254740993, "": 0},
    [0.1, -0.0000001, 123456789.125, -1],
)


def user(rng: random.Random, number: int) -> Row:
    """Return a user with an email that no other transaction uses."""
    return {
        "email": f"user.{number}.{rng.getrandbits(32):08x}@shop.example",
        "name": maybe(rng, text),
        "about": maybe(rng, text),
        "points": rng.choice((-(2**31), 2**31 - 1)) if edgy(rng) else rng.randint(-50, 5000),
        "born": maybe(rng, day),
        "active": rng.randint(0, 1),
        "joined": moment(rng, 3),
    }


def order(rng: random.Random, number: int) -> Row:
    """Return an order; *number* is the same in all its tables."""
    return {
        "number": number,
        "user_id": maybe(rng, lambda rng: rng.randint(1, 10_000)),
        "state": rng.choice(("new", "paid", "sent", "closed", "cancelled")),
        "total": decimal(rng, 12, 2),
        "placed": moment(rng, 6),
        "note": maybe(rng, text),
    }


def item(rng: random.Random, number: int) -> Row:
    """Return an item of an order; the caller sets its key."""
    return {
        "sku": f"sku-{(number * 7 + rng.randint(0, 999)) % 100_000:05}",
        "quantity": 65535 if edgy(rng) else rng.randint(1, 9),
        "price": decimal(rng, 12, 4),
        "gift": rng.randint(0, 1),
    }


def payment(rng: random.Random, number: int) -> Row:
    """Return a payment: one column of nearly every type."""
    return {
        "order_number": number,
        "amount": decimal(rng, 12, 4),
        "rate": maybe(rng, lambda rng: decimal(rng, 38, 10)),
        "paid": maybe(rng, lambda rng: moment(rng, 6)),
        "booked": maybe(rng, lambda rng: moment(rng, 0)),
        "created": maybe(rng, lambda rng: _instant(rng, 0)),
        "settled": maybe(rng, lambda rng: _instant(rng, 3)),
        "detail": maybe(rng, json_text),
        "method": maybe(rng, lambda rng: rng.choice(("card", "wire", "cash on delivery"))),
        "marks": maybe(rng, lambda rng: rng.choice(("", "fraud", "manual,test", "refund"))),
        "approved": maybe(rng, lambda rng: rng.randint(0, 1)),
        "mask": maybe(rng, lambda rng: rng.choice((0, 1, 255, 256, 511))),
        "receipt": maybe(rng, lambda rng: rng.randbytes(rng.randint(0, 40))),
        "digest": maybe(rng, lambda rng: rng.randbytes(rng.choice((0, 1, 31, 32)))),
        "reference": maybe(rng, _unsigned),
        "memo": maybe(rng, text),
        "open_for": maybe(rng, _span),
        "due": maybe(rng, day),
        "vintage": maybe(rng, lambda rng: rng.randint(1901, 2155)),
        "attempts": rng.randint(0, 9),
        "score": maybe(rng, double),
        "ratio": maybe(
            rng, lambda rng: float(f"{rng.uniform(-1e6, 1e6):.6g}")
        ),  # see docs/types.md
    }


MAKERS = {
    "shop.users": user,
    "shop.orders": order,
    "shop.order_items": item,
    "shop.payments": payment,
}


def text(rng: random.Random) -> str:
    """Return a short text, sometimes with characters that faulty code handles wrongly."""
    return rng.choice(TEXTS) if rng.random() < ODD else f"plain words {rng.getrandbits(40):x}"


def day(rng: random.Random) -> date:
    """Return a date; at the edges, the first and the last that MySQL supports."""
    if edgy(rng):
        return rng.choice((date(1000, 1, 1), date(9999, 12, 31), date(2024, 2, 29)))
    return date(1960, 1, 1) + timedelta(days=rng.randint(0, 30_000))


def moment(rng: random.Random, digits: int, edges: Sequence[datetime] = MOMENTS) -> datetime:
    """Return a wall-clock time with *digits* of fraction."""
    if edgy(rng):
        return _cut(rng.choice(edges), digits)
    return _cut(FIRST + timedelta(microseconds=rng.randrange(2 * 10**14)), digits)


def _instant(rng: random.Random, digits: int) -> datetime:
    """Return an instant that a TIMESTAMP can have; naive, for a session in UTC."""
    if edgy(rng):
        return _cut(rng.choice(INSTANTS), digits)
    return _cut(FIRST + timedelta(microseconds=rng.randrange(10**14)), digits)


def _cut(moment: datetime, digits: int) -> datetime:
    """Cut the fraction to *digits*, because MySQL would round it up otherwise."""
    unit = 10 ** (6 - digits)
    return moment.replace(microsecond=moment.microsecond // unit * unit)


def decimal(rng: random.Random, digits: int, scale: int) -> str:
    """Return a DECIMAL(*digits*, *scale*) in plain digits; at the edges, all nines."""
    unscaled = 10**digits - 1 if edgy(rng) else rng.randrange(10 ** rng.randint(1, digits))
    sign = rng.choice(("-", ""))
    return f"{Decimal(f'{sign}{unscaled}E-{scale}'):f}"


def _unsigned(rng: random.Random) -> int:
    """Return an unsigned 64-bit number; often one that does not fit a signed one."""
    return rng.choice((0, 2**63 - 1, 2**63, 2**64 - 1, rng.getrandbits(64)))


def _span(rng: random.Random) -> str:
    """Return a TIME as text: signed, up to 838:59:59."""
    limit = 838 * 3600 + 59 * 60 + 59
    seconds = limit if edgy(rng) else rng.randint(0, limit)
    return f"{rng.choice(('-', ''))}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def double(rng: random.Random, edges: Sequence[float] = DOUBLES) -> float:
    """Return a DOUBLE; at the edges, the largest and the smallest."""
    if edgy(rng):
        return rng.choice(edges)
    return rng.gauss(0, 1000)


def json_text(rng: random.Random, text: Callable[[random.Random], str] = text) -> str:
    """Return a JSON text; a database may keep its meaning, but not its spelling."""
    if rng.random() < ODD:
        return json.dumps(rng.choice(JSONS))
    return json.dumps({"zip": rng.randint(0, 99_999), "ok": rng.random() < ODD, "who": text(rng)})


def maybe(rng: random.Random, value: Callable[[random.Random], T]) -> T | None:
    """Return the value, or sometimes NULL."""
    return None if rng.random() < NULL else value(rng)


def edgy(rng: random.Random) -> bool:
    """Decide whether this value is taken from the edge."""
    return rng.random() < EDGE
