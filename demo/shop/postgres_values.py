"""Creates values of a shop on Postgres: ordinary ones, and sometimes one at an edge of its type.

It avoids values that Debezium itself sends wrongly: timestamps of the old calendar, and arrays
stored apart.
"""

import math
import random
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from demo.shop import values
from demo.shop.values import Row, day, decimal, double, edgy, json_text, maybe, moment, text

LARGE = 0.4
"""How often a text or bytes column gets a value too large to be stored in the row."""

MOMENTS = tuple(map(datetime.fromisoformat, ("1583-01-01", "9999-12-31T23:59:59.999999")))
DOUBLES = (1.7976931348623157e308, math.nan, math.inf, -0.1, 1e-7)
SPANS = (
    *("-1 year -2 mons +3 days -04:05:06.789", "0", "178 years", "00:00:00.000001"),
    "1 mon -1 day +00:00:01",
)
EXACT = ("NaN", "0.000", "-1e-30", "1e40", "123456789012345678901234567890.123456789")
HOSTS = ("10.0.0.1", "::1", "192.168.0.0/16", "2001:db8::/32")


def user(rng: random.Random, number: int) -> Row:
    """Return a user with an email that no other transaction uses."""
    return values.user(rng, number) | {
        "name": maybe(rng, _text),
        "about": maybe(rng, _long_text),
        "active": _flag(rng),
        "joined": _moment(rng, 3),
    }


def order(rng: random.Random, number: int) -> Row:
    """Return an order; *number* is the same in all its tables."""
    return values.order(rng, number) | {
        "placed": _moment(rng, 6),
        "note": maybe(rng, _text),
    }


def item(rng: random.Random, number: int) -> Row:
    """Return an item of an order; the caller sets its key."""
    return values.item(rng, number) | {
        "quantity": 32767 if edgy(rng) else rng.randint(1, 9),
        "gift": _flag(rng),
        "remark": maybe(rng, _long_text),
    }


def payment(rng: random.Random, number: int) -> Row:
    """Return a payment: one column of nearly every type."""
    return {
        "order_number": number,
        "amount": decimal(rng, 12, 4),
        "rate": maybe(rng, lambda rng: decimal(rng, 38, 10)),
        "exact": maybe(rng, lambda rng: rng.choice(EXACT) if edgy(rng) else decimal(rng, 50, 9)),
        "paid": maybe(rng, lambda rng: _moment(rng, 6)),
        "booked": maybe(rng, lambda rng: _moment(rng, 0)),
        "settled": maybe(rng, lambda rng: _moment(rng, 6).replace(tzinfo=UTC)),
        "detail": maybe(rng, _json),
        "sent": maybe(rng, _json),
        "method": maybe(rng, lambda rng: rng.choice(("card", "wire", "cash on delivery"))),
        "marks": maybe(rng, lambda rng: [_text(rng) for _ in range(rng.randint(0, 3))]),
        "approved": maybe(rng, _flag),
        "mask": maybe(rng, lambda rng: f"{rng.choice((0, 1, 255, 256, 511)):09b}"),
        "receipt": maybe(rng, _bytes),
        "reference": maybe(rng, lambda rng: f"{rng.getrandbits(128):032x}"),
        "memo": maybe(rng, _long_text),
        "open_for": maybe(rng, lambda rng: rng.choice(SPANS)),
        "opens": maybe(rng, lambda rng: str(timedelta(seconds=rng.randint(0, 86_399)))),
        "due": maybe(rng, day),
        "host": maybe(rng, lambda rng: rng.choice(HOSTS)),
        "span": maybe(rng, lambda rng: f"[{rng.randint(-9, 9)},{rng.randint(9, 99)}]"),
        "attempts": rng.randint(0, 9),
        "score": maybe(rng, lambda rng: double(rng, DOUBLES)),
        "ratio": maybe(rng, lambda rng: float(Decimal(f"{rng.uniform(-1e6, 1e6):.6g}"))),
    }


MAKERS = {
    "shop.users": user,
    "shop.orders": order,
    "shop.order_items": item,
    "shop.payments": payment,
}


def _text(rng: random.Random) -> str:
    return text(rng)[:80]


def _long_text(rng: random.Random) -> str:
    """Return a text; a large one begins like the placeholder of an unchanged value."""
    if rng.random() >= LARGE:
        return text(rng)
    return f"__debezium_unavailable {text(rng)} {rng.getrandbits(20_000):x}"


def _bytes(rng: random.Random) -> bytes:
    return rng.randbytes(rng.choice((2_500, 6_000)) if rng.random() < LARGE else rng.randint(0, 40))


def _flag(rng: random.Random) -> bool:
    return rng.random() < 0.5


def _moment(rng: random.Random, digits: int) -> datetime:
    return moment(rng, digits, MOMENTS)


def _json(rng: random.Random) -> str:
    return json_text(rng, _text)
