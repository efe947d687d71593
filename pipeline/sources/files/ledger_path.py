"""Where does the collector of a source of files keep its ledger?  Pure."""

from pipeline.errors import ConfigError
from pipeline.settings import SourceSettings


def ledger_path(settings: SourceSettings) -> str:
    """The path of the ledger's file.

    Raises:
        ConfigError: the settings name none, or another one for each process.
    """
    told = settings.collector.options.get("ledger")
    if not isinstance(told, str) or not told:
        raise ConfigError("collector.options.ledger: is required; write the path of a file")
    if not told.startswith("/"):
        raise ConfigError(f"collector.options.ledger: {told!r} must be a whole path")
    return told
