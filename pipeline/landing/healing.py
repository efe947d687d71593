"""Which quarantined changes can be read by now?  Those of whom more is known than when they came.

A registry knows their schema at last; a file has an entry for their value, or `clear` names their
column.

Their messages are read again where they stand, and land out of turn, each with its own order: what
came since wins by that.  Only a new base helps where order does not tell all: where a statement
about their shard came since, where rows may leave values out for those before them to tell (rows
that tell their own columns), where the epoch of all is not sure, and where not all are known by
name, are still there (no other topic, no other leader's log has their offsets), and are live
changes of rows.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime

import structlog

from pipeline.changelog.data_file import WrittenFile
from pipeline.checkpoint import Mark, Quarantine
from pipeline.errors import NoSchemasError, UnreachableError
from pipeline.landing.facts import Facts
from pipeline.landing.listing import Listing
from pipeline.landing.plan import Plan
from pipeline.landing.shape import Provenance
from pipeline.landing.source_feed import Feed
from pipeline.landing.tally import RunTally
from pipeline.landing.task import Done, Intake
from pipeline.resubmissions import is_shard, place_of
from pipeline.retries import Retries
from pipeline.standards.table_standards import NO_STANDARDS, Standards
from pipeline.transports.transport import OffsetRange

AT_ONCE = 20  # messages tried in a round: each costs some 50 ms, and all sources wait
GOLDEN = (5**0.5 - 1) / 2  # its multiples without their wholes leave no part of 0 to 1 out for long
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Healed:
    """Quarantined changes by their ``ids``, and their rows in files of no batch yet.

    ``counted_before`` are those that the account of their table has counted as quarantined, each as
    often as it did: one message may hold many rows.
    """

    ids: frozenset[str] = frozenset()
    files: tuple[WrittenFile, ...] = ()
    tallies: tuple[RunTally, ...] = ()
    counted_before: tuple[str, ...] = ()

    def with_more(self, more: "Healed") -> "Healed":
        """Both together."""
        return Healed(
            self.ids | more.ids,
            (*self.files, *more.files),
            (*self.tallies, *more.tallies),
            (*self.counted_before, *more.counted_before),
        )

    def counted(self, facts: Facts) -> Facts:
        """*facts* with the rows; they count for nothing that goes by the order of landing."""
        tables, shards = dict(facts.tables), dict(facts.shards)
        for one in self.tallies:
            for table, rows in one.tables.items():
                tables[table] = tables.get(table, 0) + rows
            shards |= one.shards
        rows = facts.rows + sum(one.rows for one in self.tallies)
        return replace(facts, rows=rows, tables=tables, shards=shards)

    def noted(self, made: Mark) -> Mark:
        """*made*, which knows that a mirror from before this batch lacks them."""
        tables = {table for one in self.tallies for table in one.tables}
        return replace(made, belated={**made.belated, **dict.fromkeys(tables, made.batch)})


@dataclass(eq=False)
class Healing:
    """Tries each quarantine now and then, of whose messages more may be known by then.

    That is so of ``feeds`` with a registry, and of tables that have ``standards``.
    """

    feeds: tuple[Feed, ...]
    standards: Standards = NO_STANDARDS
    _retries: Retries = field(default_factory=Retries)
    _failures: Counter[str] = field(default_factory=Counter)

    def found(
        self,
        mark: Mark,
        listing: Listing,
        chosen: Plan,
        at: datetime,
        read: Callable[[Intake], Done],
    ) -> Healed:
        """What can be read by now, of topics that are there and as *chosen* finds them whole.

        No more than ``AT_ONCE`` messages are tried; what is left of a quarantine, in later rounds.
        Each time that some could not be read, the next begins elsewhere: none hides the rest.
        """
        found, left = Healed(), AT_ONCE
        for subject, intake in self._intakes(mark, listing.source_of, chosen.disturbed):
            named = mark.quarantine[subject].ids
            if not left or not self._retries.due(subject, named, at):
                continue
            turned = _turned(intake, self._failures[subject])
            done, failed, tried = _told(turned, left, mark, read)
            left -= tried
            one = _healed(subject, named, done)
            if failed:
                open_ = tuple(name for name in named if name not in one.ids)
                self._retries.failed(subject, open_, at)
                self._failures[subject] += 1
            if done:
                log.info("quarantine read at last", subject=subject, changes=len(one.ids))
            found = found.with_more(one)
        return found

    def _intakes(
        self, mark: Mark, source_of: Mapping[str, str], disturbed: Set[str]
    ) -> Iterator[tuple[str, Intake]]:
        """The messages of each quarantine that may be read out of turn."""
        feeds = {one.settings.name: one for one in self.feeds}
        for subject, one in mark.quarantine.items():
            ranges = _ranges(one)
            sources = {source_of.get(each.topic) for each in ranges}
            feed = feeds.get(sources.pop() or "") if len(sources) == 1 else None
            if feed is None or not one.epoch or one.count != len(one.ids):
                continue
            if feed.registry is None and self.standards.of(mark.shards.get(subject)) is None:
                continue
            if one.partitions & disturbed or subject in mark.schemas:
                continue
            name, beat = feed.settings.name, feed.settings.heartbeat
            came = Provenance(name, beat, one.epoch, ordering=feed.format.ordering)
            yield subject, Intake(came, feed.format, ranges, registry=feed.registry)


def _ranges(one: Quarantine) -> tuple[OffsetRange, ...]:
    """A range for each message; none, if a name is not that of one."""
    found = dict.fromkeys(map(_range, one.ids))
    return () if None in found else tuple(each for each in found if each is not None)


def _range(name: str) -> OffsetRange | None:
    place = place_of(name)
    if place is None:
        return None
    at, offset = place
    return OffsetRange(at.topic, at.partition, offset, offset + 1)


def _turned(intake: Intake, by: int) -> Intake:
    """The same messages from another one on, which lies far from where the last tries began."""
    first = int(by * GOLDEN % 1 * len(intake.ranges))
    return replace(intake, ranges=(*intake.ranges[first:], *intake.ranges[:first]))


def _told(
    intake: Intake, most: int, mark: Mark, read: Callable[[Intake], Done]
) -> tuple[list[Done], bool, int]:
    """What is whole of the first *most* messages, whether some were not, and how many were tried.

    Where the first is not, the others are left: mostly none can be read as long as one cannot.
    Nor is anything tried that comes behind one for which nobody answers.
    """
    done, failed, tried = list[Done](), False, 0
    for tried, one in enumerate(intake.ranges[:most], 1):
        try:
            told = _read_whole(replace(intake, ranges=(one,)), mark, read)
        except UnreachableError:
            return done, True, tried
        if told is not None:
            done.append(told)
        failed = failed or told is None
        if not done:
            break
    return done, failed, tried


def _read_whole(intake: Intake, mark: Mark, read: Callable[[Intake], Done]) -> Done | None:
    """What it holds; None if that cannot be read yet, or is not whole.

    Raises:
        UnreachableError: nobody answers.
    """
    try:
        told = read(intake)
    except UnreachableError as error:
        log.info("quarantine not read yet", source=intake.came.source, why=str(error))
        if isinstance(error, NoSchemasError) and error.numbers:
            return None
        raise
    return told if is_whole(told, mark) else None


def _healed(subject: str, named: Sequence[str], done: Sequence[Done]) -> Healed:
    """Those of the changes *named* whose messages are among what is *done*."""
    read = {each.asked for one in done for each in one.ranges}
    ids = tuple(name for name in named if _range(name) in read)
    files = tuple(one.file for one in done if one.file is not None)
    tallies = tuple(tally for one in done for tally in one.tallies)
    return Healed(frozenset(ids), files, tallies, ids if is_shard(subject) else ())


def is_whole(told: Done, mark: Mark) -> bool:
    """Whether all were there, and each is a change that order alone puts in its place."""
    if any(one.count != 1 for one in told.ranges):
        return False
    for one in told.tallies:
        if one.errors or one.statements or one.snapshots or one.around:
            return False
        if one.shards.keys() & mark.schemas.keys():
            return False
        for name, first in one.firsts.items():
            known = mark.existing.get(name)
            if known is not None and known.order > first:
                return False
    return True
