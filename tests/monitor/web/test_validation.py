"""The page of a table's expectations: what was looked at, what was found, and nothing of others."""

import re
from typing import Any

import pytest

from checks.model import Outcome, Ruling, Verdict
from checks.validation import CHANGES, MEMORY, WHOLE, ValidationResult, bound_results
from pipeline.suites import ExpectationResult, ExpectationSettings
from tests.monitor.rig import ORDERS, USERS, Rig

HOSTILE = "<script>alert('sluice')</script>\"><img src=x onerror=alert(1)>{{ 7 * 7 }}"
IN_SET = "expect_column_values_to_be_in_set"
KEYS = ("shop/shop.orders:17", "shop/shop.orders:18")


def kept(rig: Rig, *results: ExpectationResult, after: int | None = None, **kwargs: Any) -> None:
    """Keep a look at ORDERS as the check does."""
    suite = [ExpectationSettings(IN_SET, {"column": "state", **kwargs})] * len(results)
    look = ValidationResult(rig.now, after, 40, 812, *bound_results(suite, results))
    memory = (rig.store.memory.recall(ORDERS, MEMORY) or {"kept": {}})["kept"]
    memory = {**memory, WHOLE if after is None else CHANGES: look.dumps()}
    stamp = {"kept": memory, "batch": 812, "life": None}
    rig.store.memory.remember(ORDERS, MEMORY, stamp, rig.now)


def page(rig: Rig, table: str = ORDERS) -> str:
    answer = rig.client.get("/expectations", params={"table": table})
    assert answer.status_code == 200, answer.text
    return answer.text


def cells(text: str) -> list[list[str]]:
    """Cells of each line without their tags."""
    lines = re.findall(r"<tr class.*?</tr>", text, re.DOTALL)
    return [
        [re.sub(r"<.*?>", "", cell).strip() for cell in re.findall(r"<td.*?>(.*?)</td>", line)]
        for line in lines
    ]


@pytest.fixture
def looked(rig: Rig) -> Rig:
    rig.round()
    return rig


def test_each_expectation_has_its_outcome_counts_and_keys(looked: Rig) -> None:
    results = (
        ExpectationResult("x", True, rows=40),
        ExpectationResult("x", False, unexpected=9, keys=KEYS, rows=40),
        ExpectationResult("x", False, "info", unexpected=1, keys=KEYS[:1], rows=40),
        ExpectationResult("x(state): no such column", None),
        ExpectationResult("x", True, observed="17.5"),
    )
    kept(looked, *results, value_set=["new"])

    text = page(looked)

    own = [IN_SET, "state", "{&#34;value_set&#34;: [&#34;new&#34;]}"]
    assert cells(text) == [
        ["\N{CHECK MARK} met", *own, "0 of 40", "", ""],
        ["\N{MULTIPLICATION X} not met", *own, "9 of 40", "", f"{', '.join(KEYS)}, and 7 more"],
        ["! not met info", *own, "1 of 40", "", KEYS[0]],
        ["? not evaluated", *own, "", "", "no such column"],
        ["\N{CHECK MARK} met", *own, "", "17.5", ""],
    ]
    assert "2 of 5 expectations are not met, 1 is not evaluated." in text


@pytest.mark.parametrize(
    ("outcomes", "says"),
    [
        pytest.param((True,) * 4, "All 4 expectations are met.", id="all are met"),
        pytest.param((True,), "The only expectation is met.", id="the only one is met"),
        pytest.param((False, True), "1 of 2 expectations is not met.", id="one is not"),
        pytest.param((False, False), "2 of 2 expectations are not met.", id="none is met"),
        pytest.param((None, True), "1 of 2 expectations is not evaluated.", id="one is unknown"),
    ],
)
def test_one_sentence_says_whether_expectations_are_met(
    looked: Rig, outcomes: tuple[bool | None, ...], says: str
) -> None:
    kept(looked, *[ExpectationResult("x", met) for met in outcomes])

    assert f"after batch 812. {says}</p>" in page(looked)


def test_it_says_when_and_at_which_rows_each_look_was_newest_first(looked: Rig) -> None:
    kept(looked, ExpectationResult("x", True))
    whole = looked.now.strftime("%Y-%m-%d %H:%M:%S UTC")
    looked.round()
    kept(looked, ExpectationResult("x", True), after=811)

    text = page(looked)

    titles = re.findall(r"<h2>(.*?)</h2>", text)
    assert titles == ["40 rows changed after batch 811", "All 40 rows"]
    assert f"Looked at {whole}, as the mirror was after batch 812." in text


