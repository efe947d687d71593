"""Does Connect hand changes to Kafka so that none is skipped, and none overtakes another?

Settings of the connector (``producer.override.*``) go before the worker's (``producer.*``), and
those before Connect's own, which are not Kafka's: all acks, one request in flight, no idempotence.
Connect does not show a worker's settings: they must be told, or stated in the connector.  Pure.
"""

from collections.abc import Mapping
from dataclasses import replace

from pipeline.finding import NOTE, REFUSE, WARN, Demand, Effect, Finding, unmet

OVER = "producer.override."
IN_FLIGHT = "max.in.flight.requests.per.connection"
OWN = {
    "acks": "all",
    "retries": "2147483647",
    "enable.idempotence": "false",
    IN_FLIGHT: "1",
}
DEMANDS = (
    Demand(
        "acks",
        "a broker that fails takes acknowledged changes with it",
        good=("all", "-1"),
        effect=Effect.DROPS,
    ),
    Demand(
        "retries",
        "one transient error loses a change, or stops the connector",
        bad=("0",),
        effect=Effect.DROPS,
    ),
)
SIZES = {"max.request.size": 1_048_576, "buffer.memory": 33_554_432}  # Kafka's own, in bytes
FLUSH, LONGEST_FLUSH = "offset.flush.interval.ms", 5_000


def producer_findings(
    config: Mapping[str, str], where: str, worker: Mapping[str, str] | None
) -> list[Finding]:
    """Rule on how the connector with that *config* writes; *worker* None: not known."""
    settings = dict(OWN)
    for prefix, own in (("producer.", worker or {}), (OVER, config)):
        settings |= {name: own[prefix + name] for name in OWN if prefix + name in own}
    remedy = f"{OVER}{{name}}={{value}} in the connector's config"
    fixed = {"retries": f"{OVER}retries=2147483647 in the connector's config"}
    found = [
        replace(f, fix=fixed.get(f.code, f.fix))
        for f in unmet(DEMANDS, settings, where, remedy=remedy)
    ]
    if settings["enable.idempotence"].strip().lower() != "true":
        found += _reordered(settings[IN_FLIGHT], where)
    return [*found, *_unseen(config, where, worker), *_flush(where, worker)]


def largest_record(config: Mapping[str, str], worker: Mapping[str, str] | None) -> int:
    """The size in bytes above which the connector's producer refuses a record."""
    told = {**{n.removeprefix("producer."): v for n, v in (worker or {}).items()}}
    told |= {n.removeprefix(OVER): v for n, v in config.items() if n.startswith(OVER)}
    sizes = [int(told.get(n, own)) for n, own in SIZES.items() if told.get(n, "0").isdecimal()]
    return min(sizes, default=SIZES["max.request.size"])


def _reordered(in_flight: str, where: str) -> list[Finding]:
    """What requests in flight do without idempotence; a reference hides how many there are."""
    told, number = f"{IN_FLIGHT}={in_flight}", _number(in_flight)
    fix = f"{OVER}enable.idempotence=true in the connector's config"
    if number is None:
        what = f"{told} is no number that can be read here: above 1 a retry reorders changes"
        return [Finding(WARN, IN_FLIGHT, where, what, fix, Effect.DROPS)]
    if number <= 1:
        return []
    what = f"{told} without idempotence: a retry reorders changes"
    return [Finding(REFUSE, IN_FLIGHT, where, what, fix, Effect.DROPS)]


def _number(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _unseen(
    config: Mapping[str, str], where: str, worker: Mapping[str, str] | None
) -> list[Finding]:
    open_ = [name for name in OWN if OVER + name not in config]
    if worker is not None or not open_:
        return []
    what = f"{', '.join(open_)} of the producer may be set by the worker, which Connect hides"
    fix = f"state them as {OVER}* in the connector's config, or show the worker's file: --worker"
    return [Finding(NOTE, "producer_unseen", where, what, fix)]


def _flush(where: str, worker: Mapping[str, str] | None) -> list[Finding]:
    """Proofs wait for stored offsets: each is late by up to one interval."""
    fix = f"{FLUSH}={LONGEST_FLUSH} in the worker's file, and a restart of Connect"
    if worker is None:
        what = f"{FLUSH} cannot be seen (60 s by default): readiness waits for it"
        return [Finding(NOTE, "flush_unseen", where, what, f"check, with --worker: {fix}")]
    value = _number(told := worker.get(FLUSH, "60000"))
    if value is None:
        what = f"{FLUSH}={told} is no number that can be read here: readiness waits for it"
        return [Finding(NOTE, "flush_unseen", where, what, fix)]
    if value <= LONGEST_FLUSH:
        return []
    what = f"{FLUSH}={value}: each proof of readiness is late by up to that"
    return [Finding(WARN, FLUSH, where, what, fix)]
