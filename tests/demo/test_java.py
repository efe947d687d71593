from pathlib import Path

import pytest

from demo import unpack
from demo.java import Program


def test_f195_the_first_server_after_a_clone_keeps_its_archive_of_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpack, "UNPACKED", tmp_path / "build" / "unpacked")
    program = Program("kafka.Kafka", (), tmp_path, "64m")
    (tmp_path / "kafka.Kafka.jsa").write_bytes(b"classes")

    program.keep_classes()

    assert (tmp_path / "build" / "unpacked" / "kafka.Kafka.jsa").read_bytes() == b"classes"
    assert not (tmp_path / "kafka.Kafka.jsa").exists()
