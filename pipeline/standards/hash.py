"""A standard: a keyed hash; equal values stay equal, and no value can be read.

It is HMAC (RFC 2104) with SHA-256 over the value's text in UTF-8.  Without a key, anyone could
hash all phone numbers and compare; a person who has the key still can.  Pure.
"""

import hmac
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pipeline.standards.standard import NO_VALUE, Standard, StandardType, require_long


@dataclass(frozen=True, slots=True)
class KeyedHash:
    """A keyed hash; ``secret`` is its key."""

    columns: tuple[str, ...]
    """Columns that are hashed."""
    secret: str = field(repr=False)
    encoding: Literal["hex", "base64"] = "hex"
    """How the hash is written; `base64` is the alphabet with `-` and `_`."""
    distinct: ClassVar[bool] = True
    hides: ClassVar[bool] = True
    lake_type: ClassVar[StandardType] = "string"

    def __post_init__(self) -> None:
        """Reject a secret that is too short.

        Raises:
            ConfigError: it is.
        """
        require_long(self.secret)

    @property
    def fingerprint(self) -> str:
        """The encoding, and the hash of a fixed text."""
        return f"{self.encoding}:{self._digest(NO_VALUE).hex()[:16]}"

    def value(self, text: str) -> str:
        """The hash: 64 characters in hex, 44 in base64."""
        found = self._digest(text.encode("utf-8", "surrogatepass"))
        return found.hex() if self.encoding == "hex" else urlsafe_b64encode(found).decode()

    def _digest(self, data: bytes) -> bytes:
        return hmac.digest(self.secret.encode(), data, "sha256")


STANDARD: type[Standard] = KeyedHash
