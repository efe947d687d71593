"""Where does the collector of a source of files keep its ledger?  Pure."""

from pipeline.errors import ConfigError
from pipeline.settings import SourceSettings


def ledger_path(settings: SourceSettings) -> str:
    """The path of the ledger's file.

    Raises:
        ConfigError: the settings name none.
    """
    told = settings.collector.options.get("ledger")
    if not isinstance(told, str) or not told:
        raise ConfigError("collector.options.ledger: is required; write the path of a file")
    return told
