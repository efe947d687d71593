"""The reference page of harmful settings has the rows that the doctor and the service go by.

To write its tables anew: ``python -m tests.docs.test_harmful_settings``.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from pipeline.collectors.collector import CollectionScope
from pipeline.collectors.connect.config import required_config
from pipeline.collectors.connect.findings import (
    OVER,
    connector_findings,
    find_config_hazards,
    producer_findings,
)
from pipeline.collectors.connect.findings import PRODUCER_DEMANDS as PRODUCER
from pipeline.collectors.connect.mysql import ConnectedMySql
from pipeline.collectors.connect.postgres import ConnectedPostgres
from pipeline.collectors.connect.requirements import DEMANDS, NULLS_KEPT, PRESENT
from pipeline.finding import Demand, Effect
from pipeline.settings import CollectorSettings, KafkaSecurity, SourceSettings
from pipeline.sources.mysql.doctor import DEMANDS as SERVER
from pipeline.sources.postgres.doctor import TABLE_DEMANDS as TABLES
from pipeline.transports.topics import DEMANDS as TOPICS
from tests.pipeline.landing import harmful_settings as set_

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


def settings_table(name: str) -> str:
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


def with_tables(text: str) -> str:
    """*text* of the page with its tables written anew."""
    for name in LISTS:
        before, _, rest = text.partition(f"<!-- {name} -->")
        _, _, after = rest.partition(f"<!-- end {name} -->")
        text = before + settings_table(name) + after
    return text


def test_f102_the_page_has_the_rows_of_the_lists() -> None:
    text = PAGE.read_text(encoding="utf-8")

    assert with_tables(text) == text, "run python -m tests.docs.test_harmful_settings"
    assert text.count("drops") > 10


def test_f102_each_setting_of_the_page_is_set_on_a_real_server_or_told_why_not() -> None:
    listed = {one.name for some in LISTS.values() for one in some if one.effect is not Effect.NONE}
    more = {"transforms", set_.IN_FLIGHT, "gtid.source.includes", "gtid.source.excludes"}
    walked = (set_.CONNECTOR, set_.SERVER, set_.POSTGRES, set_.POSTGRES_TABLES, set_.TOPIC)
    names = {name for some in walked for name in some}

    assert (names | set_.UNSET.keys()) >= listed | more
    assert not names & set_.UNSET.keys()
    assert names - listed == more, "only what the page tells in words is on no list"


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        *(pytest.param("mysql", own, id=f"mysql {name}") for name, own in set_.CONNECTOR.items()),
        *(pytest.param("postgres", own, id=f"postgres {n}") for n, own in set_.POSTGRES.items()),
    ],
)
def test_f102_doctor_service_and_connector_go_by_one_list(
    kind: str, settings: Mapping[str, str]
) -> None:
    collector = CollectorSettings("http://connect", "walked")
    options = {"database": "walked"} if kind == "postgres" else {}
    source = SourceSettings("walked", "db", 1, "u", collector, "walked", kind=kind, options=options)
    good = required_config(CollectionScope(source, "kafka:9092", KafkaSecurity(), ()), {})
    bad = {**good, **settings}
    service = find_config_hazards(bad, "here")
    findings = connector_findings(bad, "here", source=source, worker=None)
    doctor = [*findings, *producer_findings(bad, "here", None)]

    assert find_config_hazards(good, "here") == (), "sluice connector sets none of them"
    assert service
    assert {*service} <= {*doctor}


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
