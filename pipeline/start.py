"""Build one lane from its settings: the session, the clients, and the mark it goes on from."""

import re
from collections.abc import Callable
from datetime import datetime

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline import jars
from pipeline.apply.catalog import Catalog
from pipeline.apply.standing import Standing
from pipeline.changelog import table as changelog
from pipeline.collectors.connect import ConnectCollector
from pipeline.collectors.mirrored import behind_mirror
from pipeline.errors import ConfigError
from pipeline.landing.feed import Feed
from pipeline.landing.loop import Landing
from pipeline.landing.reading import Reader
from pipeline.lane import Lane
from pipeline.mark import Mark
from pipeline.messages.format import find
from pipeline.model import Op, Order
from pipeline.route import Router
from pipeline.settings import PipelineSettings, SourceSettings, TableRule
from pipeline.sources.mysql import MySqlSource
from pipeline.spark import open_session
from pipeline.tables.delta import DeltaLake
from pipeline.transports.kafka import KafkaTransport


def open_lane(settings: PipelineSettings, clock: Callable[[], datetime]) -> Lane:
    """Start Spark and take the lane up where its newest mark left it.

    Raises:
        ConfigError: the change log is there, but not one of its rows says how far it is.
    """
    session = open_session(settings, jars.spark())
    changelog.create(session, settings.changes)
    lake = DeltaLake(settings)
    mark = lake.mark() or _first(session, settings)
    beats = {source.heartbeat for source in settings.sources}
    own = tuple(TableRule(re.escape(name), name, ignore=True) for name in sorted(beats))
    router = Router((*own, *settings.rules))
    feeds = tuple(_feed(source) for source in settings.sources)
    transport = KafkaTransport(settings.kafka)
    small = settings.small_batch_rows
    reader = Reader(session, transport, feeds, router, settings.kafka, small)
    catalog = Catalog(router)
    catalog.add(_schema_changes(session, settings.changes))
    landing = Landing(session, settings, feeds, reader, clock, lake.mark, mark)
    return Lane(session, settings, landing, catalog, Standing(lake.history), clock)


def _feed(source: SourceSettings) -> Feed:
    collector = ConnectCollector(source.collector.url, source.collector.connector)
    arrived = behind_mirror(source, collector)
    return Feed(source, collector, find(source.format), MySqlSource, arrived)


def _first(session: SparkSession, settings: PipelineSettings) -> Mark:
    """The mark before the first batch, if the change log is empty."""
    rows = session.read.format("delta").load(settings.changes)
    if not rows.where(F.col("lane") == settings.lane).isEmpty():
        msg = f"{settings.changes} holds rows of lane {settings.lane} but no mark; restore it"
        raise ConfigError(msg)
    return Mark(settings.lane, -1)


def _schema_changes(session: SparkSession, log: str) -> list[tuple[str, Order, str]]:
    """All landed schema changes, as they have landed; each is a statement somebody typed."""
    rows = session.read.format("delta").load(log).where(F.col("op") == Op.DDL)
    placed = rows.where("`order` IS NOT NULL").orderBy("batch", "topic", "offset")
    found = placed.select("source", "order", "after").collect()
    return [(row["source"], Order(*row["order"]), row["after"]) for row in found]
