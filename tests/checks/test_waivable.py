import re
from pathlib import Path

import pytest

from checks.blocks import is_closed_for_good, told_of, waivable
from monitor.observe.system_checks import given_up_id
from pipeline.apply.foreign_commits import waiver_id
from pipeline.checkpoint import Quarantine

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "waive.md"
NUMBERS = re.compile("PARTITION|FIRST|BATCH|OFFSET|VERSION|EPOCH|NUMBER|SINCE|RESIDUAL")


def told() -> list[str]:
    """The ids in the table of `docs/guides/waive.md`."""
    text = GUIDE.read_text(encoding="utf-8").partition("\n| what | id |\n")[2]
    rows = text.partition("\n\n")[0].splitlines()[1:]
    return [form for row in rows for form in re.findall("`([^`]+)`", row.split(" | ")[1])]


@pytest.mark.parametrize("form", told())
def test_every_id_that_the_guide_names_can_be_waived(form: str) -> None:
    assert waivable(NUMBERS.sub("7", form).replace("DIGEST", "0123abcd"))


@pytest.mark.parametrize(  # without numbers TOPIC:... has the form of CHECK:TABLE:KEY
    "form", [form for form in told() if NUMBERS.search(form) and not form.startswith("TOPIC")]
)
def test_an_id_copied_from_the_guide_without_its_numbers_is_none(form: str) -> None:
    assert not waivable(form)


@pytest.mark.parametrize(
    "id_",
    [
        *Quarantine(None, 9, 7, ("shop.shop.users:0:1042@8",)).names("topic:shop.shop.users"),
        "my-shop.shop.users:0:1042@8",  # topics may have names that no table has
        "account:0:1042@8",
        "invalid:shop.users:5-9@5f3a90c1",
        waiver_id("shop.users", 0),
        given_up_id("slack", 3),
        "schema:shop.users@1774785600",
        "unbalanced:shop.users@-3",
        told_of("unproven:shop.users", "a cascade"),
        "no_base:shop/shop.users@0",
        "no_base:shop/shop.users@1.7.5.0",
        "range_counts:shop.users:1..100",
        "our.probes.sums:shop.users:a\nb",
    ],
)
def test_what_the_product_names_can_be_waived(id_: str) -> None:
    assert waivable(id_)


@pytest.mark.parametrize(
    "id_",
    [
        *("schema:shop.users", "unbalanced:shop.users", "unproven:shop.users"),
        *(
            "no_base:shop/shop.users",
            "unproven:shop.users@x",
            "nonsense",
            "shop.users",
            "schema:",
            ":shop.users",
            "two words:shop.users",
        ),
        *("shop.shop.users:0:1042", "no_base:shop.users", "snapshot:shop/shop.users"),
        *("foreign_write:shop.users", "foreign_write:shop.users:-1", "account:shop.users"),
        *("rules:shop.users@4", "dead_letters:slack", "disorder:shop:shop.shop.users:0:1"),
        *("invalid:shop.users:5-9", "invalid:shop.users:5-9@mirror"),
    ],
)
def test_what_nothing_is_named_cannot(id_: str) -> None:
    assert not waivable(id_)


CLOSED = (
    "TOPIC:",
    "rules:",
    "lists:",
    "log:",
    "again:",
    "outdated:",
    "torn:",
    "unkept:",
    "hidden:",
    "snapshot:",
)


@pytest.mark.parametrize("form", [one for one in told() if one.startswith((*CLOSED, "disorder:"))])
def test_f103_what_landing_closes_is_closed_for_good(form: str) -> None:
    assert is_closed_for_good(NUMBERS.sub("7", form))


@pytest.mark.parametrize(
    "form", [one for one in told() if not one.startswith((*CLOSED, "disorder:"))]
)
def test_f103_what_is_judged_in_each_round_is_not_closed_for_good(form: str) -> None:
    assert not is_closed_for_good(NUMBERS.sub("7", form).replace("DIGEST", "0123abcd"))
