"""What a config asks of a plug-in is refused by name, before anything runs."""

import re
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from types import ModuleType

import pyarrow as pa
import pytest

from pipeline.build import (
    every_topic,
    find_mistakes,
    open_collector,
    open_dialect,
    open_format,
    open_transport,
)
from pipeline.collectors.collector import CollectedStream
from pipeline.errors import ConfigError
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.formats.format import Schemas
from pipeline.settings import (
    CollectorSettings,
    KafkaSecurity,
    MirrorSettings,
    PipelineSettings,
    SourceSettings,
)
from pipeline.sources.mysql.dialect import MYSQL
from pipeline.sources.row_reader import read_replica
from pipeline.transports.kafka import KafkaTransport
from tests.pipeline.formats.plain_format import PlainFormat
from tests.toy.dialect import TOY
from tests.toy.format import ToyFormat


@dataclass(frozen=True, slots=True)
class Greedy(PlainFormat):
    """A format that asks for what no message has, unless its settings say otherwise."""

    columns: tuple[str, ...] = ("headers", "colour")

    def added_topics(self, prefix: str) -> tuple[str, ...]:
        """One beside all others."""
        return (f"of.{prefix}",)

    def decode(self, batch: pa.RecordBatch, schemas: Schemas) -> pa.RecordBatch:
        return batch


FORMAT = Greedy
SOURCE = SourceSettings(
    "shop", "h", 1, "u", collector=CollectorSettings("", ""), prefix="shop", format=__name__
)


PIPELINE = PipelineSettings("lake", "k:1", ())


def test_a_format_that_asks_for_a_column_no_message_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"shop: .* \['colour'\] .* known: headers, timestamp"):
        open_format(SOURCE)


def test_a_format_is_made_with_its_options() -> None:
    made = open_format(replace(SOURCE, format_options={"columns": ("headers",)}))

    assert made.columns == ("headers",)


def test_an_option_the_format_does_not_know_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"shop: format_options\.size: unknown key; known: columns"
    ):
        open_format(replace(SOURCE, format_options={"size": 3}))


@pytest.mark.parametrize(
    ("topic", "read"),
    [
        pytest.param("rows.users", True, id="rows"),
        pytest.param("shop", True, id="schema changes"),
        pytest.param("of.shop", True, id="what the format adds"),
        pytest.param("shop.users", False, id="another's rows"),
        pytest.param("of_shop", False, id="a dot is a dot"),
    ],
)
def test_every_topic_is_rows_schema_changes_and_what_the_format_adds(
    *, topic: str, read: bool
) -> None:
    source = replace(SOURCE, topics=r"rows\..+", format_options={"columns": ()})

    assert bool(re.fullmatch(every_topic(source), topic)) is read


def test_a_source_that_names_no_kind_and_no_format_has_those_of_its_collector() -> None:
    usual = replace(SOURCE, format="", collector=CollectorSettings("http://c", "shop"))
    toy = replace(usual, collector=CollectorSettings("", "", kind="tests.toy.collector"))

    assert (open_dialect(usual), type(open_format(usual))) == (MYSQL, DebeziumJson)
    assert (open_dialect(toy), type(open_format(toy))) == (TOY, ToyFormat)


def test_a_collector_that_is_not_there_is_told_once() -> None:
    source = replace(SOURCE, format="", collector=CollectorSettings("", "", kind="conect"))

    (told,) = find_mistakes(source, PIPELINE)

    assert told.startswith(
        "collector.kind: no collector 'conect' in pipeline/collectors; the nearest is connect;"
    )


def test_a_duration_among_the_options_of_a_collector_is_one() -> None:
    slow = CollectorSettings("http://c", "shop", options={"timeout": "PT9S"})

    with closing(open_collector(replace(SOURCE, collector=slow), PIPELINE)) as collector:
        assert getattr(collector, "timeout", None) == timedelta(seconds=9)


CANAL = replace(
    SOURCE,
    kind="mysql",
    format="canal_json",
    format_options={"zone": "UTC"},
    collector=CollectorSettings(kind="heartbeats", options={"promise": "ordered"}),
)


def test_a_collector_that_is_asked_nothing_gets_what_comes_of_the_log() -> None:
    there = MirrorSettings("there:9092", "http://mirror", "mirror", "dc1")

    with closing(open_collector(CANAL, PIPELINE)) as collector:
        stream = getattr(collector, "stream", None)
    with closing(open_collector(replace(CANAL, mirrored=there), PIPELINE)) as collector:
        behind = getattr(collector, "stream", None)

    assert isinstance(stream, CollectedStream)
    assert isinstance(behind, CollectedStream)
    assert getattr(stream.transport, "bootstrap", "") == "k:1"
    assert (getattr(behind.transport, "bootstrap", ""), behind.before) == ("there:9092", "dc1.")


