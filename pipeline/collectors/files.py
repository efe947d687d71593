"""Records files of logs in a ledger: each request for the acknowledged position sweeps the folder.

The first process that requests it sweeps, and others read its progress; when it ends, another
continues.  So a folder that hangs delays only requests for that folder.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pipeline.clocks import no_zone
from pipeline.collectors.collector import (
    CollectionScope,
    Collector,
    CollectorExamination,
    CollectorState,
)
from pipeline.errors import ConfigError, SluiceError, UnreachableError
from pipeline.files.layout import UNFINISHED, LogRule, PartitionRange, Patience
from pipeline.files.ledger import Ledger
from pipeline.files.sweep import FileSweep, SweepRules, find_strays
from pipeline.finding import WARN, Finding
from pipeline.model import Acknowledged, CaptureScope, Missing
from pipeline.schema.model import ARROW
from pipeline.settings import SourceSettings
from pipeline.sources.files.dialect import is_type
from pipeline.sources.files.position import sweep_position


@dataclass(eq=False)
class FilesCollector:
    """``url`` is the folder of the logs; ``connector`` names the database whose tables they are.

    ``ledger`` is a file on a local disk.  The range is the hours from ``back`` before now to
    ``ahead`` after now, in the time zone ``zone`` of the logs.  A file is taken when it has not
    changed for ``settle``; an unfinished one is reported after ``patience``.  Each request sweeps
    for at most ``budget``.  Every ``deep``, each file in range is checked, even if no folder
    changed, and heartbeats wait for that.  Earlier hours are checked every ``behind``.  A file
    taken later than ``grace`` after the end of its hour is reported as late.
    """

    usual_kind: ClassVar[str] = "files"
    usual_format: ClassVar[str] = "file_rows"
    serverless: ClassVar[bool] = True
    url: str
    connector: str
    ledger: str
    logs: Mapping[str, LogRule] = field(default_factory=dict)
    """Rules of logs by their names."""
    back: timedelta = timedelta(days=3)
    """How far before now hours are checked."""
    ahead: timedelta = timedelta(hours=27)
    """How far after now hours are checked."""
    zone: str = "UTC"
    """Time zone of the logs' folders."""
    settle: timedelta = timedelta(seconds=10)
    """How long a file must be unchanged before it is taken."""
    patience: timedelta = timedelta(minutes=15)
    """After how long an incomplete file is reported."""
    budget: timedelta = timedelta(seconds=1)
    """How long one request may sweep."""
    deep: timedelta = timedelta(seconds=5)
    """How often each file in range is checked, even if no folder changed."""
    behind: timedelta = timedelta(minutes=10)
    grace: timedelta = timedelta(minutes=15)
    unfinished: tuple[str, ...] = UNFINISHED
    """Patterns of names of files that are not complete yet."""
    _ledger: Ledger = field(init=False, repr=False)
    _sweep: FileSweep = field(init=False, repr=False)
    _problem: str = ""

    def __post_init__(self) -> None:
        """Validate the settings; open no file.

        Raises:
            ConfigError: a duration is negative, or a time zone or column type is unknown.
        """
        if fault := next(self._faults(), ""):
            raise ConfigError(f"collector.options.{fault}")
        zone = ZoneInfo(self.zone)
        self._ledger = Ledger(Path(self.ledger))
        rules = SweepRules(
            database=self.connector,
            logs=self.logs,
            range=PartitionRange(self.back, self.ahead, zone),
            unfinished=self.unfinished,
            patience=Patience(self.settle, self.patience),
            budget=self.budget,
            deep=self.deep,
            behind=self.behind,
            grace=self.grace,
        )
        self._sweep = FileSweep(Path(self.url), self._ledger, rules, utc_now)

    def acknowledged(self) -> Acknowledged | Missing:
        """Continue the sweep; return the newest sweep whose files were all taken or reported."""
        try:
            looked = self._sweep.advance()
        except SluiceError as error:
            self._record_failure(str(error))
            raise
        if looked:
            self._record_failure("")
        end, passed = self._ledger.count().end, self._ledger.acknowledged()
        if passed < 0:
            return Missing("no sweep of the folder has ended yet")
        return Acknowledged(sweep_position(passed, end))

    @property
    def rests_on(self) -> str:
        """Return an empty text: it depends on nothing else."""
        return ""

    def address(self) -> tuple[str, int]:
        """Return a placeholder: there is no server."""
        return ("localhost", 1)

    def captures(self) -> CaptureScope:
        """Every log is captured."""
        return CaptureScope(lambda shard: True, text="every log", said_by="the folder")

    def examine(
        self, settings: SourceSettings, worker: Mapping[str, str] | None
    ) -> CollectorExamination:
        """Report incomplete files, and files outside the layout; the source reports the rest."""
        where, found = f"collector:{settings.name}", list[Finding]()
        if not (state := self.state()).running:
            found.append(Finding(WARN, state.state, where, state.description, "see what it says"))
        try:
            lost = list(find_strays(Path(self.url), self.unfinished))
        except OSError as error:
            raise UnreachableError(f"files in {self.url}: {error}") from error
        if lost:
            what = f"{len(lost)} files or folders are not in the folder of an hour, such as"
            detail = f"{what} {', '.join(lost[:3])}: they are not read"
            found.append(Finding(WARN, "no_hour", where, detail, INTO))
        return CollectorExamination(tuple(found))

    def registration(self, scope: CollectionScope) -> None:
        """Return None: the collector runs in Sluice, so no server registers it."""

    def state(self) -> CollectorState:
        """``running`` if the last sweep of any process succeeded and no file is overdue."""
        if why := self._problem or self._ledger.problem():
            return CollectorState("failed", why)
        if since := self._sweep.stopped_since:
            detail = f"another process sweeps without progress since {since.replace(microsecond=0)}"
            return CollectorState("waiting", f"{detail}; {FREE.format(lock=self._sweep.lock)}")
        until = utc_now() - self.patience
        if found := self._ledger.restless(until.timestamp()):
            seen = datetime.fromtimestamp(found.seen, UTC).replace(microsecond=0)
            detail = (
                f"for {found.count} files that are incomplete or change, the oldest {found.path}"
            )
            return CollectorState("waiting", f"{detail} since {seen}; {RENAME}")
        return RUNNING

    def _record_failure(self, why: str) -> None:
        """Record *why* with its time, in the ledger too, unless the ledger itself is broken."""
        self._problem = why
        with suppress(SluiceError):
            if why:
                self._ledger.record_failure(f"at {utc_now().replace(microsecond=0)}: {why}")
            elif self._ledger.problem():
                self._ledger.record_failure("")

    def close(self) -> None:
        """Release the sweep to other processes."""
        self._sweep.close()
        self._ledger.close()

    def _faults(self) -> Iterator[str]:
        """Yield each invalid option, as ``option: problem``."""
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            yield f"zone: {no_zone(self.zone)}"
        for name in ("back", "ahead", "settle", "patience", "budget", "deep", "behind", "grace"):
            if getattr(self, name) < timedelta():
                yield f"{name}: must not be negative"
        for log, rule in self.logs.items():
            for column, kind in rule.columns.items():
                if not is_type(kind):
                    known = f"{', '.join(ARROW)}, decimal(10,2)"
                    yield f"logs.{log}.columns.{column}: no type {kind!r}; known: {known}"


def utc_now() -> datetime:
    """Return the time of this machine."""
    return datetime.now(UTC)


INTO = "move them to LOG/yyyy_MM_dd/HH/, or name them in collector.options.unfinished"
FREE = "find it with `fuser {lock}`, and stop it"
RENAME = "rename the file into place when it is complete, or list it in `unfinished`"
RUNNING = CollectorState("running")
COLLECTOR: type[Collector] = FilesCollector
