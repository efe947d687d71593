"""Posts signed JSON to any address.

The receiver computes HMAC-SHA256 with the shared secret over ``<Sluice-Timestamp>.<body>``,
compares it with the text after ``v1=`` in ``Sluice-Signature``, and rejects timestamps that are
more than a few minutes old.  Each message has an ``id``, because it may arrive twice.
"""

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar

from alerts.channel import Channel
from alerts.http import check_address, post_json
from alerts.model import Message
from pipeline.settings import TlsSettings


@dataclass(frozen=True, slots=True)
class Webhook(TlsSettings):
    """POST ``{"version": 1, "messages": [...]}``; unsigned if *secret* is empty."""

    url: str = field(repr=False)
    """Address that messages are posted to."""
    secret: str = field(default="", repr=False)
    timeout: timedelta = timedelta(seconds=10)
    """How long one sending may take."""
    per_minute: int = 60
    refresh: ClassVar[timedelta | None] = None

    def __post_init__(self) -> None:
        """Reject an invalid address at the start, not at the first alert."""
        check_address(self.url)

    def send(self, messages: Sequence[Message], now: datetime) -> None:
        """Send *messages* in one request, signed as of *now*."""
        payload = {"version": 1, "messages": [asdict(message) for message in messages]}
        body = json.dumps(payload, default=datetime.isoformat, sort_keys=True).encode()
        stamp = str(int(now.timestamp()))
        headers = {"Sluice-Timestamp": stamp}
        if self.secret:
            headers["Sluice-Signature"] = f"v1={sign_body(self.secret, stamp, body)}"
        post_json(self.url, body, headers, self.timeout, self)


def sign_body(secret: str, stamp: str, body: bytes) -> str:
    """Return the signature of *body* sent at *stamp* (Unix seconds), in hexadecimal."""
    return hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()


CHANNEL: type[Channel] = Webhook