def test_what_it_promises_must_be_said() -> None:
    unsaid = CollectorSettings(kind="heartbeats")

    (told,) = find_mistakes(replace(CANAL, collector=unsaid), PIPELINE)
    (kind,) = find_mistakes(replace(CANAL, kind=""), PIPELINE)

    assert told == "collector.options.promise: is required"
    assert kind == "kind: is required, because its collector can read several kinds"


def test_a_kafka_has_its_own_sections_and_options_beside_them() -> None:
    security = KafkaSecurity("SSL")
    settings = PipelineSettings(
        *("lake", "k:1", ()), kafka_security=security, transport_options={"timeout": "PT3S"}
    )

    found = open_transport(settings)

    assert isinstance(found, KafkaTransport)
    assert (found.bootstrap, found.security) == ("k:1", security)
    assert found.timeout == timedelta(seconds=3)


class Nameless:
    """Nothing of what any seam asks for."""


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that bears it at every seam."""
    module = ModuleType("our.nameless")
    for seam in ("SOURCE", "COLLECTOR", "FORMAT", "TRANSPORT"):
        setattr(module, seam, Nameless)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.__name__


def test_a_collector_that_says_no_usual_kind_is_refused_by_name(nameless: str) -> None:
    source = replace(SOURCE, format="", collector=CollectorSettings("", "", kind=nameless))

    (told,) = find_mistakes(source, PIPELINE)

    assert told.startswith(f"collector.kind: {__name__}.Nameless has no acknowledged, address, ")
    assert told.endswith("usual_format, usual_kind; see docs/extending.md")


@pytest.mark.parametrize(
    ("place", "lacks"),
    [
        pytest.param("kind", "close, describe, ", id="a source"),
        pytest.param("format", "added_topics, columns, columns_payload, ", id="a format"),
    ],
)
def test_what_a_class_lacks_of_its_seam_is_told_before_anything_runs(
    nameless: str, place: str, lacks: str
) -> None:
    source = replace(SOURCE, format="", collector=CollectorSettings("http://c", "shop"))
    settings = {"kind": replace(source, kind=nameless), "format": replace(source, format=nameless)}

    (told,) = find_mistakes(settings[place], PIPELINE)

    assert told.startswith(f"{place}: {__name__}.Nameless has no {lacks}")


def test_a_transport_that_lacks_something_is_refused_by_name(nameless: str) -> None:
    with pytest.raises(ConfigError, match=r"transport: .*\.Nameless has no beginnings, close, "):
        open_transport(PipelineSettings("lake", "", (), transport=nameless))


def test_what_stands_in_the_folders_lacks_nothing_of_its_seam() -> None:
    usual = replace(SOURCE, format="", collector=CollectorSettings("http://c", "shop"))

    assert (
        find_mistakes(usual, PIPELINE)
        == find_mistakes(replace(usual, kind="mariadb"), PIPELINE)
        == ()
    )


@pytest.mark.parametrize(
    "there",
    [
        *("replica", "replica:", ":3306", "replica:x", "replica:0", "replica:70000", "replica:٣"),
        *("mysql://r:3306", " r:3306", "r:3306 ", "r:3306,s:3306", "r,s:3306", "a/b:1"),
        *("::1:3306", "[::1]", "[r]:3306", "[10.0.0.1]:3306", "[::1:3306", "::1]:3306"),
    ],
)
def test_a_replica_that_is_no_host_and_port_is_refused_in_words(there: str) -> None:
    settings = SourceSettings("a", "h", 1, "", collector=CollectorSettings("", ""), prefix="a")

    found = find_mistakes(replace(settings, kind="mysql", options={"read_from": there}), PIPELINE)

    assert (
        f"options.read_from: {there!r} is not host:port; write for example replica-2:3306" in found
    )


def test_a_replica_may_have_an_address_of_ipv6_in_brackets() -> None:
    settings = SourceSettings("a", "h", 1, "", collector=CollectorSettings("", ""), prefix="a")

    found = read_replica(replace(settings, options={"read_from": "[2001:db8::1]:3307"}))

    assert found is not None
    assert (found.host, found.port) == ("2001:db8::1", 3307)


def test_the_login_of_an_address_that_is_refused_is_not_shown() -> None:
    settings = SourceSettings("a", "h", 1, "", collector=CollectorSettings("", ""), prefix="a")

    with pytest.raises(ConfigError, match=r"options.read_from: '.*@r:3306' is not") as refused:
        read_replica(replace(settings, options={"read_from": "mysql://u:secret@r:3306"}))

    assert "secret" not in str(refused.value)


def test_a_replica_of_mariadb_is_refused_with_its_own_advice() -> None:
    settings = SourceSettings("a", "h", 1, "", collector=CollectorSettings("", ""), prefix="a")
    options = {"read_from": "replica-2:3306"}

    found = find_mistakes(replace(settings, kind="mariadb", options=options), PIPELINE)

    assert (
        "options.read_from: cannot be used with MariaDB, whose GTIDs are not compared, so the"
        " progress of a replica is unknown; remove it"
    ) in found
