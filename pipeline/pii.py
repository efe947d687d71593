"""Finds personal and secret data in the text values of a column, by form and check digits.

One random number in ten passes the check digit of a card, so one match proves nothing and ten do.
Identity numbers and cards are reported only if chance cannot explain the matches.

The detectors are used in two ways: `find_kinds` checks all values of a sample, and `find_rows`
those rows of an Arrow column that a regular expression selects. A finding holds the kind and the
number of values, or rows, never a value.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from math import exp, lgamma, log, log1p

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from phonenumbers import (
    SUPPORTED_REGIONS,
    NumberParseException,
    PhoneNumberType,
    is_valid_number,
    number_type,
    parse,
)
from stdnum import iban, luhn
from stdnum.br import cpf
from stdnum.cn import ric
from stdnum.es import dni
from stdnum.exceptions import ValidationError
from stdnum.fr import nir
from stdnum.in_ import aadhaar
from stdnum.it import codicefiscale
from stdnum.kr import rrn
from stdnum.pl import pesel
from stdnum.se import personnummer

from pipeline.errors import ConfigError

SURE = 1e-9  # highest likelihood that the matches are chance
BY_CHANCE = 2.0  # above each likelihood: every valid value counts
SPREAD = 5  # prefixes of three digits; a counter that runs through phone numbers has fewer
TRIES = 2000
TRIED = 50  # numbers of a value that may be a phone's: 70 us each; those behind them are not found
LONGEST = 10_000  # characters of a value: some milliseconds, for any characters
GOLDEN = 0x9E3779B97F4A7C15  # its multiples are evenly spread, for any divisor

_CARD = re.compile(r"(?<![\w.])[2-6](?:[ -]?\d){12,18}(?![\w.]?\d)")
_ISSUERS = re.compile(
    r"4\d{12}(?:\d{3})?(?:\d{3})?|5[1-5]\d{14}|2(?:2[2-9]|[3-6]\d|7[01])\d{13}|3[47]\d{13}"
    r"|35\d{14}|36\d{12}|6(?:011|5\d\d)\d{12}|62\d{14,17}"
)
"""Lengths by the first digits that card networks publish.

Visa, Mastercard, Amex, JCB, Diners, Discover, UnionPay.
"""
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+%-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z]{2,24}(?![\w-])")
_INTERNATIONAL = re.compile(r"(?<![\w+])\+[1-9][\d ()-]{6,18}\d(?!\w)")
_NATIONAL = re.compile(r"(?<![\w.,:/=+-])\d(?:[ -]?\d){6,13}(?![\w/=]|[.,:-]\d)")
_MOBILE = (PhoneNumberType.MOBILE, PhoneNumberType.FIXED_LINE_OR_MOBILE)
_SECRETS = re.compile(
    r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bgh[pousr]_[A-Za-z0-9]{36}\b"
    r"|\bxox[abprs]-[0-9A-Za-z-]{10,}"
    r"|\bAIza[0-9A-Za-z_-]{35}\b"
    r"|\b[rs]k_live_[0-9A-Za-z]{16,}"
    r"|(?<![\w-])eyJ[\w-]{10,}+\.eyJ[\w-]{10,}+\.[\w-]{10,}"
)
"""Prefixes by which makers of keys identify them.

PEM (RFC 7468), Amazon, GitHub, Slack, Google, Stripe; JSON web tokens (RFC 7519).
"""
KEY_SIGNS = "PRIVATE KEY-----|AKIA|ASIA|gh[pousr]_|xox[abprs]-|AIza|[rs]k_live_|eyJ"


@dataclass(frozen=True, slots=True)
class IdentityForm:
    """A country's number for people: its form, validity, and the likelihood of a random match."""

    form: re.Pattern[str]
    valid: Callable[[str], bool]
    chance: float
    text: str = ""


def _resident(text: str) -> bool:
    """Check date and check digit only; the county codes of each time are not known well enough."""
    try:
        ric.get_birth_date(text)
    except ValidationError:
        return False
    return bool(ric.calc_check_digit(text) == text[-1].upper())


def _identity(form: str, valid: Callable[[str], bool], one_of: int) -> IdentityForm:
    return IdentityForm(re.compile(rf"(?<!\w){form}(?!\w)"), valid, 1 / one_of, form)


