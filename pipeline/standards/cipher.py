"""A standard: decrypts values with the source's key and encrypts them with one key of the lake.

So values of sources with different keys can be joined.  The source's values are one of these:

* clear text;
* encrypted by MySQL's ``AES_ENCRYPT``: AES in ECB with PKCS 7, the key folded by XOR to 128 bits;
* encrypted by AES-SIV (RFC 5297), with the key derivation and associated data of this standard.

The lake's values are AES-SIV without a nonce: equal values stay equal, and a changed value is
detected.  Pure.
"""

from base64 import b64decode, urlsafe_b64encode
from binascii import Error as BinaryError
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256, sha512
from typing import ClassVar, Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.padding import PKCS7

from pipeline.errors import ConfigError, FormatError
from pipeline.standards.standard import NO_VALUE, Standard, StandardType, require_long

BLOCK = 16  # bytes of AES
_CASES = {"hex_upper": str.upper, "hex_lower": str.lower}


@dataclass(frozen=True, slots=True)
class CipherMapping:
    """``secret`` is the key of the lake, ``sent_secret`` the key of the source.

    ``sent_encoding`` is how the source writes the encrypted bytes as text.  ``base64`` and ``hex``
    accept every spelling; ``hex_upper`` and ``hex_lower`` accept one, so that two texts are never
    one value.  Columns of a key need that.
    """

    columns: tuple[str, ...]
    """Columns that are encrypted again."""
    secret: str = field(repr=False)
    """The key that the lake's values are encrypted with."""
    sent_secret: str = field(default="", repr=False)
    """The key that the source's values are encrypted with."""
    sent_as: Literal["aes_128_ecb", "aes_siv", "text"] = "text"
    """How the source's values are encrypted."""
    sent_encoding: Literal["base64", "hex", "hex_upper", "hex_lower"] = "base64"
    hides: ClassVar[bool] = True
    lake_type: ClassVar[StandardType] = "string"

    def __post_init__(self) -> None:
        """Reject a short ``secret``, and ``sent_secret`` and ``sent_as`` that do not match.

        Raises:
            ConfigError: names the setting.
        """
        require_long(self.secret)
        if (self.sent_as == "text") != (not self.sent_secret):
            raise ConfigError("sent_secret: is needed with sent_as, and only then; set both")

    @property
    def distinct(self) -> bool:
        """Whether the source's bytes have only one spelling."""
        return self.sent_as == "text" or self.sent_encoding in _CASES

    @property
    def fingerprint(self) -> str:
        """The settings, and a digest of a fixed text encrypted with ``secret``."""
        digest = sha256(_siv(self.secret).encrypt(NO_VALUE, None)).hexdigest()[:16]
        return f"{self.sent_as}:{self.sent_encoding}:{digest}"

    def value(self, text: str) -> str:
        """The value encrypted with the lake's key, in base64 with - and _.

        Raises:
            FormatError: *text* was not encrypted with the source's key in the configured way.
        """
        clear = text.encode("utf-8", "surrogatepass")
        if self.sent_as != "text":
            clear = self._decrypted(text)
        return urlsafe_b64encode(_siv(self.secret).encrypt(clear or b"\0", [_kind(clear)])).decode()

    def _decrypted(self, text: str) -> bytes:
        try:
            sent = _bytes(text, self.sent_encoding)
            if self.sent_as == "aes_siv":
                return _siv(self.sent_secret).decrypt(sent, [b"v"])
            return _folded_ecb(sent, self.sent_secret)
        except (ValueError, BinaryError, InvalidTag) as error:
            msg = f"its value was not encrypted as {self.sent_as} with this key"
            raise FormatError(msg) from error


def _kind(clear: bytes) -> bytes:
    """The associated data; the empty text is encrypted as a zero byte, and must differ from one."""
    return b"v" if clear else b"empty"


def _bytes(text: str, encoding: str) -> bytes:
    if encoding == "base64":
        plain = text.replace("\n", "")  # MySQL's TO_BASE64 breaks its lines after 76 characters
        return b64decode(plain, b"-_" if {*plain} & {"-", "_"} else None, validate=True)
    found = bytes.fromhex(text)
    if encoding in _CASES and _CASES[encoding](found.hex()) != text:
        raise ValueError(encoding)
    return found


def _folded_ecb(sent: bytes, secret: str) -> bytes:
    key = bytearray(BLOCK)
    for place, byte in enumerate(secret.encode()):
        key[place % BLOCK] ^= byte
    unlocked = Cipher(algorithms.AES(bytes(key)), modes.ECB()).decryptor()  # noqa: S305 - theirs
    padded, pad = unlocked.update(sent) + unlocked.finalize(), PKCS7(BLOCK * 8).unpadder()
    return pad.update(padded) + pad.finalize()


@lru_cache(maxsize=16)
def _siv(secret: str) -> AESSIV:
    return AESSIV(sha512(secret.encode()).digest())


STANDARD: type[Standard] = CipherMapping
