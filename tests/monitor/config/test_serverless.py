"""What has no server needs no address, and what has one does."""

from pathlib import Path

import pytest

from monitor.config.file import config_schema, load_config
from monitor.config.sections import has_placeholder_address, with_placeholder_address
from pipeline.errors import ConfigError

FILES = """
lake: lake
store: store.db
sources:
  - name: logs
    prefix: logs
    transport: files
    {more}
    collector: {{kind: {kind}, url: /data/logs, connector: logs, options: {{ledger: /x.db}}}}
tables: [{{shards: 'logs[.]clicks', table: logs.clicks}}]
"""


def written(folder: Path, kind: str, more: str = "tls: false") -> Path:
    path = folder / "sluice.yaml"
    path.write_text(FILES.format(kind=kind, more=more))
    return path


@pytest.mark.parametrize("more", ["tls: false", "port: 1", "host: localhost"])
def test_a_source_of_files_needs_no_address(tmp_path: Path, more: str) -> None:
    (source,) = load_config(written(tmp_path, "files", more)).sources

    assert has_placeholder_address(source)


@pytest.mark.parametrize("kind", ["connect", "{env: KIND}", "none_of_this_name"])
def test_every_other_kind_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("KIND", "connect")

    with pytest.raises(ConfigError, match=r"sources\[0\]\.host: is required"):
        load_config(written(tmp_path, kind))


def test_what_is_no_collector_is_told_by_whoever_reads_it() -> None:
    assert with_placeholder_address({"collector": "files"}) == {"collector": "files"}
    assert with_placeholder_address({}) == {}


def test_editors_do_not_ask_for_it() -> None:
    assert config_schema()["$defs"]["SourceSettings"]["required"] == ["name", "collector", "prefix"]
