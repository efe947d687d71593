"""Which part of a way did not answer the doctor, and what is to be looked at first?"""

from dataclasses import dataclass

from monitor.config.copy_plan import CopyPlan
from monitor.config.serverless import is_nowhere
from pipeline.collectors.collector import USUAL
from pipeline.settings import SourceSettings


@dataclass(frozen=True, slots=True)
class ExaminedPart:
    """``where`` as findings name it; ``then`` is what may be wrong where it does not answer."""

    where: str
    then: str


@dataclass(frozen=True, slots=True)
class UnaskedPart:
    """A part that did not answer, and the words of whoever tried."""

    where: str
    why: str
    then: str


def lake() -> ExaminedPart:
    """Where tables are written."""
    return ExaminedPart(
        "lake",
        "is the bucket reached from here, at the endpoint, in the region and with the keys that the"
        " environment names (AWS_...)",
    )


def server(source: SourceSettings) -> ExaminedPart:
    """The database, at the address that is asked."""
    name, address = source.name, f"{source.host}:{source.port}"
    if is_nowhere(source):
        there = f"is all there that `collector` of {name} names, and may it be read from here"
        return ExaminedPart(f"source:{name}", there)
    followed = (
        f" ({address}; it may be its collector's and not the config's: follow_collector)"
        if source.follow_collector
        else ""
    )
    return ExaminedPart(
        f"source:{name}",
        f"does the server run, is it reached from here under host and port of {name}{followed},"
        " and does its user get in with that password",
    )


def collector(source: SourceSettings) -> ExaminedPart:
    """What brings the source's changes."""
    name, there = source.name, "does a Connect worker run, and is it reached from here at"
    if source.collector.kind in ("", USUAL):
        return ExaminedPart(f"collector:{name}", f"{there} collector.url of {name}")
    then = f"is all reached from here that it asks: see `collector` and `kind` of {name}"
    return ExaminedPart(f"collector:{name}", then)


def schema_registry(source: SourceSettings) -> ExaminedPart:
    """Where the schemas of the source's messages are."""
    return ExaminedPart(
        f"registry:{source.name}",
        "does the schema registry run, and may this user read it",
    )


def copy(plan: CopyPlan) -> ExaminedPart:
    """Where rows of mirrors are sent on to."""
    return ExaminedPart(
        f"copy:{plan.name}",
        f"does the store run, is it reached from here at {plan.copy.place}, and does its user get"
        " in with that password",
    )


def brokers(source: SourceSettings) -> ExaminedPart:
    """Where the source's topics are."""
    if source.transport:
        then = f"is what it reads reached from here: see `transport` of {source.name}"
        return ExaminedPart(f"kafka:{source.name}", then)
    return ExaminedPart(
        f"kafka:{source.name}",
        "do brokers run, and are they reached from here under all the names they advertise",
    )
