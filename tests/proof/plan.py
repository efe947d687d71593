"""Plans what is killed in which round, and when, from one seed."""

import random
from dataclasses import dataclass
from enum import StrEnum


class Victim(StrEnum):
    """What can be killed; each comes back by itself or is started again at once."""

    SERVICE = "service"
    SPARK = "spark"
    CONNECT = "connect"
    KAFKA = "kafka"


@dataclass(frozen=True, slots=True)
class Round:
    """One kill: ``delay`` seconds of load, the kill, ``down`` seconds without the victim.

    With ``rush`` the next round begins at once, else when the way has recovered.
    """

    victim: Victim
    delay: float
    down: float
    rush: bool

    def __str__(self) -> str:
        return f"{self.victim} after {self.delay:.2f} s{', in a rush' if self.rush else ''}"


def plan(rounds: int, seed: int) -> tuple[Round, ...]:
    """Each victim once in every four rounds, in a drawn order; the last round never rushes."""
    rng = random.Random(f"kill/{seed}")
    victims: list[Victim] = []
    while len(victims) < rounds:
        victims += rng.sample(list(Victim), len(Victim))
    return tuple(
        Round(
            victim,
            delay=rng.uniform(0.5, 8),
            down=rng.uniform(0, 2) if victim in {Victim.CONNECT, Victim.KAFKA} else 0.0,
            rush=rng.random() < 0.25 and number < rounds,
        )
        for number, victim in enumerate(victims[:rounds], 1)
    )
