"""A hash is the same everywhere, and other under another secret."""

import hashlib
import hmac
from base64 import urlsafe_b64encode

import pytest

from pipeline.errors import ConfigError
from pipeline.standards.hash import KeyedHash

SECRET = "0123456789abcdef"


def test_it_is_hmac_with_sha_256_of_the_text_in_utf_8() -> None:
    wanted = hmac.new(SECRET.encode(), "Zoë 138".encode(), hashlib.sha256)

    assert KeyedHash(("phone",), SECRET).value("Zoë 138") == wanted.hexdigest()
    told = KeyedHash(("phone",), SECRET, "base64").value("Zoë 138")
    assert told == urlsafe_b64encode(wanted.digest()).decode()


def test_a_text_that_no_utf_8_holds_has_a_hash_too() -> None:
    assert len(KeyedHash(("phone",), SECRET).value("\ud800")) == 64


def test_its_fingerprint_knows_another_secret_and_tells_none() -> None:
    one, other = KeyedHash(("p",), SECRET), KeyedHash(("p",), SECRET[::-1])

    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == KeyedHash(("q",), SECRET).fingerprint
    assert one.fingerprint != KeyedHash(("p",), SECRET, "base64").fingerprint
    assert SECRET not in f"{one!r}{one.fingerprint}"


def test_a_secret_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(ConfigError, match="secret: has 4 characters"):
        KeyedHash(("phone",), "1234")
