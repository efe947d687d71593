"""What Prometheus scrapes is the board, no more and no less."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from checks.blocks import StateSince, TableState
from checks.model import Outcome, Ruling, Verdict, Verified
from monitor.board import BackfillView, Board, CopyView, CurrentBoard
from monitor.observe.system_checks import IMAGE
from monitor.web.metrics import METRICS, BoardCollector, Scrape, encode_metrics
from pipeline.image import Image
from pipeline.lags.lag import HopLag
from pipeline.model import Hop, Stage
from pipeline.reports import SPARK_WORK
from tests.monitor.boards import ALL_WELL, CUT, LOST, MIXED, MUTE, NOW, SOURCE_DOWN, incident
from tests.monitor.rig import USERS, Rig

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
LATER = NOW + timedelta(minutes=3)


@dataclass(eq=False)
class Told:
    """A collector of one family."""

    family: Family

    def collect(self) -> Iterator[Family]:
        """That one."""
        yield self.family


def _scrape(shown: Board, now: datetime = NOW) -> tuple[set[str], Samples]:
    text = encode_metrics(shown, now).decode()
    families = list(text_string_to_metric_families(text))
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }
    for family in families:
        assert family.documentation
    return set(text_names(text)), samples


def text_names(text: str) -> list[str]:
    return [line.split()[2] for line in text.splitlines() if line.startswith("# HELP")]


def _value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, tuple(sorted(labels.items()))))


@pytest.mark.parametrize("shown", [Board(), MIXED], ids=["before the first round", "in use"])
def test_the_families_are_those_of_the_list(shown: Board) -> None:
    names, _ = _scrape(shown)

    assert names == {metric.name for metric in METRICS}


def test_spark_jobs_are_told_by_their_work() -> None:
    _, samples = _scrape(ALL_WELL)
    names = ("jobs", "tasks", "rows", "seconds")

    told = [_value(samples, f"sluice_spark_{name}_total", work="land") for name in names]

    assert told == [3, 12, 300_000, 9.5]


def test_spark_jobs_are_counted_from_zero() -> None:
    _, samples = _scrape(Board())

    told = [_value(samples, "sluice_spark_jobs_total", work=work) for work in SPARK_WORK]

    assert told == [0, 0]


def _by_the_library(shown: Board, now: datetime) -> str:
    families = list[str]()
    for metric in METRICS:
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family = kind(metric.name, metric.help, labels=metric.labels)
        for labels, value in metric.rows(shown, now):
            family.add_metric(labels, value)
        own = CollectorRegistry()
        own.register(Told(family))
        families.append(generate_latest(own).decode())
    return "".join(families)


@pytest.mark.parametrize("name", ["shop.users", 'a"b', "a\\b", "a\nb", "\\n", "%s", "größe", "{}"])
def test_the_text_says_what_the_library_would_write(name: str) -> None:
    views = tuple(replace(one, table=replace(one.table, name=name)) for one in MIXED.tables)
    shown = replace(MIXED, tables=views)

    text = encode_metrics(shown, NOW).decode()

    ours, theirs = (
        list(text_string_to_metric_families(one)) for one in (text, _by_the_library(shown, NOW))
    )
    assert ours == theirs
    assert name in {s.labels.get("table") for family in ours for s in family.samples}


def test_every_listed_metric_has_a_sample_with_its_labels() -> None:
    again = BackfillView("shop.users", "read again", 7, NOW, 1.0, 9.0, ("lag",))
    gone = StateSince("shop.old", TableState.RETIRED, NOW)
    shown = replace(MIXED, incidents=(incident(),), backfills=(again,), retired=(gone,))
    shown = replace(shown, ledger={("shop.users", "merge"): 1})
    image = Image(CUT, 4, 12, (), {}, NOW, NOW + timedelta(days=7), rows=7)
    missing = Verdict("shop.users", IMAGE, Ruling(Outcome.FAIL, "it is not there"), NOW)
    first, *others = shown.tables
    hop = HopLag(Hop.COPY, timedelta(seconds=3), NOW, timedelta())
    copy = CopyView("cache", hop, first.day[Stage.MIRROR])
    first = replace(first, images=(image,), verdicts=(*first.verdicts, missing), copies=(copy,))
    first = replace(first, budget=timedelta(minutes=5), verified=Verified(NOW, NOW, 4))
    shown = replace(shown, tables=(first, *others))

    _, samples = _scrape(shown, NOW + timedelta(seconds=20))

    for metric in METRICS:
        labels = [set(dict(key[1])) for key in samples if key[0] == metric.name]
        assert labels, metric.name
        assert all(one == set(metric.labels) for one in labels)


def test_the_rows_that_were_compared_are_told_by_age_and_by_change() -> None:
    oldest, through = NOW - timedelta(days=3), NOW - timedelta(minutes=1)
    all_, some, none = (
        replace(view, verified=verified)
        for view, verified in zip(
            MIXED.tables,
            (Verified(through, oldest, 4), Verified(None, None, 4), None),
            strict=False,
        )
    )
    shown = replace(MIXED, tables=(all_, some, none))

    _, samples = _scrape(shown)

    age, until = "sluice_verified_age_seconds", "sluice_verified_through_timestamp_seconds"
    told = {name: value for (name, _), value in samples.items() if name in {age, until}}
    assert told == {age: 3 * 86_400.0, until: through.timestamp()}
    assert not {age, until} & {name for name, _ in _scrape(shown, LATER)[1]}


def test_an_unknown_lag_is_absent_and_never_zero() -> None:
    _, samples = _scrape(MIXED)

    name = "sluice_hop_lag_seconds"
    assert _value(samples, name, table="shop.payments", hop="collection") is None
    assert _value(samples, name, table="shop.users", hop="collection") == 1.2


def test_f46_the_state_that_holds_is_1_and_ready_is_always_told() -> None:
    _, samples = _scrape(MIXED)

    states = {
        dict(labels)["state"]: value
        for (name, labels), value in samples.items()
        if name == "sluice_readiness"
        and dict(labels)["table"] == "shop.orders"
        and dict(labels)["stage"] == "mirror"
    }
    assert states == {"ready": 0.0, "not_ready": 1.0}


def test_f46_checks_that_pass_are_counted_and_not_listed() -> None:
    _, samples = _scrape(MIXED)

    listed = {
        (dict(labels)["table"], dict(labels)["check"], dict(labels)["outcome"])
        for name, labels in samples
        if name == "sluice_check_outcome"
    }
    assert {outcome for _, _, outcome in listed} == {"fail", "unknown"}
    assert _value(samples, "sluice_checks", check="range_counts", outcome="pass") == 3.0
    assert _value(samples, "sluice_checks", check="range_counts", outcome="fail") == 1.0


def test_f46_a_table_that_is_well_has_few_series() -> None:
    _, samples = _scrape(ALL_WELL)

    own = [labels for _, labels in samples if ("table", "shop.users") in labels]
    assert len(own) <= 12


def test_a_board_that_has_grown_old_is_unknown_and_its_lags_are_gone() -> None:
    _, samples = _scrape(MIXED, LATER)

    ready = {"table": "shop.users", "stage": "mirror"}
    assert _value(samples, "sluice_readiness", **ready, state="ready") == 0.0
    assert _value(samples, "sluice_readiness", **ready, state="unknown") == 1.0
    assert not any(name == "sluice_hop_lag_seconds" for name, _ in samples)
    age = _value(samples, "sluice_hop_sample_age_seconds", table="shop.users", hop="merge")
    assert age == 181.0


def test_f37_a_board_that_has_grown_old_claims_nothing() -> None:
    _, samples = _scrape(MIXED, LATER)

    assert not any(name == "sluice_watermark_timestamp_seconds" for name, _ in samples)
    assert not any(name == "sluice_check_value" for name, _ in samples)
    counted = [dict(labels) for name, labels in samples if name == "sluice_checks"]
    assert counted
    assert "pass" not in {one["outcome"] for one in counted}
    lost = {"table": LOST.table.name, "check": "range_counts", "outcome": "fail"}
    assert _value(samples, "sluice_check_outcome", **lost) == 1.0
    why = {"table": "shop.users", "stage": "mirror", "code": "stale"}
    assert _value(samples, "sluice_not_ready_reason", **why) == 1.0


def test_counters_are_those_of_the_store() -> None:
    _, samples = _scrape(MIXED)

    assert _value(samples, "sluice_changes_total", table="shop.users", term="applied") == 118.0
    assert _value(samples, "sluice_ticks_total", task="watch", result="missed") == 2.0
    assert _value(samples, "sluice_last_success_timestamp_seconds", task="watch") == NOW.timestamp()


def test_alerts_that_do_not_arrive_are_counted_by_channel() -> None:
    _, samples = _scrape(MUTE)

    letters = "sluice_channel_letters"
    assert _value(samples, letters, channel="slack", state="waiting") == 4.0
    assert _value(samples, letters, channel="slack", state="dead") == 2.0
    assert _value(samples, "sluice_channel_failures", channel="slack") == 3.0


Sample = tuple[str, tuple[tuple[str, str], ...], float]


def parsed(text: bytes) -> Iterator[tuple[str, str, str, frozenset[Sample]]]:
    for family in text_string_to_metric_families(text.decode()):
        samples = frozenset(
            (one.name, tuple(sorted(one.labels.items())), one.value) for one in family.samples
        )
        yield family.name, family.type, family.documentation, samples


@pytest.mark.parametrize("shown", [Board(), ALL_WELL, MIXED, MUTE, SOURCE_DOWN])
def test_the_registry_and_the_fast_text_say_the_same(shown: Board) -> None:
    registry = CollectorRegistry()
    registry.register(BoardCollector(lambda: shown, lambda: NOW))

    library, fast = generate_latest(registry), encode_metrics(shown, NOW)

    assert set(parsed(library)) == set(parsed(fast))
    assert len(set(parsed(fast))) == len(METRICS)


def test_a_service_tells_its_build_its_process_and_its_gate(rig: Rig) -> None:
    rig.round()
    rig.round()
    assert rig.client.get("/v1/gate", params={"table": USERS}).status_code in {200, 404}
    text = rig.client.get("/metrics").text

    samples = {
        (one.name, *sorted(one.labels)): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }
    assert samples["sluice_build_info", "python", "version"] == 1
    assert samples["sluice_gate_latency_seconds_count",] == 1
    assert samples["sluice_store_size_bytes",] > 0
    assert ("process_resident_memory_bytes",) in samples
    assert [key for key in samples if key[0] == "python_info"]
    assert not [key for key in samples if key[0].endswith("_created")]


def test_names_are_registered_once() -> None:
    scrape = Scrape(CurrentBoard(), lambda: NOW)

    with pytest.raises(ValueError, match="Duplicated"):
        scrape.registry.register(BoardCollector(Board, lambda: NOW))


@pytest.mark.long
def test_5000_tables_are_written_faster_than_by_the_library(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (view,) = ALL_WELL.tables
    named = (replace(view.table, name=f"shop.table_{number:05}") for number in range(5000))
    shown = replace(ALL_WELL, tables=tuple(replace(view, table=table) for table in named))
    registry = CollectorRegistry()
    registry.register(BoardCollector(lambda: shown, lambda: NOW))

    began = time.perf_counter()
    fast = encode_metrics(shown, NOW)
    between = time.perf_counter()
    library = generate_latest(registry)
    ended = time.perf_counter()

    with capsys.disabled():
        print(  # noqa: T201
            f"{len(fast) / 1e6:.1f} MB: fast {between - began:.2f} s,"
            f" library {ended - between:.2f} s, {len(library) / 1e6:.1f} MB"
        )
    assert between - began < ended - between