IDENTITIES = {
    "br.cpf": _identity(r"\d{3}\.?\d{3}\.?\d{3}-?\d{2}", cpf.is_valid, 100),
    "cn.ric": _identity(r"[1-9]\d{16}[\dXx]", _resident, 11),
    "es.dni": _identity(r"\d{8}[A-Za-z]", dni.is_valid, 23),
    "fr.nir": _identity(r"[1-478]\d{4}[\dAB]\d{9}", nir.is_valid, 97),
    "iban": _identity(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}", iban.is_valid, 97),
    "in_.aadhaar": _identity(r"[2-9]\d{3} ?\d{4} ?\d{4}", aadhaar.is_valid, 10),
    "it.codicefiscale": _identity(r"[A-Z]{6}[\dA-Z]{9}[A-Z]", codicefiscale.is_valid, 26),
    "kr.rrn": _identity(r"\d{6}-?\d{7}", rrn.is_valid, 10),
    "pl.pesel": _identity(r"\d{11}", pesel.is_valid, 10),
    "se.personnummer": _identity(r"(?:\d{2})?\d{6}[-+]\d{4}", personnummer.is_valid, 10),
}
"""By the name of the number in python-stdnum."""


@dataclass(frozen=True, slots=True)
class KindHeld:
    """How many of a column's values hold a *kind*: ``identity``, ``card``, ``phone``, ..."""

    kind: str
    values: int


def require_regions(regions: Iterable[str]) -> None:
    """Reject regions without a known numbering plan: no number would ever be found.

    Raises:
        ConfigError: with the region.
    """
    for one in regions:
        if one not in SUPPORTED_REGIONS:
            raise ConfigError(f"regions: {one!r} is unknown; write a code of ISO 3166, such as CN")


@dataclass(frozen=True, slots=True, eq=False)
class RowsHeld:
    """Rows of a column that hold a *kind*."""

    kind: str
    rows: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Detector:
    """Detects one *kind*.

    ``form`` is an RE2 regular expression that each value with the kind contains. ``find`` takes
    different values and the accepted likelihood of chance; it returns which of them hold the kind.
    If there are more than ``most`` values, only that many are checked, evenly spread; more of them
    would prove nothing else.
    """

    kind: str
    form: str
    find: Callable[[Sequence[str], float], list[bool]]
    most: int | None = TRIES
    single: Callable[[str], bool] | None = None
    """Whether one text may hold the kind, if ``find`` needs many."""


def list_detectors(identities: Iterable[str], regions: Iterable[str]) -> tuple[Detector, ...]:
    """Return all detectors, in the order of the module; arguments as in `find_kinds`."""
    known = tuple(regions)
    national = Detector(
        "phone",
        r"\d(?:[ -]?\d){6,13}",
        partial(_national_phones, known),
        single=partial(_has_mobile, known),
    )
    return (
        *(
            Detector(f"identity {name}", IDENTITIES[name].text, partial(_identities, name))
            for name in identities
        ),
        Detector("card", r"[2-6](?:[ -]?\d){12}", _cards),
        Detector("e-mail", r"@(?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z]{2}", partial(_found, _EMAIL), None),
        Detector("phone", r"\+\d[\d ()-]{6,18}\d", _international_phones, None),
        *((national,) if known else ()),
        Detector("secret key", KEY_SIGNS, partial(_found, _SECRETS), None),
    )


def find_kinds(
    values: Sequence[str], identities: Iterable[str], regions: Iterable[str]
) -> list[KindHeld]:
    """Return every kind that *values* of one column certainly hold, in the order of the module.

    *identities* are keys of :data:`IDENTITIES`; *regions* those whose phone numbers are written
    without a country (``CN``, as ISO 3166 has it).
    """
    distinct = sorted({one[:LONGEST] for one in values})
    found = dict[str, npt.NDArray[np.bool_]]()
    for one in list_detectors(identities, regions):
        held = np.array(one.find(distinct, SURE), np.bool_)
        found[one.kind] = held | found.get(one.kind, False)
    return [KindHeld(kind, int(held.sum())) for kind, held in found.items() if held.any()]


