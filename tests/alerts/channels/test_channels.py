"""Every file of alerts/channels keeps the contract."""

import dataclasses

import pytest

from alerts.channel import channel_names, find_channel
from pipeline.errors import ConfigError, UnreachableError
from tests.alerts.kit import at, message

SETTINGS: dict[str, dict[str, object]] = {
    "log": {},
    "webhook": {"url": "http://127.0.0.1:1/secret", "secret": "very-secret"},
    "slack": {"url": "http://127.0.0.1:1/secret"},
    "alertmanager": {"url": "http://127.0.0.1:1", "authorization": "Bearer very-secret"},
    "pagerduty": {"routing_key": "very-secret", "url": "http://127.0.0.1:1/secret"},
}


def test_each_file_has_its_case_here() -> None:
    assert set(channel_names()) == set(SETTINGS)


@pytest.mark.parametrize("name", channel_names())
def test_settings_are_frozen_fields_and_secrets_are_never_shown(name: str) -> None:
    kind = find_channel(name)

    channel = kind(**SETTINGS[name])

    assert channel.per_minute > 0
    assert "secret" not in repr(channel)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(channel, "per_minute", 1)  # noqa: B010  - the type forbids the plain form


@pytest.mark.parametrize("name", ["webhook", "slack", "alertmanager", "pagerduty"])
@pytest.mark.parametrize(
    "url",
    ["", "hooks.example.org/secret", "ftp://h/secret", "http://", "http://h:no/secret", "ht!"],
)
def test_an_address_that_cannot_be_is_refused_at_the_start(name: str, url: str) -> None:
    with pytest.raises(ConfigError, match="url: must be") as caught:
        find_channel(name)(**{**SETTINGS[name], "url": url})

    assert "secret" not in str(caught.value)


def test_an_unknown_channel_lists_the_known_ones() -> None:
    with pytest.raises(
        ConfigError,
        match=r"no channel 'pigeon' in .*known: alertmanager, log, pagerduty, slack, webhook",
    ):
        find_channel("pigeon")


@pytest.mark.parametrize("name", ["webhook", "slack", "alertmanager", "pagerduty"])
def test_a_receiver_that_is_not_there_can_be_tried_again(name: str) -> None:
    channel = find_channel(name)(**SETTINGS[name])

    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1 did not answer") as caught:
        channel.send([message()], at(0))

    assert "secret" not in str(caught.value)
