"""What others do to a pipeline under load, and what an operator does about it by the runbooks."""

import shutil
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from demo.oracle.compare import mirror_path
from demo.processes import wait_until
from tests.proof.asking import Question
from tests.proof.stand import PATIENCE, Stand

ROBBED = "shop.users"


@dataclass(eq=False)
class Trouble:
    """``moved``: mirrors that were rebuilt, by the id of their table, and where they lie now."""

    stand: Stand
    moved: dict[str, str] = field(default_factory=dict)

    def rob(self) -> None:
        """Somebody deletes every third row of a mirror; returns when the gate says so."""
        path = mirror_path(str(self.stand.service.lake), ROBBED)

        def robbed() -> bool:
            try:
                return int(DeltaTable(path).delete("id % 3 = 0")["num_deleted_rows"]) > 0
            except CommitFailedError:  # the service was faster
                return False

        wait_until(robbed, PATIENCE, "theft")
        self._told(ROBBED, "foreign_write")

    def rebuild(self) -> None:
        """Move that mirror away while nothing runs; the service makes it anew."""
        stand, path = self.stand, mirror_path(str(self.stand.service.lake), ROBBED)
        stand.kill_service()
        number = str(DeltaTable(path).metadata().id)
        self.moved[number] = str(stand.home / f"old-{ROBBED}-{len(self.moved)}")
        shutil.move(path, self.moved[number])
        stand.service.start()
        stand.recover()
        stand.note(f"mirror of {ROBBED} rebuilt")

    def _told(self, table: str, reason: str) -> None:
        """Wait until *table* is told not to be READY for *reason*."""
        pause = threading.Event()

        def told() -> bool:
            self.stand.asker.ask([Question("mirror", table, datetime.now(UTC))])
            last = [one for one in self.stand.asker.decisions[-9:] if one.question.table == table]
            return any(reason in one.reasons for one in last) or pause.wait(0.5)

        wait_until(told, PATIENCE, f"{reason} of {table}")
        self.stand.note(f"{table}: {reason}")
