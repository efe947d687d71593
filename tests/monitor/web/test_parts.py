"""Applications of one process share their routes, and nothing else."""

from pathlib import Path

from tests.monitor.rig import ORDERS, USERS, Rig


def test_each_application_answers_from_its_own_parts(tmp_path: Path) -> None:
    watched, begun = Rig(tmp_path / "watched"), Rig(tmp_path / "begun")
    watched.round()

    told = [
        [table["table"] for table in rig.client.get("/v1/tables").json()]
        for rig in (watched, begun, watched)
    ]

    assert sorted(told[0]) == [ORDERS, USERS]
    assert told[1:] == [[], told[0]]
    watched.close()
    begun.close()
