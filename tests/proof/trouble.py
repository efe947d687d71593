"""What befalls a pipeline under load, and what an operator does about it by the runbooks."""

import shutil
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pymysql
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewTopic

from demo.mysql import MySQL
from demo.oracle.compare import mirror_path
from demo.ports import free_ports
from demo.processes import wait_until
from tests.proof.asking import Question
from tests.proof.stand import CONNECTOR, PATIENCE, Stand

ROBBED = "shop.users"
LOST, LOST_TOPIC = "shop.order_items", "shop.shop.order_items"
STATEMENTS = CONNECTOR  # the topic of a connector's statements is named like its prefix
ALTER = f"ALTER TABLE {ROBBED} ADD COLUMN level INT NOT NULL DEFAULT 7"
BRIEFLY, LOCKED = "SET SESSION lock_wait_timeout = 3", 1205  # how long, and what is said then
BACKLOG = 2.0  # seconds without a collector
UNREAD = 50  # messages that nobody has read when their topic goes


@dataclass(eq=False)
class Trouble:
    """``moved``: mirrors that were rebuilt, by the id of their table, and where they lie now.

    ``deleted`` is when a topic went, ``healed`` when all was READY again after what.
    """

    stand: Stand
    moved: dict[str, str] = field(default_factory=dict)
    deleted: datetime = field(init=False)
    healed: dict[str, datetime] = field(default_factory=dict)

    def rob(self) -> None:
        """Somebody deletes every third row of a mirror; returns when the gate says so."""
        path = mirror_path(self.stand.service.lake, ROBBED)

        def robbed() -> bool:
            try:
                return int(DeltaTable(path).delete("id % 3 = 0")["num_deleted_rows"]) > 0
            except CommitFailedError:  # the service was faster
                return False

        wait_until(robbed, PATIENCE, "theft")
        self._told(ROBBED, "foreign_write")

    def rebuild(self) -> None:
        """Move that mirror away while nothing runs; the service makes it anew."""
        stand, path = self.stand, mirror_path(self.stand.service.lake, ROBBED)
        stand.kill_service()
        number = str(DeltaTable(path).metadata().id)
        self.moved[number] = str(stand.home / f"old-{ROBBED}-{len(self.moved)}")
        shutil.move(path, self.moved[number])
        stand.service.start()
        stand.recover()
        self._healed(f"mirror of {ROBBED} rebuilt")

    def lose_topic(self) -> None:
        """A topic is deleted with rows that were not landed, and made anew before anybody looks.

        Returns when the gate says so, and all other tables are READY.
        """
        stand = self.stand
        with stand.frozen():
            self._await_more(LOST_TOPIC, UNREAD)
            self.deleted = datetime.now(UTC)
            self._delete(LOST_TOPIC)
            self._create(LOST_TOPIC)
        stand.note(f"{LOST_TOPIC} deleted and made anew")
        self._told(LOST, "gap")
        stand.recover(LOST)

    def lose_statement(self) -> None:
        """The topic of statements is deleted, with one in it that was not landed."""
        stand = self.stand
        wait_until(self._lost_statement, PATIENCE, "a statement that nobody has read")
        stand.note(f"{STATEMENTS} deleted with a statement")
        self._told(ROBBED, "gap")

    def _lost_statement(self) -> bool:
        """False where the service was stopped while it read that very table: DDL waits for it."""
        with self.stand.frozen():
            self._await_more(LOST_TOPIC, UNREAD)  # which answer the request that was under way
            before = self._end(STATEMENTS)
            try:
                self.stand.servers.mysql.execute(BRIEFLY, ALTER)
            except pymysql.err.OperationalError as error:
                if error.args[0] == LOCKED:
                    return False
                raise
            wait_until(lambda: self._end(STATEMENTS) > before, PATIENCE, "statement")
            self._delete(STATEMENTS)
        return True

    def rebase(self) -> None:
        """What was lost is read again at the source."""
        self.stand.rebase()
        self._healed("new base")

    def fail_over(self) -> None:
        """The source dies, and a replica takes its address; it alone has what was not collected."""
        stand, old = self.stand, self.stand.servers.mysql
        heir = MySQL(stand.home / "heir", free_ports(1)[0], server_id=2)
        heir.start()
        try:
            heir.replica_of(old)
            stand.servers.connect.halt(CONNECTOR)
            stand.load(BACKLOG)
            stand.workload.stop()
            done = old.execute("SELECT @@gtid_executed")[0][0]
            caught = f"SELECT GTID_SUBSET({done!r}, @@gtid_executed)"
            wait_until(lambda: heir.execute(caught)[0][0] == 1, PATIENCE, "replica")
            old.kill()
            heir.execute("STOP SLAVE", "RESET SLAVE ALL")
        finally:
            heir.stop()
        heir.port = old.port
        stand.servers.mysql = heir  # which ends with the others
        heir.start()
        stand.servers.connect.resume(CONNECTOR)
        stand.workload.start()
        stand.note("failed over")
        stand.recover()
        self._healed("fail-over")

    def _healed(self, what: str) -> None:
        self.healed[what] = datetime.now(UTC)
        self.stand.note(f"{what}: all READY")

    def _told(self, table: str, reason: str) -> None:
        """Wait until *table* is told not to be READY for *reason*."""
        pause = threading.Event()

        def told() -> bool:
            said = self.stand.asker.answer(Question("mirror", table, datetime.now(UTC)))
            return (said is not None and reason in said.reasons) or pause.wait(0.5)

        wait_until(told, PATIENCE, f"{reason} of {table}")
        self.stand.note(f"{table}: {reason}")

    def _delete(self, topic: str) -> None:
        admin = self._admin()
        admin.delete_topics([topic])
        wait_until(lambda: topic not in admin.list_topics(), PATIENCE, f"end of {topic}")
        admin.close()

    def _await_more(self, topic: str, messages: int) -> None:
        wanted = self._end(topic) + messages
        wait_until(lambda: self._end(topic) >= wanted, PATIENCE, f"more in {topic}")

    def _end(self, topic: str) -> int:
        reader = KafkaConsumer(bootstrap_servers=self.stand.servers.kafka.bootstrap)
        (end,) = reader.end_offsets([TopicPartition(topic, 0)]).values()
        reader.close()
        return int(end)

    def _create(self, topic: str) -> None:
        admin = self._admin()
        admin.create_topics([NewTopic(topic, 1, 1)])
        admin.close()

    def _admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self.stand.servers.kafka.bootstrap)
