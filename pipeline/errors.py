"""Defines one error class for each party that must act: operator, retry, one event, one table.

A message says what failed, where, and how to fix it.
"""


def text_or_cause(text: str, what: str) -> str:
    """The *text* if it says anything, else that *what* came without a word: nothing is silent.

    It may quote other software. A lone surrogate, which no store and no answer can hold, is shown
    as its code.
    """
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
    return text if text.strip() else f"{what}, without a message; see the log"


def describe_half_pair(text: str) -> str:
    """Say which half of a surrogate pair *text* has, which no file and no pattern can hold."""
    half = next((one for one in text if "\ud800" <= one <= "\udfff"), "")
    code = f"\\u{ord(half):04x}" if half else ""
    return half and f"contains {code}, half of a surrogate pair; write the whole character"


def class_and_text(error: Exception) -> str:
    """What another's *error* says, with its class once: texts of kafka-python begin with it."""
    name, text = type(error).__name__, str(error)
    return text if text.startswith(f"{name}: ") else f"{name}: {text}"


class SluiceError(Exception):
    """Root of every error Sluice raises on purpose; its text is never empty."""

    def __str__(self) -> str:
        """What was said, or which error it is."""
        return text_or_cause(super().__str__(), type(self).__name__)


class ConfigError(SluiceError):
    """The operator must change a setting; nothing was started or changed."""


class UnknownNameError(ConfigError):
    """Nothing has the name or the id that was given; the message says which are there."""


class UnreachableError(SluiceError):
    """A server did not answer; the same call may succeed later.

    ``sent`` is False if no connection was opened, so the server has done no work.
    """

    sent: bool = True


class SparedError(UnreachableError):
    """A server is asked nothing now, so as to spare it; ``brake`` is the limit that says so."""

    def __init__(self, brake: str, why: str) -> None:
        super().__init__(why)
        self.brake = brake

    def __reduce__(self) -> tuple[type["SparedError"], tuple[str, str]]:
        """Travel between processes as what it was made of."""
        return (type(self), (self.brake, str(self)))


class SlowError(UnreachableError):
    """A server was asked for more than it answers in time; it may answer a smaller question."""


class LostRaceError(UnreachableError):
    """Another commit has this version; look again, and start over from what is there."""


class NoSchemasError(UnreachableError):
    """The registry of a source does not say what a number means; the source waits for it.

    ``numbers`` are those that it answers it does not know; none where it does not answer.
    """

    def __init__(self, source: str, why: str, numbers: frozenset[int] = frozenset()) -> None:
        super().__init__(f"source {source}: {why}")
        self.source = source
        self.why = why
        self.numbers = numbers

    def __reduce__(self) -> tuple[type["NoSchemasError"], tuple[str, str, frozenset[int]]]:
        """Travel between processes as what it was made of."""
        return (type(self), (self.source, self.why, self.numbers))


class FormatError(SluiceError):
    """One message cannot be decoded; it is quarantined, the rest goes on."""


class HeldError(SluiceError):
    """One table (or source) is held until its cause is gone.

    Args:
        reason: short code for configs and metrics, such as ``foreign_write``.
        detail: what, where, and what now, for a person.
        waiver: what a person waives of it; empty where that is the reason and the table.
    """

    def __init__(self, reason: str, detail: str, waiver: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = text_or_cause(detail, reason)
        self.waiver = waiver

    def __reduce__(self) -> tuple[type["HeldError"], tuple[str, str, str]]:
        """Travel between processes as what it was made of."""
        return (type(self), (self.reason, self.detail, self.waiver))


class ProofError(SluiceError):
    """Neither right nor wrong can be shown; counts as UNKNOWN, never as loss."""


class TooManyRowsError(ProofError):
    """More rows than a source may be made to read at once; a smaller range can be asked for."""