def find_rows(
    column: pa.Array, detectors: Iterable[Detector], chance: float = SURE
) -> list[RowsHeld]:
    """Return every kind that a *column* of texts holds, with its rows; of a long column some rows.

    Kinds with a check digit count only if the likelihood of so many by chance is below *chance*.
    """
    found = dict[str, npt.NDArray[np.bool_]]()
    for one in detectors:
        selected = pc.fill_null(pc.match_substring_regex(column, one.form), False)
        places = np.flatnonzero(selected.to_numpy(zero_copy_only=False))
        if not len(places):
            continue
        texts = pc.utf8_slice_codeunits(column.take(pa.array(places)), 0, LONGEST)
        coded = texts.dictionary_encode()
        distinct = coded.dictionary.to_pylist()
        looked = np.arange(0, len(distinct), max(1, len(distinct) // (one.most or len(distinct))))
        held = np.zeros(len(distinct), np.bool_)
        held[looked] = one.find([distinct[at] for at in looked], chance)
        if held.any():
            rows = np.zeros(len(column), np.bool_)
            rows[places] = held[coded.indices.to_numpy()]
            found[one.kind] = rows | found.get(one.kind, False)
    return [RowsHeld(kind, rows) for kind, rows in found.items()]


def has_any(column: pa.Array, detectors: Iterable[Detector]) -> bool:
    """Whether one text of a *column* has a form of *detectors* and is valid, also by chance."""
    texts = [one[:LONGEST] for one in column.unique().to_pylist() if one is not None]
    return any(_may_be(one, texts) for one in detectors)


def _may_be(detector: Detector, texts: Sequence[str]) -> bool:
    if detector.single is not None:
        return any(map(detector.single, texts))
    return any(detector.find(texts, BY_CHANCE))


def _found(form: re.Pattern[str], values: Sequence[str], _: float) -> list[bool]:
    return [form.search(one) is not None for one in values]


def _identities(name: str, values: Sequence[str], sure: float) -> list[bool]:
    one = IDENTITIES[name]
    return _beyond_chance(values, one.form, one.valid, one.chance, sure=sure)


def _cards(values: Sequence[str], sure: float) -> list[bool]:
    def valid(text: str) -> bool:
        return bool(luhn.is_valid(re.sub(r"\D", "", text)))

    return _beyond_chance(values, _CARD, valid, 1 / 10, sure=sure, alike=_issued)


def _issued(text: str) -> bool:
    return _ISSUERS.fullmatch(re.sub(r"\D", "", text)) is not None


def _beyond_chance(
    values: Sequence[str],
    form: re.Pattern[str],
    valid: Callable[[str], bool],
    chance: float,
    *,
    sure: float,
    alike: Callable[[str], bool] = bool,
) -> list[bool]:
    """Which values hold a valid number; none if chance can explain that many of those *alike*."""
    candidates = [list(filter(alike, form.findall(one))) for one in values]
    held = [any(map(valid, numbers)) for numbers in candidates]
    good, asked = sum(held), sum(map(len, candidates))
    is_sure = good > 0 and binomial_tail(asked, good, chance) < sure
    return held if is_sure else [False] * len(held)


def binomial_tail(tries: int, hits: int, chance: float) -> float:
    """P(X >= *hits*) for X binomial with *tries* and *chance*, which is below 1."""
    return sum(exp(_log_term(tries, one, chance)) for one in range(hits, tries + 1))


def _log_term(tries: int, hits: int, chance: float) -> float:
    ways = lgamma(tries + 1) - lgamma(hits + 1) - lgamma(tries - hits + 1)
    return ways + hits * log(chance) + (tries - hits) * log1p(-chance)


def _international_phones(values: Sequence[str], _: float) -> list[bool]:
    """Which values contain an international phone number; the first few candidates are tried."""
    return [any(map(_reachable, _candidates(_INTERNATIONAL, one))) for one in values]


def _candidates(form: re.Pattern[str], value: str) -> Iterator[str]:
    """Yield the first ``TRIED`` texts in *value* that may be phone numbers by their *form*."""
    return (one.group() for one in islice(form.finditer(value), TRIED))


def _national_phones(regions: Sequence[str], values: Sequence[str], sure: float) -> list[bool]:
    """Which values contain a mobile number of *regions*, without a country."""
    return [any(one) for one in zip(*(_mobiles(values, at, sure) for at in regions), strict=True)]


def _reachable(text: str, region: str | None = None) -> bool:
    """Whether a phone may have that number: its length and prefix are in use."""
    try:
        return is_valid_number(parse(text, region))
    except NumberParseException:
        return False


def _mobiles(values: Sequence[str], region: str, sure: float) -> list[bool]:
    """Find mobile numbers, which have no check digit: many must match, with several prefixes.

    The share that matches by chance is found by trying. A counter that runs through such numbers
    has few prefixes.
    """
    numbers = {number for one in values for number in _candidates(_NATIONAL, one)}
    good = {one for one in numbers if _is_mobile(one, region)}
    if len({one[:3] for one in good}) < SPREAD:
        return [False] * len(values)
    chance = max(_likely(len(re.sub(r"\D", "", one)), region) for one in good)
    return _beyond_chance(values, _NATIONAL, good.__contains__, chance, sure=sure)


def _is_mobile(text: str, region: str) -> bool:
    try:
        number = parse(text, region)
    except NumberParseException:
        return False
    return is_valid_number(number) and number_type(number) in _MOBILE


def _has_mobile(regions: Sequence[str], text: str) -> bool:
    return any(_is_mobile(one, at) for one in _candidates(_NATIONAL, text) for at in regions)


@lru_cache
def _likely(length: int, region: str) -> float:
    """The share of mobile numbers of *region* among evenly spread numbers of *length* digits."""
    tried = (f"{at * GOLDEN % 10**length:0{length}}" for at in range(TRIES))
    return (1 + sum(_is_mobile(one, region) for one in tried)) / (TRIES + 1)
