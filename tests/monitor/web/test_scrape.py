"""The registry gives what the fast text gives, and what a service says of itself."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from monitor.board import Board, CurrentBoard
from monitor.web.metrics import METRICS, BoardCollector, Scrape, encode_metrics
from tests.monitor.boards import ALL_WELL, MIXED, MUTE, NOW, SOURCE_DOWN
from tests.monitor.rig import USERS, Rig

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
