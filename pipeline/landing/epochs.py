"""Which epoch does each row belong to, and is what stands too low explained by a new one?  Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from pipeline.checkpoint import Epoch, EpochStart, Mark
from pipeline.landing.epoch import observe
from pipeline.landing.listing import Listing
from pipeline.model import Head, Order, Ordering, TopicPartition
from pipeline.reports import Hold
from pipeline.sources.positions import place

NO_BOUNDS: Mapping[TopicPartition, str] = MappingProxyType({})
_AS_REFUSED = (
    " that can be told from another log: if the broker refused them at first, waive this and take a"
    " new base of the topic's tables"
)


@dataclass(frozen=True, slots=True)
class Epochs:
    """Sources' epochs, and from which offset of each partition they are valid.

    A partition without a start belongs to the source's newest epoch from its first offset on.
    """

    known: Mapping[str, Epoch]
    starts: Mapping[EpochStart, int]

    def number(self, source: str) -> int:
        """The newest epoch; 1 before the server was ever reached."""
        return self.known[source].number if source in self.known else 1

    def ends(self, heads: Mapping[str, tuple[Head, Head]]) -> dict[str, Order]:
        """Where the logs of *heads*, told before and after a listing, end now."""
        return {
            source: Order(self.number(source), *place(last.position))
            for source, (_, last) in heads.items()
        }


def look(mark: Mark, listing: Listing) -> Epochs:
    """Epochs after seeing the servers' heads.

    A new one is valid from the ends that were listed: a row of the new log that stands before
    them is either above all of the old log's rows, and right where it is, or it is found too low.
    """
    known = dict(mark.epochs)
    starts = {EpochStart.parse(name): first for name, first in mark.starts.items()}
    for source, (first, second) in listing.heads.items():
        beat = mark.heartbeats.get(source, -1)
        before = known.get(source)
        known[source] = observe(observe(before, first, beat), second, beat)
        if before is not None and known[source].number > before.number:
            starts |= _from_ends(source, known[source].number, listing)
    return Epochs(known, starts)


def reordered(
    epochs: Epochs, mark: Mark, listing: Listing, orderings: Mapping[str, Ordering]
) -> Epochs:
    """A new one for each source whose changes are ordered by something else than those landed.

    *orderings*: source -> what they rest on now.  Places in a log and offsets are never compared;
    the new epoch is valid from W, and throughout a partition that nothing was landed from.
    """
    known, starts = dict(epochs.known), dict(epochs.starts)
    for source, now in orderings.items():
        if mark.orderings.get(source, now) == now or source not in known:
            continue
        one, beat = known[source], mark.heartbeats.get(source, -1)
        known[source] = replace(one, number=one.number + 1, heartbeat=beat, before=one.position)
        for name, end in mark.offsets.items():
            at = TopicPartition.parse(name)
            if listing.source_of.get(at.topic) == source:
                starts[EpochStart(source, one.number + 1, at)] = end.offset
    return Epochs(known, starts)


def explain(
    epochs: Epochs,
    listing: Listing,
    strange: Mapping[TopicPartition, int],
    waived: frozenset[str],
    bounds: Mapping[TopicPartition, str] = NO_BOUNDS,
) -> tuple[Epochs, dict[str, Hold]]:
    """Let new epochs begin at the strange rows; sources whose log did not change are held.

    *strange*: partition -> lowest offset of a row that stands too low and is no repetition.
    *bounds*: partition -> what there was too much of to tell whether a broker had refused it.
    A hold that a person has waived is taken for a new log, one for all that is waived of a source.
    """
    known, starts, held = dict(epochs.known), dict(epochs.starts), {}
    for partition, offset in strange.items():
        source = listing.source_of[partition.topic]
        hold = _hold(source, partition, offset, listing, epochs.number(source))
        if bound := bounds.get(partition):
            hold = replace(hold, detail=f"{hold.detail}; {bound}{_AS_REFUSED}")
        as_before = source in known and known[source] == epochs.known[source]
        if hold.id in waived and as_before:
            known[source] = replace(known[source], number=known[source].number + 1)
            starts |= _from_ends(source, known[source].number, listing)
        begun = EpochStart(source, Epochs(known, starts).number(source), partition)
        if offset < starts.get(begun, 0):
            starts[begun] = offset
        else:
            held[source] = hold
    return Epochs(known, starts), held


def _from_ends(source: str, number: int, listing: Listing) -> dict[EpochStart, int]:
    return {
        EpochStart(source, number, partition): end.offset
        for partition, end in listing.ends.items()
        if listing.source_of[partition.topic] == source
    }


def _hold(
    source: str, partition: TopicPartition, offset: int, listing: Listing, epoch: int
) -> Hold:
    server = "is still the same" if source in listing.heads else "does not answer"
    detail = (
        f"{partition} offset {offset} stands below what was landed and repeats nothing, while the "
        f"server {server}; find out which server the collector reads, then let it take a new "
        f"snapshot, or waive this; if the broker refused it before a statement about its table, "
        f"waive this, then run `sluice bootstrap` of the table, and of what it was renamed to"
    )
    name = f"disorder:{source}:{partition}:{offset}@{epoch}"
    return Hold(name, f"source:{source}", "disorder", detail)
