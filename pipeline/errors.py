"""Defines one error class for each party that must act: operator, retry, one event, one table.

A message says what failed, where, and how to fix it.
"""


def text_or_cause(text: str, what: str) -> str:
    """Return *text*, or a replacement that names *what* if it is blank, so that no error is silent.

    The text may quote other software. A lone surrogate, which no store and no response can hold, is
    shown as its code.
    """
    if not text.isascii():
        text = text.encode("utf-8", "backslashreplace").decode()
    return text if text.strip() else f"{what}, without a message; see the log"


def describe_half_pair(text: str) -> str:
    """Describe the half of a surrogate pair in *text*, which no file and no pattern can hold."""
    half = next((one for one in text if "\ud800" <= one <= "\udfff"), "")
    code = f"\\u{ord(half):04x}" if half else ""
    return half and f"contains {code}, half of a surrogate pair; write the whole character"


def class_and_text(error: Exception) -> str:
    """Class and text of another library's *error*; texts of kafka-python begin with the class."""
    name, text = type(error).__name__, str(error)
    return text if text.startswith(f"{name}: ") else f"{name}: {text}"


class SluiceError(Exception):
    """Root of every error Sluice raises on purpose; its text is never empty."""

    def __str__(self) -> str:
        """The message, or the name of the error class."""
        return text_or_cause(super().__str__(), type(self).__name__)


class ConfigError(SluiceError):
    """The operator must change a setting; nothing was started or changed."""


class UnknownNameError(ConfigError):
    """There is no object with the given name or id; the message lists the known ones."""


class UnreachableError(SluiceError):
    """A server did not answer; the same call may succeed later.

    ``sent`` is False if no connection was opened, so the server has done no work.
    """

    sent: bool = True


class SparedError(UnreachableError):
    """A server is not queried now, to limit its load; ``brake`` is the limit."""

    def __init__(self, brake: str, why: str) -> None:
        super().__init__(why)
        self.brake = brake

    def __reduce__(self) -> tuple[type["SparedError"], tuple[str, str]]:
        """Pickle by the arguments, so that it can be sent between processes."""
        return (type(self), (self.brake, str(self)))


class SlowError(UnreachableError):
    """A server was asked for more than it can answer in time; a smaller request may succeed."""


class LostRaceError(UnreachableError):
    """Another commit has this version; read it, and start over from there."""


class NoSchemasError(UnreachableError):
    """The schema registry of a source does not resolve a schema id; the source waits for it.

    ``numbers`` are the ids that it reports as unknown; empty if it does not answer.
    """

    def __init__(self, source: str, why: str, numbers: frozenset[int] = frozenset()) -> None:
        super().__init__(f"source {source}: {why}")
        self.source = source
        self.why = why
        self.numbers = numbers

    def __reduce__(self) -> tuple[type["NoSchemasError"], tuple[str, str, frozenset[int]]]:
        """Pickle by the arguments, so that it can be sent between processes."""
        return (type(self), (self.source, self.why, self.numbers))


class FormatError(SluiceError):
    """One message cannot be decoded; it is quarantined, and landing continues."""


class HeldError(SluiceError):
    """One table (or source) is held until its cause is gone.

    Args:
        reason: short code for configs and metrics, such as ``foreign_write``.
        detail: what failed, where, and the fix, for a person.
        waiver: the id that a person waives; empty if it consists of the reason and the table.
    """

    def __init__(self, reason: str, detail: str, waiver: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = text_or_cause(detail, reason)
        self.waiver = waiver

    def __reduce__(self) -> tuple[type["HeldError"], tuple[str, str, str]]:
        """Pickle by the arguments, so that it can be sent between processes."""
        return (type(self), (self.reason, self.detail, self.waiver))


class ProofError(SluiceError):
    """A check can show neither PASS nor FAIL; counts as UNKNOWN, never as loss."""


class TooManyRowsError(ProofError):
    """More rows than may be read from a source at once; a smaller range may succeed."""