def test_hostile_texts_of_a_suite_and_of_keys_are_escaped(looked: Rig) -> None:
    suite = [
        ExpectationSettings(HOSTILE, {"column": HOSTILE, "notes": HOSTILE, "meta": {"x": HOSTILE}})
    ]
    found = ExpectationResult("x", False, unexpected=1, keys=(HOSTILE,), observed=HOSTILE)
    shown = bound_results(suite, [found])
    look = ValidationResult(looked.now, None, 1, 1, *shown)
    stamp = {"kept": {WHOLE: look.dumps()}, "batch": 1, "life": None}
    looked.store.memory.remember(ORDERS, MEMORY, stamp, looked.now)
    ruling = Ruling(Outcome.FAIL, HOSTILE, "not_met")
    looked.recorder.tell([Verdict(ORDERS, "expectations", ruling, looked.clock())])

    text = page(looked)

    assert HOSTILE not in text
    assert "<script" not in text
    assert "<img" not in text
    assert text.count("&lt;script&gt;") >= 5


def test_without_a_result_it_says_what_is_not_known(looked: Rig) -> None:
    ruling = Ruling(Outcome.UNKNOWN, "no such suite", "broken")
    looked.recorder.tell([Verdict(ORDERS, "expectations", ruling, looked.clock())])

    text = page(looked)

    assert "No validation result is known" in text
    assert "Newest verdict: unknown, no such suite" in text
    assert re.search(r"\(since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC\)", text)
    assert "Newest verdict" not in page(looked, USERS)


def test_it_shows_the_last_result_although_only_changes_are_stored(looked: Rig) -> None:
    began = looked.clock()
    for reason in ("not met: 3 rows", "not met: 5 rows"):
        ruling = Ruling(Outcome.FAIL, reason, "not_met", ("a",))
        told = [Verdict(ORDERS, "expectations", ruling, looked.clock())]
        looked.recorder.tell(told, kept=looked.recorder.changed(told))
        looked.second(60)

    text = page(looked)

    assert "Newest verdict: fail, not met: 5 rows" in text
    assert f"(since {began:%Y-%m-%d %H:%M:%S} UTC)" in text


def test_a_verdict_that_passes_shows_no_count_of_an_earlier_look(looked: Rig) -> None:
    """It stands since the first look that passed, and the looks below it say their own rows."""
    ruling = Ruling(Outcome.PASS, "6 expectations met by all 199 rows")
    looked.recorder.tell([Verdict(ORDERS, "expectations", ruling, looked.clock())])

    text = page(looked)

    assert "Newest verdict: pass <span" in text
    assert "199" not in text


def test_where_unmet_expectations_are_left_out_it_names_no_total(looked: Rig) -> None:
    kept(looked, *[ExpectationResult("x", False)] * 201)
    assert "At least 200 of 201 expectations are not met. 1 more is not shown" in page(looked)

    kept(looked, *[ExpectationResult("x", n > 2) for n in range(201)])
    assert " 3 of 201 expectations are not met. 1 more" in page(looked)
    assert "At least" not in page(looked)

    kept(looked, *[ExpectationResult("x", None)] * 202)
    text = page(looked)
    assert "At least 200 of 202 expectations are not evaluated. 2 more are not shown" in text


def test_a_result_of_another_shape_is_none(looked: Rig) -> None:
    stamp = {"kept": {WHOLE: {"x": 1}}, "batch": 1, "life": None}
    looked.store.memory.remember(ORDERS, MEMORY, stamp, looked.now)

    assert "No validation result is known" in page(looked)


def test_an_unknown_table_is_refused(looked: Rig) -> None:
    assert looked.client.get("/expectations", params={"table": "shop.order"}).status_code == 404


def test_the_page_loads_nothing_from_elsewhere(looked: Rig) -> None:
    kept(looked, ExpectationResult("x", True))

    text = page(looked)

    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", text)
    assert "@import" not in text


def test_the_status_page_links_to_it_where_expectations_were_evaluated(looked: Rig) -> None:
    ruling = Ruling(Outcome.PASS, "4 expectations met")
    looked.recorder.tell([Verdict(ORDERS, "expectations", ruling, looked.clock())])
    looked.round()

    text = looked.client.get("/").text

    assert f'href="expectations?table={ORDERS}"' in text
    assert f'href="expectations?table={USERS}"' not in text
