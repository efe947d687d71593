"""A standard: a keyed hash, under which equal values stay equal, and none can be read.

HMAC (RFC 2104) with SHA-256 over the value's text in UTF-8.  Without a key, a list of all phone
numbers could be hashed and compared; with the key it still can.  Pure.
"""

import hmac
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pipeline.standards.standard import NO_VALUE, Standard, StandardType, require_long


@dataclass(frozen=True, slots=True)
class KeyedHash:
    """``secret`` is the key; the hash is written in ``encoding``, base64 with - and _."""

    columns: tuple[str, ...]
    """Columns that are hashed."""
    secret: str = field(repr=False)
    encoding: Literal["hex", "base64"] = "hex"
    """How the hash is written; `base64` is the alphabet with `-` and `_`."""
    distinct: ClassVar[bool] = True
    hides: ClassVar[bool] = True
    lake_type: ClassVar[StandardType] = "string"

    def __post_init__(self) -> None:
        """Refuse a secret that can be guessed.

        Raises:
            ConfigError: it is too short.
        """
        require_long(self.secret)

    @property
    def fingerprint(self) -> str:
        """By the secret's hash of a text that is no value."""
        return f"{self.encoding}:{self._digest(NO_VALUE).hex()[:16]}"

    def value(self, text: str) -> str:
        """The hash: 64 characters in hex, 44 in base64."""
        found = self._digest(text.encode("utf-8", "surrogatepass"))
        return found.hex() if self.encoding == "hex" else urlsafe_b64encode(found).decode()

    def _digest(self, data: bytes) -> bytes:
        return hmac.digest(self.secret.encode(), data, "sha256")


STANDARD: type[Standard] = KeyedHash
