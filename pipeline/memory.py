"""What the pipeline asks of whoever remembers for it: only what a person has decided."""

from typing import Protocol


class OperatorDecisions(Protocol):
    """Decisions of people that change what the pipeline does next."""

    def waived(self) -> frozenset[str]:
        """Ids of gaps, holds and quarantined changes that a person has closed by name."""
        ...
