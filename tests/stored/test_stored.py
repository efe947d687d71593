"""What earlier versions wrote is read by this one: checkpoints, change logs, mirrors, stores."""

import json
import tarfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from alerts.model import IncidentState
from demo.processes import wait_until
from monitor.store.store import ServiceStore
from pipeline.changelog.change_log import ChangeLog
from pipeline.checkpoint import Checkpoint
from pipeline.delta.store import open_store
from pipeline.model import Stage
from tests.toy.stand import SOON, TABLE, Stand, mirrored, now, without_kafka

VERSIONS = sorted(one for one in Path(__file__).parent.iterdir() if (one / "seen.json").exists())
versions = pytest.mark.parametrize("version", VERSIONS, ids=lambda one: one.name)


def unpacked(version: Path, home: Path) -> Mapping[str, Any]:
    """What the service of *version* answered; its files are in *home*."""
    home.mkdir()
    with tarfile.open(version / "home.tar.xz") as packed:
        packed.extractall(home, filter="data")
    seen: dict[str, Any] = json.loads((version / "seen.json").read_text("utf-8"))
    return seen


def test_a_version_is_there() -> None:
    assert VERSIONS


@versions
def test_each_checkpoint_is_read_and_written_with_all_that_it_held(version: Path) -> None:
    texts = (version / "marks.jsonl").read_text("utf-8").split("\n")[:-1]

    assert len(texts) > 20
    for text in texts:
        again = Checkpoint.loads(text).dumps()
        assert spelled(_kept(json.loads(again), json.loads(text))) == text
        assert Checkpoint.loads(again) == Checkpoint.loads(text)


def spelled(value: object) -> str:
    """*value* as a checkpoint is written, byte for byte; its keys stay in their order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _kept(new: object, old: object) -> object:
    """*new* without the fields that *old* lacks: a later version may add some."""
    if isinstance(new, dict) and isinstance(old, dict):
        return {name: _kept(value, old[name]) for name, value in new.items() if name in old}
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return [_kept(one, other) for one, other in zip(new, old, strict=True)]
    return new


@versions
def test_a_change_log_and_its_mirror_are_read(version: Path, tmp_path: Path) -> None:
    seen = unpacked(version, tmp_path / "home")
    log = ChangeLog(open_store(str(tmp_path / "home" / "lake" / "changes")), "main")
    log.look()
    mark = log.checkpoint()

    assert mark is not None
    assert (mark.batch, mark.lane) == (log.batch(), "main")
    assert set(mark.shards.values()) - {None} == {TABLE}
    assert mark.gaps == {}
    changes = log.near("toy", ["toy"], [0], ["source", "order", "key", "op", "after"])
    assert changes.num_rows >= 47
    assert mirrored(tmp_path / "home") == {row["id"]: row for row in seen["rows"] if row["id"] != 7}


@versions
def test_a_store_is_read(version: Path, tmp_path: Path) -> None:
    seen = unpacked(version, tmp_path / "home")
    store = ServiceStore.open(tmp_path / "home" / "sluice.db")
    cut = datetime.fromisoformat(seen["cut"])

    certificate = store.certificates.newest(TABLE, Stage.MIRROR, cut)
    assert certificate is not None
    assert certificate.cut == cut
    assert store.certificates.get(certificate.id) == certificate
    (incident,) = store.incidents.open()
    assert (incident.id, incident.state) == (seen["incident"], IncidentState.FIRING)
    assert {one.check for one in store.verdicts.latest()} >= {"schema", "range_counts", "max_id"}
    assert TABLE in store.table_states.newest()
    assert store.fences.since("toy", cut)
    store.close()


@pytest.fixture
def resumed(request: pytest.FixtureRequest, server_folder: Path) -> Iterator[tuple[Stand, Any]]:
    home = server_folder / f"stored-{request.param.name}"
    seen = unpacked(request.param, home)
    with without_kafka(home, {}, begun=True) as made:
        yield made, seen


@pytest.mark.stack
@pytest.mark.spark
@pytest.mark.parametrize("resumed", VERSIONS, ids=lambda one: one.name, indirect=True)
def test_a_service_goes_on_where_an_earlier_version_stopped(resumed: tuple[Stand, Any]) -> None:
    stand, seen = resumed
    wait_until(lambda: bool(stand.incidents()), SOON, "the incident that was open")
    assert [one["id"] for one in stand.incidents()] == [seen["incident"]]
    assert stand.ask(now())[0] != 200

    wait_until(lambda: stand.waive(seen["waiver"]), SOON, "a waiver that is taken")
    # The topic is another file than the one that was packed, which the service sees.
    (anew,) = wait_until(lambda: stand.gaps(now()), SOON, "a topic that was created anew")
    assert anew.startswith("toy:0:")
    wait_until(lambda: stand.waive(anew), SOON, "a waiver that is taken")
    stand.database.put(TABLE, {"id": 7, "name": "again"}, {"id": 200, "name": "new"})
    stand.ready(now())

    assert stand.mirrored() == stand.database.rows(TABLE)
    wait_until(lambda: stand.incidents() == [], SOON, "the end of the incident")
