"""Defines recording rules and alerts as values, from which Prometheus' format is generated."""

from dataclasses import dataclass

from alerts.model import Severity


@dataclass(frozen=True, slots=True)
class Recording:
    """A series that is computed once, for long ranges and for the alerts."""

    name: str
    expr: str


@dataclass(frozen=True, slots=True)
class Alert:
    """``value`` has series also if all is well; ``test`` selects the alarming ones.

    ``page`` is the place in the runbooks to read on; it may use the alert's labels.
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
        """Return the whole expression; a test that contains ``%s`` wraps the value."""
        return self.test % self.value if "%s" in self.test else f"{self.value} {self.test}"
