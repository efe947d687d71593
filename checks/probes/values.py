"""Compares all values of each changed row, and of each id range, with the source at one position.

Each changed row is compared by its key once its change was merged, together with rows above the
highest compared id.  Ranges of ids are compared in rotation, to find rows that differ without a
change.  A cycle compares as many as a lap within the promised time needs, or more if many rows
change.

A differing range counts as equal if the mirror with the landed changes equals the source at some
position between the two readings.  Rows of other ranges are compared one by one. A row is named
only if it still differs in a later round and no change explains it.
A range is open until all of its rows are settled. Each cycle compares open ranges again, or some of
them if they are many. There is no PASS while a range is open.
Cannot detect: a difference in an old range before its rotation; columns whose values systems write
differently, which the verdict names; tables of more than `whole_rows` rows whose key is not one
integer.  Smaller tables of that kind are compared by `checks.compare.keyed_cycle`.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial, reduce
from itertools import islice
from typing import Any, ClassVar

from checks.compare.changed import (
    ChangedLook,
    ChangedProgress,
    LogSegment,
    SlowRows,
    describe_slow,
    dump_newest,
    dump_slow,
    find_newest,
    load_slow,
    look_at_changes,
    unexplained_rows,
)
from checks.compare.coverage import (
    Coverage,
    LapPlan,
    LearnedScale,
    NextBlocks,
    RangeDebt,
    Spans,
    add_spans,
    divide_ids,
    divide_spans,
    dump_spans,
    find_spans,
    halve_first,
    join_disjoint,
    remove_overlapping,
    remove_spans,
    share_ranges,
    sort_opened_first,
    split_at,
)
from checks.compare.keyed import KeyedComparison, choose_bucketing
from checks.compare.keyed_cycle import KeyedPace, measure_by_key
from checks.compare.look import (
    Comparison,
    Look,
    LookedAgain,
    RowSuspects,
    are_partial,
    choose_all_columns,
    describe_left_out,
    load_asked,
    look_again,
    name_columns,
)
from checks.counting import (
    AGAIN,
    MOST_OPEN,
    NARROWER,
    PROOF,
    Differences,
    Fences,
    RowProof,
    Suspect,
    SuspectState,
    await_fences,
    base_orders,
    dump_suspects,
    fences_after,
    find_handed,
    find_wrong,
    load_ranges,
    load_suspects,
    rule_differences,
)
from checks.mirror_state import MIRROR, MirrorState, follow_mirror
from checks.model import (
    FailKind,
    NoneOrMore,
    NotYet,
    OneOrMore,
    Outcome,
    Ruling,
    Share,
    Span,
    Undecided,
    Verified,
)
from checks.ranges import Blocks, IdScale, block_width, learn_scale
from checks.run import Probe
from checks.world import Range, World
from pipeline.durations import format_setting
from pipeline.errors import ProofError, SlowError, TooManyRowsError, UnreachableError
from pipeline.model import Shard, Table
from pipeline.row_digest import Bucketing

NAME, COUNTS = "values", "range_counts"
UNEVEN = 2  # a block with more than this many times `block_rows` makes its scale uneven
SHORTEST_LAP = 7
"""Shortest promised lap in multiples of `every`; in tests, shorter laps ended one cycle late."""
READ = 16  # most ranges of a shard whose rows one cycle reads
PRESSED = timedelta(minutes=2)
"""How long a changed row may wait for the budget of its source before it is compared."""
Memory = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Values:
    """Fail when a row is on one side only, is doubled, or has another value.

    A block is a range of ids.  At most *suspects* rows are read again, at most *tries* times while
    they keep changing.
    """

    changed_rows: OneOrMore = 5_000
    """Most changed rows of a table that one cycle compares by their keys."""
    block_rows: OneOrMore = 20_000
    """Approximate number of rows in a block."""
    newest: NoneOrMore = 0
    """How many of the newest blocks of each shard every cycle compares in full; 0: only rows
    inserted since the last cycle."""
    share: Share = 0.1
    """Rows of older blocks to compare for each changed row, if `within` does not need more."""
    rotating: NoneOrMore = 0
    """Fewest older blocks of each shard that a cycle compares, as far as `ranges` allows."""
    ranges: NoneOrMore = 20
    """Most older blocks of a table that a cycle compares; the first lap compares as many. 0: none,
    and `within` has no effect."""
    within: Span = timedelta(days=7)
    """Each block is compared again within this time; if it takes longer, the check is UNKNOWN.  It
    must be at least 7 times `every`, or twice with `rotating`, so that a lap can end in time."""
    whole_rows: OneOrMore = 1_000_000
    """Most rows of a table that is read whole because its key is not one integer."""
    whole_every: Span = timedelta(minutes=30)
    """Time between two such scans."""
    followed_every: Span = timedelta(days=1)
    """Time between two such scans while all changed rows are read by their keys, if longer."""
    suspects: OneOrMore = 1_000
    tries: OneOrMore = 3
    patience: Span = timedelta(minutes=10)
    """How long the check waits for the mirror to reach the position, and how long a changed row may
    wait to be compared; after that the check is UNKNOWN."""
    limit: Span = timedelta(seconds=30)
    every: ClassVar[timedelta] = timedelta(seconds=20)
    gating: ClassVar[bool] = False
    by_default: ClassVar[bool] = False
    kind: ClassVar[FailKind] = FailKind.LOST

    def find_pace_fault(self, every: timedelta) -> str:
        """Why no lap can end `within` its time with a cycle *every* interval; else empty."""
        cycles = 2 if self.rotating else SHORTEST_LAP
        if not self.ranges or self.within >= cycles * every:
            return ""
        least = format_setting(cycles * every)
        return (
            f"within: {format_setting(self.within)} is shorter than {cycles} times `every`"
            f" ({format_setting(every)}); increase it to {least}, or decrease `every`"
        )

    def measure(self, table: Table, world: World) -> Differences | NotYet | Undecided:
        """Explain earlier differences or rule on suspects, then compare the next ranges."""
        if table.no_ranges:
            return self._measure_by_key(table, world)
        try:
            found = self._measure_by_ranges(table, world)
        except (UnreachableError, ProofError):
            _withdraw_proof(table, world)
            raise
        if isinstance(found, Undecided):
            _withdraw_proof(table, world)
        return found

    def _measure_by_ranges(self, table: Table, world: World) -> Differences | NotYet | Undecided:
        memory = world.recall(table, NAME) or {}
        fences = self._await(table, world, memory)  # first: it pins the mirror only if it matters
        known = MirrorState.loads(memory.get(MIRROR))
        state, why = follow_mirror(table, world, known)
        memory = {**memory, MIRROR: state.dumps()}
        if "progress" in memory and (why or known is None):
            return self._begin_lap(table, world, memory, why)
        if isinstance(fences, NotYet | Undecided):
            return fences
        return self._take_step(table, world, memory, fences)

    def _take_step(
        self, table: Table, world: World, memory: Memory, fences: Fences | None
    ) -> Differences | NotYet | Undecided:
        """Take the next step of a cycle: the mirror has passed the last one, up to *fences*.

        Begins the first cycle if *fences* is None.
        """
        columns = choose_all_columns(table, world)
        if isinstance(columns, Undecided):
            return columns
        comparison = Comparison(table, world, columns, at_once=memory.get("at_once"))
        asked = load_asked(memory.get("columns", {}))
        other = asked != comparison.asked  # sums of other columns are not comparable
        if other or fences is None:  # an earlier version stored no changed rows
            found = (world.recall(table, NAME, lasting=True) or {}).get("found", [])
            opened = add_spans(memory.get("open", {}), memory.get("spans", {}))  # not ruled on
            self._begin(comparison, {**memory, "found": found, "open": opened})
            return NotYet("a cycle has begun")
        changed = ChangedLook.loads(memory["changed"], table)
        seen = RowSuspects.loads(memory["rows"], table) if memory["rows"] else None
        looks = [look for raw in memory["looks"] if (look := Look.loads(raw, table))]
        reading = Differences(fences, _describe_values(looks, changed, comparison))
        try:
            if seen is None:
                return self._explain(comparison, memory, looks, changed, reading)
            return self._confirm(comparison, memory, seen, changed, reading)
        except SlowError:  # begin again, with fewer rows
            opened = add_spans(memory["open"], memory["spans"])
            fewer = {"open": opened, "at_once": self._fewer_rows(comparison)}
            kept = {name: own for name, own in memory.items() if name != "changed"}
            world.remember(table, NAME, {**kept, **fewer})
            raise

    def _await(
        self, table: Table, world: World, memory: Memory
    ) -> Fences | NotYet | Undecided | None:
        """Return the fences after the last step of a cycle, once the mirror has passed it.

        It reads neither source nor log, because most rounds of a cycle only wait.  None before the
        first step.
        """
        if "changed" not in memory:
            return None
        ended = (memory["rows"] or memory)["ended"]
        found = await_fences(table, world, datetime.fromisoformat(ended), self.patience)
        if isinstance(found, NotYet):
            return replace(found, suspicious=memory["rows"] is not None)
        return found

    def _measure_by_key(self, table: Table, world: World) -> Differences | NotYet | Undecided:
        """Scan a table whose key has no ranges, at a slow pace, unless it is too large."""
        rows = world.mirror(table).rows()
        if rows > self.whole_rows:
            why = f"{table.no_ranges}, and {rows} rows are more than whole_rows: {self.whole_rows}"
            return Undecided("unsupported", why)
        columns = choose_all_columns(table, world)
        if isinstance(columns, Undecided):
            return columns
        each, by = rows // len(table.shards), dict[Shard, Bucketing]()
        memory = world.recall(table, NAME) or {}
        for shard, own in columns.items():
            found = choose_bucketing(table, shard, own, each, memory)
            if isinstance(found, Undecided):
                return found
            by[shard] = found
        followed = max(self.whole_every, self.followed_every)
        pace = KeyedPace(self.whole_every, followed, self.suspects, self.tries, self.patience)
        return measure_by_key(KeyedComparison(table, world, columns, by), pace, NAME)

    def judge(self, reading: Differences, past: Sequence[float]) -> Ruling:
        """Rule on confirmed differences; *past* is not used."""
        return rule_differences(reading)

    def _explain(
        self,
        comparison: Comparison,
        memory: Memory,
        looks: Sequence[Look],
        changed: ChangedLook,
        reading: Differences,
    ) -> Differences | NotYet:
        """Find a position for each range and row; unexplained rows become suspects."""
        left = dict[Shard, list[Range]]()
        for look in looks:
            if found := comparison.unexplained(look):
                left.setdefault(look.shard, []).extend(found)
        spans = sort_opened_first(left, memory["open"])
        most = min(self.suspects, comparison.at_once or self.suspects)
        suspects = comparison.find_suspects(spans, most, READ)
        fresh, unread = suspects.rows, dump_spans(suspects.unread)
        ended = datetime.fromisoformat(memory["ended"])
        rows = unexplained_rows(comparison, changed, ended)
        known = load_suspects(memory["found"], comparison.table)
        wrong = [one for one in known if one in rows.rows]
        ordered = [*dict.fromkeys((*wrong, *rows.rows))]
        most = min(self.suspects, len(wrong) + most)
        read = remove_spans(memory["ranges"], unread)  # unread ranges stay open, in their order
        opened = add_spans(remove_spans(memory["open"], read), unread)
        opened = add_spans(opened, dump_spans(suspects.partly))
        memory = {
            **memory,
            "open": add_spans(opened, divide_spans(suspects.large, opened)),
            "later": dump_suspects(ordered[most:]),
            "spans": dump_spans(spans),
        }
        some = {one: rows.rows[one] for one in ordered[:most]}
        became = comparison.judge(replace(rows, rows=some)) if some else {}
        whole = changed.landed >= 0 or not known  # an earlier version did not read known rows
        if whole and not fresh.rows and SuspectState.MOVING not in became.values():
            return self._conclude(comparison, memory, changed, reading, became)
        again = comparison.read_again({*fresh.rows, *({*known} - {*changed.left}), *some}, 0)
        comparison.world.remember(comparison.table, NAME, {**memory, "rows": again.dumps()})
        whole = whole and not changed.left
        early = _tell_early(comparison, memory, reading, became) if whole else None
        return early or NotYet(f"reading {len(again.rows)} rows again", suspicious=True)

    def _confirm(
        self,
        comparison: Comparison,
        memory: Memory,
        seen: RowSuspects,
        changed: ChangedLook,
        reading: Differences,
    ) -> Differences | NotYet:
        """Rule on the suspects; read them again while one of them keeps changing."""
        became = comparison.judge(seen)
        left = [one for one, state in became.items() if state is not SuspectState.CLEARED]
        moving = [one for one in left if became[one] is SuspectState.MOVING]
        if moving and seen.tries + 1 < self.tries:
            again = comparison.read_again(left, seen.tries + 1)
            comparison.world.remember(comparison.table, NAME, {**memory, "rows": again.dumps()})
            early = None if changed.left else _tell_early(comparison, memory, reading, became)
            return early or NotYet(f"{len(moving)} rows keep moving", suspicious=True)
        return self._conclude(comparison, memory, changed, reading, became)

    def _conclude(
        self,
        comparison: Comparison,
        memory: Memory,
        changed: ChangedLook,
        reading: Differences,
        became: Mapping[Suspect, SuspectState],
    ) -> Differences:
        """End the cycle with the states of the suspects."""
        moving = [one for one, state in became.items() if state is SuspectState.MOVING]
        found = find_wrong(became.items())
        known = {*load_suspects(memory["found"], comparison.table)}
        busy = find_spans(memory["spans"], moving)
        still = sum(one in known or bool(find_spans(busy, [one])) for one in moving)
        columns = name_columns(comparison, found)
        reading = replace(reading, found=found, moving=still, columns=columns)
        if not found:  # a PASS covers only what was committed before the readings ended
            ended = datetime.fromisoformat(memory["ended"])
            fences = fences_after(comparison.table, comparison.world, ended)
            reading = replace(reading, as_of=fences or reading.as_of)
        memory = {**memory, "open": add_spans(memory["open"], busy)}
        return self._finish(comparison, memory, changed, reading, moving=moving)

    def _finish(
        self,
        comparison: Comparison,
        memory: Memory,
        changed: ChangedLook,
        reading: Differences,
        *,
        moving: Sequence[Suspect],
    ) -> Differences:
        """Complete the reading and begin the next cycle; if that fails, the reading is kept."""
        table, world = comparison.table, comparison.world
        known = {*load_suspects(memory["found"], table)}
        wrong = sorted((one for one, _ in reading.found), key=lambda one: one not in known)
        wrong = [*dict.fromkeys((*(one for one in changed.left if one in known), *wrong))]
        kept, later = wrong[: self.suspects], load_suspects(memory["later"], table)
        # wrong rows beyond the limit are not stored; the range that has them stays open
        spans = {one: find_spans(memory["spans"], [one]) for one in wrong[self.suspects :]}
        memory = {**memory, "open": reduce(add_spans, spans.values(), memory["open"])}
        slow = load_slow(memory.get("slow_rows", ()), table)
        left_open = sum(map(len, remove_spans(memory["open"], _slow_spans(slow)).values()))
        rest = [one for one, own in spans.items() if not own]
        progress = ChangedProgress.loads(memory["progress"], table)
        waiting = [one for one in changed.left if one not in known]
        progress = progress.settled(changed, (*waiting, *moving, *later, *rest), kept)
        coverage = self._covered(comparison, memory, changed)
        pressed, cause = _pressure(table, world)
        behind = self._behind(progress, world, pressed) or self._slow(coverage, memory, world)
        if behind and pressed:
            behind = f"{behind}; {pressed}"
        behind = changed.describe_unread() or describe_slow(slow) or behind
        more = left_open + len(later) + len({*changed.left} - slow.keys())
        cause = cause if behind and not more and not reading.moving else ""
        reading = replace(reading, more=more, behind=behind, cause=cause)
        verified = _verified(progress, coverage, world.mirror(table).batch)
        until = changed.rest.until
        verified = replace(
            verified,
            shards=tuple(map(str, table.shards)),
            looked=until,
            life=world.incarnation(until),
            lapless=not self.ranges,
            partial=are_partial(comparison.columns),
            mirror=world.mirror(table).id,
            version=world.mirror(table).version,
        )
        if changed.losing:
            verified, looked = replace(verified, through=None), reading.looked
        else:
            looked = f"{reading.looked}{_describe_verified(progress, verified)}"
        reading = replace(reading, looked=looked, verified=verified, ended=world.clock())
        proof = self._prove(comparison, memory, reading, verified)
        memory = {**memory, "found": dump_suspects(kept), "progress": progress.dumps()}
        memory["newest"] = dump_newest(changed.newest)
        memory["coverage"] = {str(shard): one.dumps() for shard, one in coverage.items()}
        more_rows = replace(comparison, at_once=self._more_rows(comparison))
        with suppress(UnreachableError, ProofError):  # the next round tries again, and says why
            self._begin(more_rows, memory, proof)
        return reading

    def _prove(
        self, comparison: Comparison, memory: Memory, reading: Differences, verified: Verified
    ) -> RowProof | None:
        """Return the proof on which another check may rely for a while; None without a PASS."""
        table, world, now = comparison.table, comparison.world, comparison.world.clock()
        late = now - world.now > self.limit  # a PASS after the limit becomes UNKNOWN
        if rule_differences(reading).outcome is not Outcome.PASS or late:
            return None
        if verified.oldest is None or verified.through is None:
            return None
        return RowProof(
            ruled=now,
            until=min(now + self.patience, verified.oldest + self.within),
            oldest=verified.oldest,
            through=verified.through,
            began=datetime.fromisoformat(memory["began"]),
            looked=datetime.fromisoformat(memory["ended"]),
            batch=verified.looked,
            schemas={
                str(shard): tuple(own.since.parts) if own.since else ()
                for shard, own in comparison.columns.items()
            },
            bases=base_orders(table, world),
            ranges=load_ranges(remove_spans(memory["ranges"], memory["open"])),
            mirror=MirrorState(*memory[MIRROR]),
        )

    def _behind(self, progress: ChangedProgress, world: World, pressed: str) -> str:
        """Why changed rows have waited longer than ``patience``; empty if none has.

        If the budget of a source is *pressed*, this is reported after `PRESSED`.
        """
        since, waiting = progress.waits_since(), progress.segment.last is not None
        if pressed and world.now - since > PRESSED:
            waited = (world.now - since).total_seconds()
            return (
                f"rows changed since {since:%Y-%m-%d %H:%M:%S %Z} wait, for {waited:.0f} s so far"
            )
        if world.now - since <= self.patience or not (waiting or progress.pending):
            return ""
        cause = f"{len(progress.pending)} of them are looked at again in each cycle"
        if waiting:
            cause = f"one cycle looks at {self.changed_rows}; raise changed_rows"
        return f"changed rows wait since {since:%Y-%m-%d %H:%M:%S %Z} to be compared: {cause}"

    def _covered(
        self, comparison: Comparison, memory: Memory, changed: ChangedLook
    ) -> dict[Shard, Coverage]:
        """Return the coverage of each shard, including the ranges of this cycle."""
        at, found = datetime.fromisoformat(memory["began"]), dict[Shard, Coverage]()
        closed = remove_overlapping(memory["ranges"], memory["open"])
        unknown = changed.emptied | {own for own, _ in changed.unread}
        for shard, known in _coverage(comparison, memory).items():
            before = known.restarted(at) if shard in unknown else known
            ranges = ((low, high) for low, high in closed.get(str(shard), ()))
            found[shard] = before.compared(ranges, at)
        return found

    def _slow(self, coverage: Mapping[Shard, Coverage], memory: Memory, world: World) -> str:
        """Why rows are not compared ``within`` the promised time; empty if they are."""
        if not self.ranges:
            return ""
        for shard, one in coverage.items():
            since = one.oldest or one.since
            if world.now - since > self.within:
                return (
                    f"rows of {shard} were not compared since {since:%Y-%m-%d %H:%M} UTC, not"
                    f" `within` {format_setting(self.within)};"
                    " if that stays so, increase `within`, or decrease `every`"
                )
        slow: str = memory["slow"]
        return slow

    def _begin_lap(
        self, table: Table, world: World, memory: Memory, why: str
    ) -> NotYet | Undecided:
        """Begin a lap, because no row of the mirror in *memory* was compared; *why* is for people.

        An empty *why*: the memory is from a version of Sluice that stored no mirror.
        """
        columns = choose_all_columns(table, world)
        if isinstance(columns, Undecided):
            return columns
        comparison = Comparison(table, world, columns, at_once=memory.get("at_once"))
        batch, held = world.mirror(table).batch, world.held_until(table)
        progress, until = ChangedProgress.loads(memory["progress"], table), batch
        if "changed" in memory:
            until = LogSegment.loads(memory["changed"]["rest"]).until
        progress = progress.put_back(batch, max(until, progress.segment.until), held)
        coverage = _coverage(comparison, memory)
        kept = {name: own for name, own in memory.items() if name not in ("changed", PROOF)}
        kept |= {
            "open": add_spans(memory["open"], memory["spans"]),
            "progress": progress.dumps(),
            "columns": comparison.asked,
            "coverage": {
                str(own): one.restarted(world.now).dumps() for own, one in coverage.items()
            },
        }
        world.remember(table, NAME, kept)
        with suppress(UnreachableError, ProofError):  # the next round tries again, and says why
            self._begin(comparison, kept)
        return Undecided("put_back", f"{why}; a new lap begins") if why else NotYet("a lap begins")

    def _begin(self, comparison: Comparison, memory: Memory, proof: RowProof | None = None) -> None:
        """Read the next ranges of each shard; narrower ones after each failed attempt.

        The *proof* of the cycle that has just ended is stored too, unless this fails.
        """
        table, world = comparison.table, comparison.world
        cycle, failed = self._carry_over(comparison, memory), memory.get("failed", 0)
        kept, debts = cycle.kept, dict(cycle.debts)
        coverage, pace = cycle.coverage, cycle.pace
        opened, scales, rotation = kept["open"], kept["scales"], kept["turn"]
        looks, ranges, slow = list[dict[str, Any]](), dict[str, list[Range]](), ""
        highest, handed = dict[Shard, int](), find_handed(table, world, COUNTS)
        slow_rows = load_slow(kept["slow_rows"], table)
        try:
            for number, shard in enumerate(table.shards):
                share = share_ranges(self.ranges, len(table.shards), number - rotation)
                raw = scales.get(str(shard))
                learned = LearnedScale.loads(raw) if raw else None
                due = NextBlocks(shard, coverage[shard], pace, failed, share, debts[shard], learned)
                slow_ids = [id_ for own, id_ in slow_rows if own == shard]
                due = replace(due, slow=tuple(slow_ids))
                again = _look_again(comparison, due, opened)
                made = self._look(comparison, due, again, handed.get(str(shard), ()), opened)
                ranges[str(shard)] = [*again.ranges, *made.ranges]
                highest[shard], debts[shard] = made.high, made.debt
                looks += [one.dumps() for one in (*again.looks, made.look)]
                scales[str(shard)] = made.learned.dumps()
                slow = slow or (f"{shard}: {made.plan.too_long}" if made.plan.too_long else "")
            most = max(self.changed_rows // NARROWER**failed, 1)
            most = min(most, comparison.at_once or most)
            found = load_suspects(memory["found"], table)
            newest = {} if self.newest else find_newest(memory, table, highest)
            try:
                single = _single_rows(table, opened) if failed > 1 else ()
                pending = tuple(dict.fromkeys((*cycle.progress.pending, *single)))
                asked = (replace(cycle.progress, pending=pending), most, found, newest)
                changed = look_at_changes(comparison, *asked, slow=slow_rows)
            except SlowError:
                kept["at_once"] = self._fewer_rows(comparison)
                raise
        except (UnreachableError, ProofError):
            world.remember(table, NAME, {**kept, "failed": failed + 1})
            raise
        kept["debts"] = _dump_debts(self._lend(debts, changed))
        kept["slow_rows"] = dump_slow(changed.slow)
        result: dict[str, Any] = {"looks": looks, "ended": world.clock().isoformat()}
        result |= {"changed": changed.dumps(), "failed": 0}
        result[PROOF] = proof.dumps() if proof else None
        result["turn"] = (rotation + self.ranges) % len(table.shards)
        world.remember(table, NAME, {**kept, **result, "ranges": ranges, "slow": slow})

    def _carry_over(self, comparison: Comparison, memory: Memory) -> "NextCycle":
        """Return what the next cycle needs from *memory*, without shards that no longer exist."""
        table, coverage = comparison.table, _coverage(comparison, memory)
        names, now = {*map(str, table.shards)}, comparison.world.now
        opened, scales = (
            {name: own for name, own in memory.get(kind, {}).items() if name in names}
            for kind in ("open", "scales")
        )
        before = datetime.fromisoformat(memory["began"]) if "began" in memory else now
        progress, pace = self._progress(comparison, memory), self._pace(memory, now)
        debts = self._debts(comparison, memory, now - before)
        kept = {
            "found": memory["found"],
            MIRROR: memory[MIRROR],
            "rows": None,
            "open": opened,
            "spans": {},
            "later": [],
            "progress": progress.dumps(),
            "newest": memory.get("newest", {}),
            "slow_rows": memory.get("slow_rows", []),
            "columns": comparison.asked,
            "at_once": comparison.at_once,
            "coverage": {str(shard): one.dumps() for shard, one in coverage.items()},
            "debts": _dump_debts(debts),
            "scales": scales,
            "turn": memory.get("turn", 0),
            "began": now.isoformat(),
            "pace": pace.total_seconds(),
        }
        return NextCycle(progress, coverage, debts, pace, kept)

    def _fewer_rows(self, comparison: Comparison) -> int:
        """Return how many rows to read at once after the present number took too long."""
        before = comparison.at_once or max(self.changed_rows, self.suspects)
        return max(before // NARROWER, 1)

    def _more_rows(self, comparison: Comparison) -> int | None:
        """Return how many rows to read at once after a cycle in time; None: all."""
        more = 2 * (comparison.at_once or self.changed_rows + self.suspects)
        return more if more < max(self.changed_rows, self.suspects) else None

    def _debts(
        self, comparison: Comparison, memory: Memory, passed: timedelta
    ) -> dict[Shard, RangeDebt]:
        """Return the debt of each shard, with *passed* as the time since the last cycle began."""
        known = memory.get("debts", {})
        return {
            shard: RangeDebt(*known.get(str(shard), ())).grown(passed, self.within)
            for shard in comparison.table.shards
        }

    def _lend(
        self, debts: Mapping[Shard, RangeDebt], changed: ChangedLook
    ) -> dict[Shard, RangeDebt]:
        """Return the debts increased by ``share`` older rows per compared row of *changed*."""
        rows = dict[Shard, int]()
        for look in changed.looks:
            rows[look.shard] = rows.get(look.shard, 0) + look.ranges
        return {
            shard: replace(own, rows=own.rows + self.share * rows.get(shard, 0))
            for shard, own in debts.items()
        }

    def _pace(self, memory: Memory, now: datetime) -> timedelta:
        """Return the recent average time between two cycles; a long pause counts little."""
        usual = timedelta(seconds=memory.get("pace", self.every.total_seconds()))
        if "began" not in memory:
            return usual
        last = min(now - datetime.fromisoformat(memory["began"]), 10 * usual)
        return max(0.8 * usual + 0.2 * last, timedelta(milliseconds=1))

    def _progress(self, comparison: Comparison, memory: Memory) -> ChangedProgress:
        """Return the progress of changed rows; it begins now if this log has none."""
        table, world = comparison.table, comparison.world
        if "progress" in memory:
            return ChangedProgress.loads(memory["progress"], table)
        batch = world.mirror(table).batch
        return ChangedProgress(LogSegment(batch, batch), world.now)

    def _look(
        self,
        comparison: Comparison,
        due: NextBlocks,
        again: LookedAgain,
        handed: Sequence[Range],
        opened: Spans,
    ) -> "LookedBlocks":
        """Read ranges that are not open, as wide as possible; narrower ones if that fails.

        Ranges *handed* over by the check that counts rows are read too, unless they are too large.
        If even the narrowest blocks are too large, they are *opened*, because open ranges are
        divided by ids.
        """
        table, world, shard = comparison.table, comparison.world, due.shard
        source, column = world.source(shard.source), table.id_column or ""
        rows = world.mirror(table).rows() // len(table.shards)
        low, high = source.min_id(shard, column) or 0, source.max_id(shard, column) or 0
        learned = self._learn(comparison, due, low, high, rows)
        blocks = self._blocks(low, high, rows, learned.scale, due.failed)
        mean = self.ranges / len(table.shards)  # below 1: a shard is read only in some cycles
        pace, usual = due.pace / min(mean or 1, 1), max(int(mean), min(self.ranges, 1))
        while True:
            # whole blocks, because ids outside them are edges, which each cycle compares
            low_end, high_end = blocks.ids
            places = len(blocks.numbers) * blocks.size
            per_row = max(places / max(rows, 1), 1.0)
            plan = LapPlan(len(blocks.numbers), pace, usual, self.within)
            newest, _ = split_at(blocks.newest(self.newest), due.slow)
            more, _ = split_at(() if due.failed else handed[:AGAIN], due.slow)
            known = join_disjoint(again.ranges, more)
            skipped = [*again.opened, *known, *newest]
            whole = replace(blocks, low=low_end, high=high_end - 1)
            first = due.is_first_lap(whole, skipped)
            wanted = self._wanted_places(due, world, blocks.size, places, per_row, first=first)
            width, most = divide_ids(wanted, blocks.size)
            most = 0 if len(again.opened) >= MOST_OPEN else most  # open ranges come first
            older = due.choose_older(replace(whole, size=width), most, skipped)
            asked = join_disjoint(known, [*newest, *older])
            ranges = [one for one in asked if one not in again.ranges]
            try:
                look = comparison.look_at(shard, ranges)
            except (TooManyRowsError, SlowError) as error:
                slow, narrowest = isinstance(error, SlowError), blocks.size == self._narrowest
                if handed and not slow:
                    handed = ()
                    continue
                if narrowest and older and (due.failed or not slow):
                    again = replace(again, opened=[*again.opened, *older])
                    opened[str(shard)] = [[*one] for one in again.opened]
                    learned, due = replace(learned, uneven=True), replace(due, share=0)
                if slow or (narrowest and not older):
                    raise
                if not narrowest:
                    blocks = replace(blocks, size=max(blocks.size // NARROWER, self._narrowest))
                continue
            paid = {*older}
            counts = [n for one, n in zip(ranges, look.counts, strict=True) if one in paid]
            spanned = sum(map(learned.scale.width, older))
            ahead = 0 if first else self.block_rows  # the first lap does not count as ahead
            debt = due.debt.paid(spanned, places, sum(counts), ahead).bounded(rows)
            uneven = max(counts, default=0) > UNEVEN * self.block_rows
            learned = replace(learned, uneven=learned.uneven or uneven)
            return LookedBlocks(look, ranges, plan, high, debt, learned)

    @property
    def _narrowest(self) -> int:
        return block_width(0, 0, 1, self.block_rows)

    def _blocks(self, low: int, high: int, rows: int, scale: IdScale, failed: int) -> Blocks:
        """Return blocks of about `block_rows` of *rows*; narrower after *failed* attempts."""
        first, last = scale.place(low), scale.place(high)
        size = block_width(first, last, rows, self.block_rows) // NARROWER**failed
        return Blocks(low, high, max(size, self._narrowest), scale)

    def _learn(
        self, comparison: Comparison, due: NextBlocks, low: int, high: int, rows: int
    ) -> LearnedScale:
        """Return the scale of the ids in the mirror; learned again only if it is outdated."""
        table, now, span = comparison.table, comparison.world.now, high - low + 1
        if due.learned is not None and not due.learned.is_outdated(span, now):
            return due.learned
        if rows <= UNEVEN * self.block_rows:  # one block may have all rows
            return LearnedScale(now, 0)
        mirror, column = comparison.world.mirror(table), table.id_column or ""
        scale = learn_scale(low, high, partial(mirror.count_ids, due.shard, column))
        return LearnedScale(now, span, scale)

    def _wanted_places(
        self, due: NextBlocks, world: World, size: int, places: int, per_row: float, *, first: bool
    ) -> float:
        """Return how many of the *places* of a shard this cycle compares in older blocks.

        The *first* lap is as fast as `ranges` allows.  If the budget of the source has no rows to
        spare, the cycle compares what an even lap needs, at the pace of the budget.
        """
        cap = float(due.share * size)
        asked = max(due.debt.ids(places, per_row), float(self.rotating * size))
        wanted = cap if first else min(asked, cap)
        rows = world.allowance(due.shard.source).rows
        if rows is None:
            return wanted
        spare = max(rows - self.newest * self.block_rows, 0) * per_row
        afforded = max(spare, due.debt.lap * places)
        return min(wanted, afforded)


@dataclass(frozen=True, slots=True)
class NextCycle:
    """State that the next cycle continues from; ``kept`` are its JSON values for the memory."""

    progress: ChangedProgress
    coverage: Mapping[Shard, Coverage]
    debts: Mapping[Shard, RangeDebt]
    pace: timedelta
    kept: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LookedBlocks:
    """A look at ``ranges`` of a shard whose highest id is ``high``, and the ``debt`` after it.

    ``learned`` is the scale of its ids.
    """

    look: Look
    ranges: list[Range]
    plan: LapPlan
    high: int
    debt: RangeDebt
    learned: LearnedScale


def _look_again(comparison: Comparison, due: NextBlocks, opened: Spans) -> LookedAgain:
    """Read *opened* ranges of a shard, and replace those that are too large by narrower ones.

    Slow rows in them stay open and are not read.
    """
    name = str(due.shard)
    own, alone = split_at(((low, high) for low, high in opened.get(name, ())), due.slow)
    try:
        found = look_again(comparison, due.shard, own, due.again)
    except SlowError:
        few = due.again if due.failed else 0  # each of many may be fast enough alone
        opened[name] = [[*one] for one in (*halve_first(own, few), *alone)]
        raise
    found = replace(found, opened=[*found.opened, *alone])
    opened[name] = [[*one] for one in found.opened]
    return found


def _single_rows(table: Table, opened: Spans) -> tuple[Suspect, ...]:
    """Return rows whose *opened* range has one id: such a row may be slow, as its range was."""
    rows = (
        (shard, low)
        for shard in table.shards
        for low, high in opened.get(str(shard), ())
        if high - low == 1
    )
    return tuple(islice(rows, AGAIN))


def _slow_spans(slow: SlowRows) -> Spans:
    """Return each of the *slow* rows as a range of one id."""
    found = Spans()
    for shard, id_ in slow:
        found.setdefault(str(shard), []).append([id_, id_ + 1])
    return found


def _withdraw_proof(table: Table, world: World) -> None:
    """Delete the stored proof, because the check is UNKNOWN and others must not rely on it."""
    memory = world.recall(table, NAME) or {}
    if memory.get(PROOF):
        world.remember(table, NAME, {**memory, PROOF: None})


def _dump_debts(debts: Mapping[Shard, RangeDebt]) -> dict[str, list[float]]:
    return {str(shard): [own.lap, own.rows] for shard, own in debts.items()}


def _pressure(table: Table, world: World) -> tuple[str, str]:
    """Return which source budget the checks of *table* wait for, and its cause; else empty."""
    for name in table.sources:
        if pressed := world.allowance(name).pressed:
            return pressed, f"budget:{name}"
    return "", ""


def _tell_early(
    comparison: Comparison,
    memory: Memory,
    reading: Differences,
    became: Mapping[Suspect, SuspectState],
) -> Differences | None:
    """Return differences confirmed while other rows are read again; None without new ones.

    Also None while a row that was found before is undecided, because it would seem to be right.
    """
    known, found = {*load_suspects(memory["found"], comparison.table)}, find_wrong(became.items())
    moving = {one for one, state in became.items() if state is SuspectState.MOVING}
    if known & moving or not {one for one, _ in found} - known:
        return None
    columns, ended = name_columns(comparison, found), comparison.world.clock()
    return replace(reading, found=found, columns=columns, ended=ended, suspicious=True)


def _coverage(comparison: Comparison, memory: Memory) -> dict[Shard, Coverage]:
    """Return the stored coverage of each shard.

    If the compared columns of a shard have changed, the coverage is restarted, so it keeps only the
    order of ids.
    """
    columns, asked = load_asked(memory.get("columns", {})), comparison.asked
    now = comparison.world.now
    found = dict[Shard, Coverage]()
    for name, shard in ((str(one), one) for one in comparison.table.shards):
        raw = memory.get("coverage", {}).get(name)
        known = Coverage.loads(raw) if raw else Coverage(now)
        found[shard] = known if columns.get(name) == asked[name] else known.restarted(now)
    return found


def _verified(
    progress: ChangedProgress, coverage: Mapping[Shard, Coverage], batch: int
) -> Verified:
    """Return what is verified; nothing before all ranges were compared once.

    Until then, rows changed before the check began are not verified.
    """
    times = [one.oldest for one in coverage.values()]
    known = [at for at in times if at is not None]
    if len(known) < len(times) or progress.again is not None:
        return Verified(None, None, batch)
    through = progress.through
    return Verified(through if through and through > progress.since else None, min(known), batch)


def _describe_verified(progress: ChangedProgress, verified: Verified) -> str:
    """Describe up to when changed rows were compared, and since when all rows."""
    if progress.through is None or progress.through <= progress.since or progress.again is not None:
        return ""
    since, through = (f"{at:%Y-%m-%d %H:%M:%S}" for at in (progress.since, progress.through))
    if verified.oldest is None:
        return f"; each row changed from {since} to {through} UTC was compared"
    oldest = f"each row was compared since {verified.oldest:%Y-%m-%d %H:%M:%S}"
    return f"; {oldest}, and each one changed until {through} UTC after that"


def _describe_values(looks: Sequence[Look], changed: ChangedLook, comparison: Comparison) -> str:
    rows, ranges = sum(look.rows for look in looks), sum(look.ranges for look in looks)
    shards = len({look.shard for look in looks})
    text = f"{rows} rows in {ranges} ranges of {shards} shards are equal on both sides"
    text += f", and {changed.rows} changed rows" if changed.rows else ""
    return text + describe_left_out(comparison.columns)


PROBE: type[Probe[Differences]] = Values
