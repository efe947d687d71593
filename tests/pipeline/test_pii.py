from random import Random
from time import process_time

import pytest

from bench.plaintext import Case, card, corpus, identity, mobile
from pipeline import pii
from pipeline.pii import IDENTITIES, binomial_tail, find_kinds

CORPUS = [case for seed in (1, 2) for case in corpus(seed)]


def kinds(values: list[str]) -> set[str]:
    return {one.kind for one in find_kinds(values, ("cn.ric", "iban"), ("CN",))}


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_of_a_corpus_each_column_is_told_as_what_it_is(case: Case) -> None:
    assert kinds(case.values) == case.kinds


def test_one_card_proves_nothing_and_ten_do() -> None:
    rng = Random(1)
    cards = [card(rng) for _ in range(10)]

    assert kinds(cards[:9]) == set()
    assert kinds(cards) == {"card"}


def test_a_card_told_often_is_one_card() -> None:
    assert kinds([card(Random(1))] * 500) == set()


def test_how_many_values_hold_it_is_told_and_none_of_them() -> None:
    rng = Random(1)
    values = [identity(rng) for _ in range(40)] + ["none"] * 60

    (found,) = find_kinds(values, ("cn.ric",), ())

    assert found.values == 40
    assert not any(value in str(found) for value in values if value != "none")


def test_numbers_of_a_region_that_nobody_named_are_no_phones() -> None:
    rng = Random(1)

    assert find_kinds([mobile(rng) for _ in range(300)], (), ()) == []


ACCOUNTS = """GB82WEST12345698765432 DE89370400440532013000 FR1420041010050500013M02606
NL91ABNA0417164300 ES9121000418450200051332"""
PAYERS = "390.533.447-05 111.444.777-35 529.982.247-25 39053344705 935.411.347-80"


@pytest.mark.parametrize(("name", "values"), [("iban", ACCOUNTS), ("br.cpf", PAYERS)])
def test_identity_numbers_of_other_countries(name: str, values: str) -> None:
    assert [one.kind for one in find_kinds(values.split(), (name,), ())] == [f"identity {name}"]


@pytest.mark.parametrize("name", IDENTITIES)
def test_what_is_no_number_of_a_country_is_none(name: str) -> None:
    odd = [
        "",
        "x" * 5000,
        "0" * 18,
        "000000000000000000",
        "٣٣٣٣٣٣٣٣٣٣٣",
        "1\0" * 9,
        "\ud800",
        "\uff11" * 11,
    ]

    assert find_kinds(odd, (name,), ("CN", "US")) == []


def test_the_tail_of_a_binomial() -> None:
    assert binomial_tail(3, 3, 0.1) == pytest.approx(1e-3)
    assert binomial_tail(2, 1, 0.5) == pytest.approx(0.75)
    assert binomial_tail(5000, 500, 0.1) == pytest.approx(0.5, abs=0.02)


def test_a_key_of_each_maker() -> None:
    keys = [
        "-----BEGIN " + "RSA PRIVATE KEY-----",
        "AK" + "IAIOSFODNN7EXAMPLE",
        "gh" + "p_" + "a1B2" * 9,
        "xo" + "xb-" + "123456789012-abc",
        "sk_" + "live_" + "a" * 24,
    ]

    (found,) = find_kinds([f"x {one} y" for one in keys], (), ())

    assert (found.kind, found.values) == ("secret key", 5)


def test_a_token_of_the_web_is_a_key() -> None:
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.dozjgNryP4J3jVmNHl0w5N"

    assert kinds([f"Bearer {token}"]) == {"secret key"}


@pytest.mark.parametrize("text", ["-eyJ" * 50_000, "-eyJ" * 25_000 + "." + "-eyJ" * 25_000])
def test_beginnings_of_a_key_without_end_are_read_once(text: str) -> None:
    began = process_time()

    assert kinds([text]) == set()
    assert process_time() - began < 5  # minutes, where each beginning was read to the end


def test_of_one_value_a_few_phone_numbers_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[str]()
    monkeypatch.setattr(pii, "_reachable", tried.append)
    value = " ".join(f"+1 {number}" for number in range(1_000_000, 1_000_900))

    assert pii.find_kinds([value], [], []) == []
    assert len(tried) == pii.TRIED


def test_numbers_that_begin_like_no_country_hide_no_phone_number() -> None:
    value = f"{'+0 0000000 ' * 60}+43 1 5337570"

    assert [one.kind for one in pii.find_kinds([value], [], [])] == ["phone"]


def test_of_one_value_a_few_national_numbers_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = list[str]()
    monkeypatch.setattr(pii, "_is_mobile", lambda text, _: tried.append(text))
    value = ";".join(str(number) for number in range(10_000_000, 10_000_900))

    assert pii.find_kinds([value], [], ["CN"]) == []
    assert len(tried) == pii.TRIED
