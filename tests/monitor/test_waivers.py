"""What a waiver may close is what bears its name now; of anything else nothing is recorded."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from checks.model import Outcome
from monitor.store.alerts import Waiver
from monitor.waivers import WaivableIds
from pipeline.checkpoint import Gap, OpenSnapshot, Quarantine
from pipeline.errors import UnreachableError
from pipeline.model import Account, Order, Shard
from pipeline.reports import Hold, MergeReport
from tests.monitor.observe.test_source_inventory import CASCADE
from tests.monitor.observe.test_system_checks import bury
from tests.monitor.rig import USERS, Rig
from tests.monitor.test_gate import SOME

GAP = Gap("shop.x:0:7@3", "shop.x", 0, 7, 9, "gone", batch=3)
UNREADABLE = Quarantine(None, 4, 3, ("shop.x:0:7@4",))


def hold_users(rig: Rig) -> None:
    held = Hold("schema:shop.users@7", USERS, "schema", "a column changed its meaning")
    rig.hold(held)


def hold_source(rig: Rig) -> None:
    held = Hold("disorder:shop:shop.x:0:7@1", "source:shop", "disorder", "it goes back")
    rig.hold_source(held)


def unbalance(rig: Rig) -> None:
    rig.store.accounts.add("main", USERS, 1, Account(read=5, applied=4), rig.now)


def step_back(rig: Rig) -> None:
    """Sluice's clock and the source's."""
    rig.second(-60)
    rig.write_heartbeat()


NO_BASE = "no_base:shop/shop.users@0"
CASES = [
    pytest.param(hold_users, "schema:shop.users@7", "schema:shop.users@8", id="a table's hold"),
    pytest.param(
        hold_source, "disorder:shop:shop.x:0:7@1", "disorder:shop:shop.x:0:8@1", id="a source's"
    ),
    pytest.param(
        lambda rig: rig.set_checkpoint(gaps={GAP.id: GAP}),
        "shop.x:0:7@3",
        "shop.x:0:7@4",
        id="a gap",
    ),
    pytest.param(
        lambda rig: rig.set_checkpoint(quarantine={"topic:shop.x": UNREADABLE}),
        "topic:shop.x:and 2 more@4",
        "topic:shop.x:and 3 more@4",
        id="changes that nobody could read",
    ),
    pytest.param(
        lambda rig: rig.set_checkpoint(
            snaps={Shard("shop", "shop.gone"): OpenSnapshot(Order(1, 1, 9), 5)}
        ),
        "snapshot:shop/shop.gone@5",
        "snapshot:shop/shop.gone@6",
        id="a snapshot",
    ),
    pytest.param(lambda rig: rig.set_checkpoint(bases={}), NO_BASE, f"{NO_BASE}.1", id="no base"),
    pytest.param(
        lambda rig: rig.intrude(USERS),
        "foreign_write:shop.users:2",
        "foreign_write:shop.users:3",
        id="what others wrote",
    ),
    pytest.param(
        lambda rig: rig.rule(USERS, Outcome.FAIL),
        "range_counts:shop.users:[1, 2)",
        "range_counts:shop.users:[2, 3)",
        id="a key that a check found",
    ),
    pytest.param(unbalance, "unbalanced:shop.users@1", "unbalanced:shop.users@2", id="an account"),
    pytest.param(step_back, "clock:shop:3", "clock:shop:1", id="clocks"),
    pytest.param(
        lambda rig: bury(rig.store.outbox, 1, 2),
        "dead_letters:slack:2",
        "dead_letters:slack:3",
        id="dead-lettered notifications",
    ),
]


@pytest.mark.parametrize(("harm", "borne", "like_it"), CASES)
def test_only_what_bears_the_name_now_is_waived(
    healthy: Rig, harm: Callable[[Rig], object], borne: str, like_it: str
) -> None:
    before = waived(healthy, borne)
    harm(healthy)
    healthy.second(2)

    assert before == (
        404,
        (f"nothing has the id {borne!r} now; run `sluice explain TABLE` to list the ids"),
    )
    assert waived(healthy, like_it) == (
        404,
        f"nothing has the id {like_it!r} now; run `sluice explain TABLE` to list the ids",
    )
    assert waived(healthy, borne) == (201, "")
    assert [one.id for one in healthy.store.waivers.list()] == [borne]


@pytest.mark.parametrize(
    ("id_", "borne"),
    [
        ("dead_letters:slack:1", True),
        ("dead_letters:slack:0", False),
        ("dead_letters:slack:x", False),
        ("dead_letters:slack:", False),
        ("dead_letters:mail:1", False),
        ("1", False),
    ],
)
def test_of_letters_a_channel_and_the_number_of_one_given_up_is_borne(
    healthy: Rig, id_: str, borne: bool
) -> None:
    bury(healthy.store.outbox, 1, 2)

    assert WaivableIds(healthy.gate, healthy.store.outbox).exists(id_) is borne


def waived(rig: Rig, id_: str) -> tuple[int, str]:
    """Status, and the first sentence of the error."""
    body = {"id": id_, "reason": "looked at it", "who": "on call"}
    answer = rig.client.post("/v1/waivers", json=body)
    return answer.status_code, answer.json().get("error", "").partition("; `")[0]


def test_what_was_waived_before_is_told_as_such_though_it_is_over(healthy: Rig) -> None:
    healthy.store.waivers.add(Waiver(GAP.id, "checked", "ann", healthy.now))

    assert waived(healthy, GAP.id) == (200, "")


def test_while_the_change_log_is_silent_only_what_is_known_is_borne(healthy: Rig) -> None:
    hold_users(healthy)
    healthy.lake.silent = True
    healthy.second(60)
    bearers = WaivableIds(healthy.gate, healthy.store.outbox)

    assert bearers.exists("schema:shop.users@7")
    with pytest.raises(UnreachableError, match=r"whether anything is named shop\.x:0:7@3"):
        bearers.exists("shop.x:0:7@3")


def test_what_no_log_shows_is_borne_by_the_id_that_the_gate_tells(healthy: Rig) -> None:
    healthy.schema.cascades[USERS] = CASCADE
    healthy.second(3600)
    healthy.census.ask()
    healthy.round()
    _, answer = healthy.ask(cut="2026-03-29T13:00:00Z")
    (told,) = (reason["id"] for reason in answer["tables"][0]["reasons"])

    assert told.startswith("unproven:shop.users@")
    assert waived(healthy, f"{told[:-1]}{'0' if told[-1] != '0' else '1'}")[0] == 404
    assert waived(healthy, told) == (201, "")


CLOSED = [
    case for case in CASES if case.id in ("a gap", "changes that nobody could read", "a snapshot")
]


@pytest.mark.parametrize(("harm", "borne", "like_it"), CLOSED)
def test_f103_what_a_batch_closed_is_not_said_to_block_again(
    healthy: Rig, harm: Callable[[Rig], object], borne: str, like_it: str
) -> None:
    del like_it
    before = healthy.newest
    harm(healthy)
    healthy.second(2)
    path, body = f"/v1/waivers/{borne}", {"reason": "it was not", "who": "on call"}
    later = (healthy.now + timedelta(hours=1)).isoformat()

    bounded = healthy.client.post("/v1/waivers", json={**body, "id": borne, "until": later})
    assert (bounded.status_code, bounded.json()["error"].partition("; ")[0]) == (
        400,
        f"until: the next batch closes {borne} for ever, so its waiver cannot end",
    )
    assert waived(healthy, borne) == (201, "")
    assert healthy.client.delete(path, json=body).status_code == 200  # no batch has landed
    assert waived(healthy, borne) == (201, "")
    healthy.lake.newest = before  # a batch closed it
    healthy.second(2)

    refused = healthy.client.delete(path, json=body)

    assert (refused.status_code, refused.json()["error"].partition("; ")[0]) == (
        400,
        f"a batch has closed {borne} since it was waived",
    )
    assert borne in healthy.store.waivers.waived()


def test_f103_a_waiver_of_what_no_batch_closes_is_withdrawn(healthy: Rig) -> None:
    hold_users(healthy)
    assert waived(healthy, "schema:shop.users@7") == (201, "")
    healthy.hold_registry.applied(
        [MergeReport(USERS, 2, 2, Account(), healthy.now, SOME)], healthy.now
    )
    healthy.second(2)

    body = {"reason": "it is over", "who": "on call"}
    assert healthy.client.delete("/v1/waivers/schema:shop.users@7", json=body).status_code == 200
