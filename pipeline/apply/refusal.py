"""Why was a mirror left alone, in the words of the error that stopped it?  Pure."""

from dataclasses import dataclass

from pipeline.errors import HeldError, SluiceError
from pipeline.report import Hold


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a mirror was left alone."""

    reason: str
    detail: str
    waiver: str = ""

    @classmethod
    def of(cls, error: SluiceError) -> "Refusal":
        """What was foreseen: the mirror must stand still, or something was not reached."""
        if isinstance(error, HeldError):
            return cls(error.reason, error.detail, error.waiver)
        return cls("unreachable", str(error))

    @classmethod
    def unforeseen(cls, error: Exception, what: str = "") -> "Refusal":
        """What nobody foresaw, after *what* failed by it; the log has the trace."""
        return cls("failed", f"{what}{type(error).__name__}: {error}"[:500])

    def hold(self, table: str) -> Hold:
        """The hold of *table*; stable while the cause lasts."""
        name = self.waiver or f"{self.reason}:{table}"
        return Hold(name, table, self.reason, self.detail)
