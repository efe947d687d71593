"""Builds Sluice's landing as the service does; only the server and its collector are at rest."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from pyspark.sql import SparkSession

from bench.kit.events import Stream
from pipeline.build import open_dialect, open_format
from pipeline.changelog.change_log import ChangeLog
from pipeline.checkpoint import Checkpoint
from pipeline.collectors.collector import Collector
from pipeline.delta.store import open_store
from pipeline.landing.listing import LandingSource
from pipeline.landing.loop import Landing
from pipeline.model import Acknowledged, CaptureScope, Head
from pipeline.settings import CollectorSettings, PipelineSettings, Router, SourceSettings
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.source import Source
from pipeline.start import Workers
from pipeline.transports.kafka import KafkaTransport


@dataclass(frozen=True, slots=True)
class Idle:
    """A server and its collector, at rest after everything in the topic."""

    def sends(self) -> None:
        """Return that everything is sent."""

    def head(self) -> Head:
        """Return the end of the log."""
        return Head("3e11fa47-71ca-11e1-9e33-c80aa9429562", binlog_position(3, 4))

    def acknowledged(self) -> Acknowledged:
        """Return that everything was handed over."""
        return Acknowledged(binlog_position(3, 4))

    def captures(self) -> CaptureScope:
        """Return every table."""
        return CaptureScope(lambda shard: True)


def opened(session: SparkSession, stream: Stream, lake: str, transport: KafkaTransport) -> Landing:
    """Open a landing of *stream* into a fresh lake."""
    source = SourceSettings(
        name="one",
        host="127.0.0.1",
        port=1,
        user="",
        collector=CollectorSettings("", ""),
        prefix=stream.prefix,
        follow_collector=False,
    )
    settings = PipelineSettings(lake, stream.kafka, (source,))
    log = ChangeLog(open_store(settings.changes), settings.lane)
    collector, server = cast(Collector, Idle()), cast(Source, Idle())
    feed = LandingSource(
        source, collector, open_format(source), lambda _: server, open_dialect(source)
    )
    return Landing(
        settings=settings,
        feeds=(feed,),
        router=Router(),
        transport=transport,
        log=log,
        work=Workers(session, settings.small_batch_rows),
        clock=lambda: datetime.now(UTC),
        checkpoint=Checkpoint(settings.lane, -1),
    )


def land(landing: Landing) -> None:
    """Land everything, by as many batches as the product takes."""
    while landing.land(frozenset()).batch is not None:
        pass
