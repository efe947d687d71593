"""Builds TLS contexts of clients from PEM files.

A certificate and the server's name in it are always verified.
"""

import ssl

from pipeline.errors import ConfigError
from pipeline.settings import TlsFiles


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """A context that trusts the authorities of *files*, or the machine's.

    Raises:
        ConfigError: a file cannot be read, is no PEM, or the key has a passphrase.
    """
    try:
        context = ssl.create_default_context(cafile=files.ca or None)
    except OSError as error:  # an SSLError is one
        raise ConfigError(f"ca: {files.ca} holds no authorities: {error}") from error
    if files.certificate:
        try:
            context.load_cert_chain(files.certificate, files.key or None, password=_no_passphrase)
        except (OSError, ValueError) as error:
            key = files.key or files.certificate
            msg = f"certificate: cannot use {files.certificate} with the key in {key}: {error}"
            raise ConfigError(msg) from error
    return context


def _no_passphrase() -> str:
    """Called for an encrypted key only; OpenSSL itself would ask on the terminal."""
    raise ValueError("the key has a passphrase; store it without one")
