"""Writes the settings of a secured cluster for each of the two Kafka clients.

Both clients check the names of brokers against their certificates by default.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.settings import KafkaSecurity

_LIBRDKAFKA = {
    "username": "sasl.username",
    "password": "sasl.password",
    "mechanism": "sasl.mechanism",
    "ca": "ssl.ca.location",
    "certificate": "ssl.certificate.location",
    "key": "ssl.key.location",
    "key_password": "ssl.key.password",
}
_KAFKA_PYTHON = {
    "username": "sasl_plain_username",
    "password": "sasl_plain_password",
    "mechanism": "sasl_mechanism",
    "ca": "ssl_cafile",
    "certificate": "ssl_certfile",
    "key": "ssl_keyfile",
    "key_password": "ssl_password",
}
_LOGIN = ("mechanism", "username", "password")
_FILES = ("ca", "certificate", "key", "key_password")


def for_librdkafka(bootstrap: str, security: KafkaSecurity) -> Mapping[str, str]:
    """Return the settings of confluent-kafka's clients for the cluster at *bootstrap*."""
    settings = _map_settings(security, _LIBRDKAFKA)
    return {
        "bootstrap.servers": bootstrap,
        **({"security.protocol": security.protocol} if security.protocol != "PLAINTEXT" else {}),
        **settings,
    }


def for_kafka_python(bootstrap: str, security: KafkaSecurity) -> Mapping[str, Any]:
    """Return the connection arguments of kafka-python's clients."""
    return {
        "bootstrap_servers": bootstrap.split(","),
        "security_protocol": security.protocol,
        **_map_settings(security, _KAFKA_PYTHON),
    }


def find_security_faults(security: KafkaSecurity) -> Iterator[tuple[str, str]]:
    """Yield each setting that is missing or has no effect, and how to fix it."""
    if security.protocol.startswith("SASL_"):
        for name in _LOGIN:
            if not getattr(security, name):
                yield name, f"{security.protocol} needs it"
    else:
        yield from _idle(security, _LOGIN, "SASL_SSL or SASL_PLAINTEXT")
    if not security.protocol.endswith("SSL"):
        yield from _idle(security, _FILES, "SSL or SASL_SSL")
        return
    if security.certificate and not security.key:
        yield "key", "a certificate needs its key"
    for name in ("key", "key_password"):
        needed = "certificate" if name == "key" else "key"
        if getattr(security, name) and not getattr(security, needed):
            yield name, f"does nothing without {needed}; give that or remove this"


def _idle(
    security: KafkaSecurity, names: tuple[str, ...], protocols: str
) -> Iterator[tuple[str, str]]:
    for name in names:
        if getattr(security, name):
            what = f"does nothing with protocol {security.protocol}"
            yield name, f"{what}; set protocol to {protocols} or remove it"


def _map_settings(security: KafkaSecurity, names: Mapping[str, str]) -> dict[str, str]:
    return {theirs: value for ours, theirs in names.items() if (value := getattr(security, ours))}
