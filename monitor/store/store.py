"""Opens the store of the service: one SQL database, with one attribute per subject."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection

from alerts.round import Round
from checks.model import Verdict
from monitor.store.alerts import Incidents, Silences, StoredOutbox, Waivers
from monitor.store.certificates import Certificates, Fences
from monitor.store.database import Database
from monitor.store.history import Accounts, CheckMemory, TableStates, Verdicts
from monitor.store.holds import Holds
from monitor.store.ledger import Ledger
from monitor.store.requests import Archives, Pauses, Resubmissions, StoredBackfills
from monitor.store.ticks import Ticks


@dataclass(eq=False)
class ServiceStore:
    """Thread-safe. Each call is one short transaction, unless it is inside ``write()``."""

    database: Database
    fences: Fences = field(init=False)
    verdicts: Verdicts = field(init=False)
    memory: CheckMemory = field(init=False)
    incidents: Incidents = field(init=False)
    outbox: StoredOutbox = field(init=False)
    certificates: Certificates = field(init=False)
    ticks: Ticks = field(init=False)
    waivers: Waivers = field(init=False)
    accounts: Accounts = field(init=False)
    ledger: Ledger = field(init=False)
    holds: Holds = field(init=False)
    silences: Silences = field(init=False)
    backfills: StoredBackfills = field(init=False)
    resubmissions: Resubmissions = field(init=False)
    pauses: Pauses = field(init=False)
    archives: Archives = field(init=False)
    table_states: TableStates = field(init=False)

    def __post_init__(self) -> None:
        """Create each subject on the same database."""
        database = self.database
        self.fences = Fences(database)
        self.verdicts = Verdicts(database)
        self.memory = CheckMemory(database)
        self.incidents = Incidents(database)
        self.outbox = StoredOutbox(database)
        self.certificates = Certificates(database)
        self.ticks = Ticks(database)
        self.waivers = Waivers(database)
        self.accounts = Accounts(database)
        self.ledger = Ledger(database)
        database.first.append(self.ledger)
        self.holds = Holds(database)
        self.silences = Silences(database)
        self.backfills = StoredBackfills(database)
        self.resubmissions = Resubmissions(database)
        self.pauses = Pauses(database)
        self.archives = Archives(database)
        self.table_states = TableStates(database)

    @classmethod
    def open(cls, path: Path | str, *, service: bool = False) -> "ServiceStore":
        """Open or create the store; *service* makes this the one service that may use it.

        Raises:
            ConfigError: it cannot be opened, or another service has it.
        """
        return cls(Database.open(Path(path), service=service))

    def write(self) -> AbstractContextManager[Connection]:
        """Begin one transaction for all writes of this thread until its end."""
        return self.database.write()

    def record(self, settled: Round, verdicts: Sequence[Verdict], at: datetime) -> None:
        """Store one round in one transaction: verdicts, changed incidents, and notifications."""
        with self.write():
            self.verdicts.add(verdicts)
            self.incidents.keep(settled.changed, [one.id for one in settled.dropped])
            self.outbox.put(settled.messages, at)

    def prune(self, now: datetime, looked_back_on: Collection[str] = ()) -> Mapping[str, int]:
        """Delete old rows, a few per transaction; return subject -> deleted rows.

        Every number of the checks *looked_back_on* is kept for their own probes.
        """
        prunes: Mapping[str, Callable[[datetime], int]] = {
            "fences": self.fences.prune,
            "verdicts": lambda now: self.verdicts.prune(now, looked_back_on),
            "incidents": self.incidents.prune,
            "outbox": self.outbox.prune,
            "certificates": self.certificates.prune,
            "ticks": self.ticks.prune,
            "accounts": self.accounts.prune,
            "ledger": self.ledger.prune,
            "silences": self.silences.prune,
        }
        return {name: prune(now) for name, prune in prunes.items()}

    def close(self) -> None:
        """Close the store; another service may open it then."""
        self.database.close()
