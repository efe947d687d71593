"""Which secret is long enough for a standard, and by what can two be told apart?  Pure."""

from pipeline.errors import ConfigError

SHORTEST = 16  # letters: below, all can be tried
NO_VALUE = b"sluice: which secret is this?"
"""What a standard makes of this text tells its secret from another, and nothing else of it."""


def require_long(secret: str) -> None:
    """Refuse a secret that can be guessed.

    Raises:
        ConfigError: it is too short.
    """
    if len(secret) < SHORTEST:
        raise ConfigError(f"secret: has {len(secret)} letters; give it {SHORTEST} or more")
