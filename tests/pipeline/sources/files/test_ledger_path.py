from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from pipeline.sources.files.source import ledger_path
from tests.pipeline.sources.files.test_source import settings


def test_it_is_what_the_collectors_options_say(tmp_path: Path) -> None:
    assert ledger_path(settings(tmp_path, "/x/ledger.db")) == "/x/ledger.db"


def test_a_source_without_a_ledger_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"collector\.options\.ledger: is required"):
        ledger_path(settings(tmp_path, ""))


def test_a_ledger_that_is_another_one_for_each_process_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ledger: 'ledger\.db' must be an absolute path"):
        ledger_path(settings(tmp_path, "ledger.db"))
