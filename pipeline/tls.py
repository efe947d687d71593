"""Builds TLS contexts of clients from PEM files, and checks what a client's settings send.

A certificate and the server's name in it are always verified.
"""

import ssl
from collections.abc import Iterator
from dataclasses import fields
from urllib.parse import urlsplit

from pipeline.errors import ConfigError
from pipeline.settings import TlsSettings, is_https, needs_tls

FILES = ("ca", "certificate", "key")


def verify_option(url: str, its: TlsSettings) -> ssl.SSLContext | bool:
    """The ``verify`` argument of httpx for the server at *url*.

    Raises:
        ConfigError: as ``client_context``.
    """
    return client_context(its) if its.given and is_https(url) else is_https(url)


def client_context(its: TlsSettings) -> ssl.SSLContext:
    """A context that trusts the authorities of *its* files, or the machine's.

    Raises:
        ConfigError: a file cannot be read, is not PEM, or the key has a passphrase.
    """
    try:
        context = ssl.create_default_context(cafile=its.ca or None)
    except OSError as error:  # includes SSLError
        if not isinstance(error, ssl.SSLError):
            raise ConfigError(f"ca: cannot read {its.ca}: {error.strerror}") from error
        msg = f"ca: {its.ca} has no PEM certificates; use the PEM file of the authorities"
        raise ConfigError(msg) from error
    if its.certificate:
        try:
            context.load_cert_chain(its.certificate, its.key or None, password=_no_passphrase)
        except (OSError, ValueError) as error:
            key = its.key or its.certificate
            msg = f"certificate: cannot use {its.certificate} with the key in {key}: {error}"
            raise ConfigError(msg) from error
    return context


def file_faults(its: TlsSettings) -> Iterator[str]:
    """PEM files of a client that cannot be read or used, as ``key: fault``; it opens them."""
    if its.given and not any(tls_faults(its)):
        try:
            client_context(its)
        except ConfigError as error:
            yield str(error)


def tls_faults(its: TlsSettings) -> Iterator[str]:
    """Settings of a client that do nothing, or send a secret in clear text, as ``key: fault``.

    A client has a ``url`` or a ``host``. Its secrets are its fields that `repr` hides, and a login
    in its ``url``.
    """
    url = getattr(its, "url", None)
    if url is None:
        secured = needs_tls(its.tls, getattr(its, "host", ""))
        lacking = "" if secured else "needs TLS; set tls: true or remove it"
    else:
        lacking = "" if is_https(url) else "needs an https url; write https:// or remove it"
        yield from _of_url(its, url)
    for name in FILES:
        if lacking and getattr(its, name):
            yield f"{name}: {lacking}"
    if its.certificate and not its.key:
        yield "key: a certificate needs its key"
    if its.key and not its.certificate:
        yield "key: does nothing without certificate; give that or remove this"


def _of_url(its: TlsSettings, url: str) -> Iterator[str]:
    if is_https(url):
        if its.tls is False:
            yield "tls: false does nothing with an https url; remove it"
        return
    if its.tls:
        yield "tls: true needs an https url; write https:// or remove it"
        return
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        port = 0
    if port == 0 or parts.scheme != "http":  # not an address; another check reports that
        return
    host, secret = parts.hostname or "", "@" in parts.netloc or any(_secrets(its))
    if host and secret and needs_tls(its.tls, host):
        yield (
            f"url: its credentials would go to {host} in clear text; write https://, or set"
            " tls: false to send them so"
        )


def _secrets(its: TlsSettings) -> Iterator[object]:
    return (getattr(its, one.name) for one in fields(its) if one.init and not one.repr)


def _no_passphrase() -> str:
    """Raise, because OpenSSL would ask on the terminal; called for an encrypted key only."""
    raise ValueError("the key has a passphrase; store it without one")
