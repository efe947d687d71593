"""A replica answers probes once it has what its primary had, and is never asked before."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest
from psycopg.errors import DeadlockDetected, SerializationFailure

from monitor.clients import Servers
from pipeline.errors import ProofError, SlowError, SparedError, UnreachableError
from pipeline.model import Head, Shard
from pipeline.sources.budget import BudgetedQueries, SourceBudget
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.mysql.source import MySqlSource
from pipeline.sources.positions import find_position_rules
from pipeline.sources.postgres.position import log_position
from pipeline.sources.postgres.session import PostgresSession
from pipeline.sources.postgres.source import PostgresSource
from pipeline.sources.replica import ReplicaChoice
from pipeline.sources.source import Limits, Source, TableQueries
from tests.builders.values import source_settings

T = Shard("shop", "shop.orders")
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
ANSWERS: dict[str, Any] = {
    "columns": (),
    "max_id": 9,
    "min_id": 1,
    "count_ids": (4,),
    "tallies": (),
    "digests": (),
    "row_digests": (),
    "id_digests": (),
    "column_digests": (),
    "bucket_digests": {},
    "bucket_rows": (),
    "keyed_columns": (),
    "rows_by_key": (),
    "ids": (1, 2),
}
QUESTIONS: dict[str, tuple[Any, ...]] = {
    "max_id": (T, "id"),
    "min_id": (T, "id"),
    "count_ids": (T, "id", [(0, 9)]),
    "tallies": (T, "at", (), ()),
    "digests": (T, "id", [(0, 9)], ()),
    "row_digests": (T, "id", (0, 9), (), 5),
    "id_digests": (T, "id", [1], ()),
    "column_digests": (T, "id", [1], ()),
    "bucket_digests": (T, None, ()),
    "bucket_rows": (T, None, (), (), 5),
    "keyed_columns": (T, None, (), (), 5),
    "rows_by_key": (T, None, (), {}),
    "ids": (T, "id", (0, 9), 5),
}


@dataclass
class Server:
    """Answers each question with its own name, and is as far as its next head says."""

    name: str
    kind: str
    heads: Iterator[Head]
    heartbeat: int = 7
    writes: str | None = None
    asked: list[str] = field(default_factory=list)

    @property
    def positions(self) -> Any:
        return find_position_rules(self.kind)

    def head(self) -> Head:
        return next(self.heads)

    def newest_heartbeat(self) -> int:
        return self.heartbeat

    def log_writer(self) -> str | None:
        return self.writes

    def strain(self) -> float:
        return 0.0

    def __getattr__(self, question: str) -> Any:
        def answer(*_: object) -> Any:
            self.asked.append(question)
            return ANSWERS[question]

        return answer


def mysql(identity: str, *done: int) -> Iterator[Head]:
    """Heads of a server that has executed the first *done* transactions, again and again last."""
    for one in (*done, *[done[-1]] * 1_000):
        yield Head(identity, binlog_position(1, one, f"{UUID}:1-{one}" if one else ""))


def postgres(identity: str, *lsns: int) -> Iterator[Head]:
    """Heads of a server whose log ends at *lsns*, again and again at the last."""
    for one in (*lsns, *[lsns[-1]] * 1_000):
        yield Head(identity, log_position(one))


def ask(chosen: ReplicaChoice, question: str = "max_id", given: Sequence[Any] = (T, "id")) -> str:
    """The name of the server that answers."""
    asked = BudgetedQueries(chosen.primary, chosen.choose, SourceBudget("shop", Limits()))
    assert getattr(asked, question)(*given) == ANSWERS[question]
    (name,) = (
        one.name for one in cast("list[Server]", [chosen.primary, chosen.replica]) if one.asked
    )
    return name


def queries(primary: Iterator[Head], replica: Iterator[Head], kind: str = "mysql") -> ReplicaChoice:
    servers = (Server("primary", kind, primary), Server("replica", kind, replica))
    return ReplicaChoice(*cast("tuple[Source, Source]", servers), "b:3306", timedelta())


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_replica_answers_every_question_about_rows(question: str) -> None:
    asked = queries(mysql("A", 5), mysql("B", 5))

    assert ask(asked, question, QUESTIONS[question]) == "replica"


def test_every_question_is_passed_on() -> None:
    names = {name for name in vars(TableQueries) if not name.startswith("_")}

    assert names == {*QUESTIONS, "columns"}
    assert names <= vars(BudgetedQueries).keys()
    assert ask(queries(mysql("A", 5), mysql("B", 0)), "columns", (T,)) == "primary"


def test_a_replica_that_is_behind_is_waited_for() -> None:
    asked = queries(mysql("A", 5), mysql("B", 3, 4, 5))
    asked.patience = timedelta(minutes=3)

    assert ask(asked) == "replica"


@pytest.mark.parametrize("done", [4, 0], ids=["one transaction behind", "no GTIDs"])
def test_a_replica_that_stays_behind_is_not_asked(done: int) -> None:
    asked = queries(mysql("A", 5), mysql("B", done))
    asked.patience = -timedelta(seconds=1)

    with pytest.raises(SparedError, match=r"^source:primary: the replica b:3306 is behind"):
        ask(asked)

    assert cast("Server", asked.replica).asked == []


def test_where_no_transactions_are_named_the_primary_of_mysql_answers() -> None:
    assert ask(queries(mysql("A", 0), mysql("B", 5))) == "primary"


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_standby_that_has_replayed_what_the_source_had_answers(question: str) -> None:
    asked = queries(postgres("1/2/3", 50), postgres("1/2/3", 50), "postgres")

    assert ask(asked, question, QUESTIONS[question]) == "replica"


def test_a_standby_is_waited_for_until_it_is_on_the_timeline_and_as_far() -> None:
    old, late, there = (
        next(postgres(*one)) for one in (("1/1/3", 60), ("1/2/3", 49), ("1/2/3", 50))
    )
    asked = queries(postgres("1/2/3", 50), iter((old, late, there)), "postgres")
    asked.patience = timedelta(minutes=3)

    assert ask(asked) == "replica"


@pytest.mark.parametrize(
    ("identity", "lsn", "heartbeat", "why"),
    [
        pytest.param("1/2/3", 49, 7, "is behind: it has not replayed all", id="a byte behind"),
        pytest.param("1/1/3", 99, 7, "is behind: it is still on timeline 1", id="old timeline"),
        pytest.param("1/3/3", 99, 7, "is not asked: it follows timeline 3", id="new timeline"),
        pytest.param("9/2/3", 99, 7, "is not asked: it is 9/2/3, another", id="another cluster"),
        pytest.param("1/2/4", 99, 7, "is not asked: it is 1/2/4, another", id="another database"),
        pytest.param("1/2/3", 99, 6, "it does not have the newest heartbeat", id="another log"),
    ],
)
def test_a_standby_that_may_lack_rows_of_the_source_is_not_asked(
    identity: str, lsn: int, heartbeat: int, why: str
) -> None:
    asked = queries(postgres("1/2/3", 50), postgres(identity, lsn), "postgres")
    asked.patience = -timedelta(seconds=1)
    replica = cast("Server", asked.replica)
    replica.heartbeat = heartbeat

    with pytest.raises(UnreachableError, match=rf"^source:primary: the replica b:3306 .*{why}"):
        ask(asked)

    assert replica.asked == []


@pytest.mark.parametrize(
    ("identity", "lsn", "heartbeat"),
    [
        pytest.param("1/2/3", 99, 7, id="clone as far as the source"),
        pytest.param("1/2/3", 99, 100, id="clone with later heartbeats"),
        pytest.param("1/2/3", 49, 7, id="clone with a shorter log"),
        pytest.param("1/3/3", 99, 7, id="promoted"),
        pytest.param("1/1/3", 99, 7, id="clone of an earlier timeline"),
    ],
)
def test_a_server_that_writes_a_log_of_its_own_is_neither_asked_nor_waited_for(
    identity: str, lsn: int, heartbeat: int
) -> None:
    asked = queries(postgres("1/2/3", 50), postgres(identity, lsn), "postgres")
    asked.patience = timedelta(minutes=3)
    primary, replica = cast("list[Server]", [asked.primary, asked.replica])
    primary.writes, replica.writes, replica.heartbeat = "started 1", "started 2", heartbeat

    with pytest.raises(UnreachableError, match=r"is not asked: it is no standby: .* read_from$"):
        ask(asked)

    assert replica.asked == []


@pytest.mark.parametrize("newest", [7, -1], ids=["heartbeats", "no heartbeat yet"])
def test_the_source_itself_answers_where_read_from_names_it(newest: int) -> None:
    asked = queries(postgres("1/2/3", 50), postgres("1/2/3", 50), "postgres")
    for one in cast("list[Server]", [asked.primary, asked.replica]):
        one.writes, one.heartbeat = "started 1", newest

    assert ask(asked) == "replica"


def test_a_server_that_is_no_replica_of_the_source_is_not_waited_for() -> None:
    asked = queries(postgres("1/2/3", 50), postgres("9/2/3", 50), "postgres")
    asked.patience = timedelta(minutes=3)

    with pytest.raises(UnreachableError, match=r"correct read_from$"):
        ask(asked)


def examined(asked: ReplicaChoice, **replica: Any) -> list[tuple[str, str, str]]:
    """Code, severity and text of what is found about a replica that differs by *replica*."""
    asked.patience = -timedelta(seconds=1)
    for name, value in replica.items():
        setattr(asked.replica, name, value)
    found = asked.examine()
    assert {one.where for one in found} <= {"source:primary"}
    assert all("options.read_from" in one.fix for one in found)
    assert all(one.what.startswith("the replica b:3306 ") for one in found)
    return [(one.code, str(one.severity), one.what.split(" ", 3)[-1]) for one in found]


@pytest.mark.parametrize(
    ("asked", "code", "severity", "what"),
    [
        pytest.param(
            queries(mysql("A", 0), mysql("B", 5)),
            *("replica_progress", "refuse", "does not show how far it is"),
            id="MySQL without GTIDs",
        ),
        pytest.param(
            queries(mysql("A", 5), mysql("B", 4)),
            *("replica_behind", "warn", "is behind: it has not executed all"),
            id="MySQL that is behind",
        ),
        pytest.param(
            queries(postgres("1/2/3", 50), postgres("1/2/3", 49), "postgres"),
            *("replica_behind", "warn", "is behind: it has not replayed all"),
            id="a standby that is behind",
        ),
        pytest.param(
            queries(postgres("1/2/3", 50), postgres("9/2/3", 50), "postgres"),
            *("replica_history", "refuse", "is not read: it is 9/2/3, another system"),
            id="a standby of another server",
        ),
    ],
)
def test_a_replica_that_is_not_read_is_named_with_its_fix(
    asked: ReplicaChoice, code: str, severity: str, what: str
) -> None:
    ((found, graveness, text),) = examined(asked)

    assert (found, graveness) == (code, severity)
    assert text.startswith(what)


def test_a_server_with_a_log_of_its_own_is_named_with_its_fix() -> None:
    asked = queries(postgres("1/2/3", 50), postgres("1/2/3", 50), "postgres")

    ((code, severity, text),) = examined(asked, writes="started 2")

    assert (code, severity) == ("replica_history", "refuse")
    assert text.startswith("is not read: it is no standby: it writes a log of its own")


def no_table() -> int:
    raise ProofError("Table 'sluice.heartbeat' doesn't exist (1146)")


def in_step(kind: str) -> ReplicaChoice:
    """A replica that has all that its primary has."""
    if kind == "mysql":
        return queries(mysql("A", 5), mysql("B", 5))
    return queries(postgres("1/2/3", 50), postgres("1/2/3", 50), kind)


@pytest.mark.parametrize("kind", ["mysql", "postgres"])
@pytest.mark.parametrize(
    "replica", [{"heartbeat": 6}, {"newest_heartbeat": no_table}], ids=["row", "table"]
)
def test_a_replica_without_the_newest_heartbeat_is_named_with_its_fix(
    kind: str, replica: Mapping[str, Any]
) -> None:
    assert examined(in_step(kind), **replica) == [
        (
            "replica_heartbeat",
            "refuse",
            "does not have heartbeat 7 of the source, which was written before",
        )
    ]


@pytest.mark.parametrize("kind", ["mysql", "postgres"])
def test_nothing_is_found_about_a_replica_that_is_read(kind: str) -> None:
    fresh = in_step(kind)
    cast("Any", fresh.primary).newest_heartbeat = no_table

    assert examined(in_step(kind)) == []
    assert examined(fresh, newest_heartbeat=no_table) == [], "no heartbeat was written yet"


def test_probes_ask_the_replica_that_read_from_names() -> None:
    plain = source_settings(kind="mysql")
    known = {"a": plain, "b": replace(plain, name="b", options={"read_from": "c:3307"})}
    with closing(Servers({name: partial(known.__getitem__, name) for name in known})) as servers:
        found, again = servers.queries(), servers.queries()

    assert isinstance(found["a"].choose(), MySqlSource)
    choice, other = (chooser(one["b"]) for one in (found, again))
    assert (choice.where, choice.patience) == ("c:3307", timedelta(seconds=5))
    replica = choice.replica
    assert isinstance(replica, MySqlSource)
    assert (replica.settings.host, replica.settings.port) == ("c", 3307)
    assert other.replica is replica


def chooser(asked: BudgetedQueries) -> ReplicaChoice:
    """What chooses the server for *asked*."""
    choice = cast("Any", asked.choose).__self__
    assert isinstance(choice, ReplicaChoice)
    return choice


def test_probes_of_postgres_ask_the_standby_that_read_from_names() -> None:
    options = {"database": "shop", "read_from": "c:5433"}
    known = replace(source_settings(kind="postgres"), name="a", options=options)
    with closing(Servers({"a": lambda: known})) as servers:
        replica = chooser(servers.queries()["a"]).replica

    assert isinstance(replica, PostgresSource)
    assert (replica.settings.host, replica.settings.port) == ("c", 5433)


@pytest.mark.parametrize("error", [SerializationFailure, DeadlockDetected])
def test_a_read_that_a_standby_cancels_was_too_slow(error: type[Exception]) -> None:
    session = PostgresSession(source_settings(kind="postgres"), "shop")
    said = session.translate(error("canceling statement due to conflict with recovery"))

    assert isinstance(said, SlowError)
    assert ("hot_standby_feedback" in str(said)) is (error is SerializationFailure)
