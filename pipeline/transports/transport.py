"""What does landing ask of what carries the topics?  Where they begin and end; tasks read them."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from pipeline.model import PartitionEnd, TopicPartition


class Transport(Protocol):
    """The topics' offsets, and bounded reads of them."""

    def topics(self, pattern: str) -> Mapping[str, str]:
        """Topics whose whole name matches, with their ids."""
        ...

    def ends(self, topics: Sequence[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """Next offset of each partition."""
        ...

    def beginnings(self, topics: Sequence[str]) -> Mapping[TopicPartition, PartitionEnd]:
        """First offset of each partition that still exists."""
        ...

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Where each of these leader epochs ends in the log there is now."""
        ...

    def require_ids(self, expected: Mapping[str, str]) -> None:
        """Return if each topic still has its id; UnreachableError if one was created anew."""
        ...
