"""What two systems encrypted under two keys becomes one token, and what was not is told."""

from base64 import encodebytes, urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha512
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.padding import PKCS7

from pipeline.errors import ConfigError, FormatError
from pipeline.standards.cipher import CipherMapping

OURS, THEIRS = "ours-ours-ours-ours", "the key of the old system"


def _mysql(text: str, secret: str) -> bytes:
    key = bytearray(16)
    for place, byte in enumerate(secret.encode()):
        key[place % 16] ^= byte
    pad = PKCS7(128).padder()
    locked = Cipher(algorithms.AES(bytes(key)), modes.ECB()).encryptor()  # noqa: S305
    return locked.update(pad.update(text.encode()) + pad.finalize()) + locked.finalize()


def test_what_mysql_encrypted_becomes_the_token_that_its_clear_text_has() -> None:
    clear = CipherMapping(("card",), OURS)
    other = CipherMapping(("card",), OURS, THEIRS, "aes_128_ecb", "hex")

    assert other.value(_mysql("4111-1111", THEIRS).hex()) == clear.value("4111-1111")
    assert clear.value("4111-1111") != clear.value("4111-1112")
    assert "4111" not in clear.value("4111-1111")


def test_the_lines_that_mysql_breaks_a_long_text_into_are_one_value() -> None:
    """TO_BASE64(AES_ENCRYPT(...)): a value of 48 letters or more has a second line."""
    own = CipherMapping(("note",), OURS, THEIRS, "aes_128_ecb")
    sent = encodebytes(_mysql("a long note " * 9, THEIRS)).decode().rstrip("\n")

    assert "\n" in sent
    assert own.value(sent) == CipherMapping(("note",), OURS).value("a long note " * 9)


def test_mysqls_own_word_on_a_known_value() -> None:
    """SELECT HEX(AES_ENCRYPT('text', 'password')), as MySQL's manual folds the key."""
    assert _mysql("text", "password").hex() == _mysql("text", "password" + "\0" * 16).hex()


def test_tokens_are_mapped_from_key_to_key() -> None:
    theirs = CipherMapping(("card",), THEIRS)
    mapped = CipherMapping(("card",), OURS, THEIRS, "aes_siv")

    assert mapped.value(theirs.value("4111")) == CipherMapping(("card",), OURS).value("4111")


def test_other_tokens_of_aes_siv_are_refused() -> None:
    """Only the key derivation and the associated data of a text in the lake are accepted."""
    theirs, mapped = (
        CipherMapping(("card",), THEIRS),
        CipherMapping(("card",), OURS, THEIRS, "aes_siv"),
    )
    plain = AESSIV(sha512(THEIRS.encode()).digest()).encrypt(b"4111", None)

    for sent in (urlsafe_b64encode(plain).decode(), theirs.value("")):
        with pytest.raises(FormatError, match="was not encrypted as aes_siv"):
            mapped.value(sent)


@pytest.mark.parametrize("text", ["", "\0", "x"])
def test_the_empty_text_has_a_token_of_its_own(text: str) -> None:
    own = CipherMapping(("card",), OURS)

    assert sum(own.value(one) == own.value(text) for one in ("", "\0", "x")) == 1


@pytest.mark.parametrize("text", ["4111", "not base64!", "", "AAAA"])
def test_what_was_not_encrypted_so_is_refused_without_being_told(text: str) -> None:
    with pytest.raises(FormatError, match="was not encrypted as aes_128_ecb") as refused:
        CipherMapping(("card",), OURS, THEIRS, "aes_128_ecb").value(text)

    assert not text or text not in str(refused.value)


@pytest.mark.parametrize(("encoding", "case"), [("hex_upper", str.upper), ("hex_lower", str.lower)])
def test_in_a_key_no_two_texts_are_one_value(encoding: Any, case: Callable[[str], str]) -> None:
    own = CipherMapping(("id",), OURS, THEIRS, "aes_128_ecb", encoding)
    sent = _mysql("4111-1111", THEIRS).hex()

    assert own.distinct
    assert own.value(case(sent)) == CipherMapping(("id",), OURS).value("4111-1111")
    for other in (sent.swapcase() if case(sent) == sent else sent, f" {case(sent)}"):
        with pytest.raises(FormatError, match="was not encrypted as aes_128_ecb"):
            own.value(other)


def test_what_has_many_spellings_is_not_for_a_key() -> None:
    any_ = CipherMapping(("id",), OURS, THEIRS, "aes_128_ecb", "hex")
    sent = _mysql("4111-1111", THEIRS).hex()

    assert any_.value(sent) == any_.value(sent.upper())
    assert not any_.distinct
    assert not CipherMapping(("id",), OURS, THEIRS, "aes_siv").distinct
    assert CipherMapping(("id",), OURS).distinct


def test_base64_with_other_letters_in_it_is_refused() -> None:
    theirs = CipherMapping(("card",), THEIRS)
    mapped = CipherMapping(("card",), OURS, THEIRS, "aes_siv")
    sent = next(t for t in map(theirs.value, map(str, range(99))) if {*t} & {"-", "_"})

    assert mapped.value(sent)
    with pytest.raises(FormatError):
        mapped.value(f"{sent[:8]}!{sent[8:]}")


def test_keys_that_do_not_go_together_are_refused_and_none_is_shown() -> None:
    with pytest.raises(ConfigError, match="set both"):
        CipherMapping(("card",), OURS, THEIRS)
    with pytest.raises(ConfigError, match="secret: has 4 characters"):
        CipherMapping(("card",), "1234")
    own = CipherMapping(("card",), OURS, THEIRS, "aes_siv")
    assert not {OURS, THEIRS} & {*repr(own).split("'"), *own.fingerprint.split(":")}
    assert own.fingerprint != CipherMapping(("card",), OURS + "!", THEIRS, "aes_siv").fingerprint
