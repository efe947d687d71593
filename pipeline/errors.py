"""Who must act when something fails?  One class each; the message says what, where, what now.

Pure.
"""


class SluiceError(Exception):
    """Root of every error Sluice raises on purpose."""


class ConfigError(SluiceError):
    """The operator must change a setting; nothing was started or changed."""


class UnreachableError(SluiceError):
    """A server did not answer; the same call may succeed later."""


class LostRaceError(UnreachableError):
    """Another commit has this version; look again, and start over from what is there."""


class FormatError(SluiceError):
    """One message cannot be decoded; it is quarantined, the rest goes on."""


class HeldError(SluiceError):
    """One table (or source) must stand still until its cause is gone.

    Args:
        reason: short code for configs and metrics, such as ``foreign_write``.
        detail: what, where, and what now, for a person.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail

    def __reduce__(self) -> tuple[type["HeldError"], tuple[str, str]]:
        """Travel between processes as what it was made of."""
        return (type(self), (self.reason, self.detail))


class ProofError(SluiceError):
    """Neither right nor wrong can be shown; counts as UNKNOWN, never as loss."""


class TooManyRowsError(ProofError):
    """More rows than a source may be made to read at once; a smaller range can be asked for."""
