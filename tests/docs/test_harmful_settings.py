"""The reference page of harmful settings has the rows that the doctor and the service go by.

To write its tables anew: ``python -m tests.docs.test_harmful_settings``.
"""

from collections.abc import Iterable
from pathlib import Path

from pipeline.collectors.connect.converters import NULLS_KEPT
from pipeline.collectors.connect.demands import DEMANDS, PRESENT
from pipeline.collectors.connect.mysql import ConnectedMySql
from pipeline.collectors.connect.postgres import ConnectedPostgres
from pipeline.collectors.connect.producer_findings import DEMANDS as PRODUCER
from pipeline.collectors.connect.producer_findings import OVER
from pipeline.finding import Demand, Effect
from pipeline.sources.mysql.server_findings import DEMANDS as SERVER
from pipeline.sources.postgres.table_findings import DEMANDS as TABLES
from pipeline.topics.settings import DEMANDS as TOPICS

PAGE = Path("docs/harmful_settings.md")
HEAD = ("| setting | must be | else it | why |", "|---|---|---|---|")
LISTS: dict[str, Iterable[Demand]] = {
    "connectors": (*DEMANDS, *PRESENT),
    "converters": NULLS_KEPT.values(),
    "producer": PRODUCER,
    "mysql": ConnectedMySql.demands,
    "postgres": ConnectedPostgres.demands,
    "server": SERVER,
    "postgres tables": TABLES,
    "topics": TOPICS,
}


def table(name: str) -> str:
    """The rows of one list between the marks that the page has for it."""
    rows = [
        f"| `{OVER if name == 'producer' else ''}{one.name}` | {_needed(one)}"
        f" | {one.effect} | {one.why} |"
        for one in LISTS[name]
        if one.effect is not Effect.NONE
    ]
    return "\n".join((f"<!-- {name} -->", *HEAD, *rows, f"<!-- end {name} -->"))


def _needed(one: Demand) -> str:
    if one.good:
        text = " or ".join(f"`{value}`" for value in one.good)
        return text + (f" (default: `{one.default}`)" if one.default not in (None, "") else "")
    return "not " + ", ".join(f"`{value}`" for value in one.bad) if one.bad else "absent"


def written(text: str) -> str:
    """*text* of the page with its tables written anew."""
    for name in LISTS:
        before, _, rest = text.partition(f"<!-- {name} -->")
        _, _, after = rest.partition(f"<!-- end {name} -->")
        text = before + table(name) + after
    return text


def test_f102_the_page_has_the_rows_of_the_lists() -> None:
    text = PAGE.read_text(encoding="utf-8")

    assert written(text) == text, "run python -m tests.docs.test_harmful_settings"
    assert text.count("drops") > 10


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
