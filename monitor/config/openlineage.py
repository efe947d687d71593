"""Who is told which table is made of which, by events of OpenLineage?"""

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from pipeline.settings import TlsSettings


@dataclass(frozen=True, slots=True)
class OpenLineageSettings(TlsSettings):
    """Events go to ``url``, with ``token`` if one is asked for, and to the end of ``file``.

    ``namespace`` is that of Sluice's jobs.
    """

    url: str = ""
    """Address that events are posted to."""
    token: str = field(default="", repr=False)
    """Bearer token, if the address asks for one."""
    file: str = ""
    """Absolute path of a file that events are appended to."""
    namespace: str = "sluice"
    timeout: timedelta = timedelta(seconds=5)
    """How long one event may take to send."""

    def __post_init__(self) -> None:
        """Refuse what no event could be sent to.

        Raises:
            ValueError: says what.
        """
        if self.timeout <= timedelta():
            msg = "timeout must be longer than nothing"
            raise ValueError(msg)
        there = urlsplit(self.url)
        if not self.url and not self.file:
            msg = "name a url or a file"
            raise ValueError(msg)
        if self.url and (there.scheme not in ("http", "https") or not there.netloc):
            msg = "url must be an http:// or https:// address"
            raise ValueError(msg)
        if self.file and not Path(self.file).is_absolute():
            msg = "file must be a whole path"
            raise ValueError(msg)
