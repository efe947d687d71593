"""What is worked out, and what is alarmed about, as values; Prometheus' form is made of them."""

from dataclasses import dataclass

from alerts.model import Severity


@dataclass(frozen=True, slots=True)
class Recording:
    """A series that is worked out once, for long ranges and for the alerts."""

    name: str
    expr: str


@dataclass(frozen=True, slots=True)
class Alert:
    """``value`` holds series on a good day, too; ``test`` leaves those that are alarming.

    ``page`` is where in the runbooks to read on; it may use the alert's labels.
    """

    name: str
    value: str
    test: str
    hold: str
    severity: Severity
    page: str
    summary: str
    description: str

    @property
    def expr(self) -> str:
        """The whole expression; a test with a place for it (``%s``) goes around the value."""
        return self.test % self.value if "%s" in self.test else f"{self.value} {self.test}"
