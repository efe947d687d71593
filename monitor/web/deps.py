"""Provides what API routes share: request checks, parts, limits and gate long polling.

A request is accepted or refused by its Host, Origin and token. A page whose name resolves to this
service (DNS rebinding) sends its own name as Host. A browser adds the Origin of the page to a
request that writes. To a request for an image or a link it adds only Sec-Fetch-Site. Such requests
matter too: reading the gate stores a certificate, and tracing a row commits heartbeats at its
source. Programs send neither Origin nor Sec-Fetch-Site.

FastAPI reads the parameters of a route once, when its router is made. So a router has no parts of
its own, and gets those of its application with each request.

Every second, one thread examines all waiting gate questions and finds those that may be READY by
now. These are asked again, once for all requests with the same question. Only a few are asked at a
time, and new requests go first. The others are asked in rotation too, because another cause may
have closed them.
"""

import asyncio
import hmac
import math
import re
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from socket import getfqdn, gethostname
from typing import Annotated, Any, Generic, TypeVar, cast
from urllib.parse import urlsplit

import structlog
from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Query, Request
from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints

from monitor.board import CurrentBoard
from monitor.clients import Lineage
from monitor.config.model import HttpSettings
from monitor.display_text import similar_names
from monitor.gate import Decision, Gate, GateQuestion
from monitor.quarantine import ErrorTable
from monitor.runtime import RequestPriority
from monitor.store.store import ServiceStore
from monitor.tracing import Tracer
from monitor.waivers import WaivableIds
from monitor.web.metrics import Scrape
from monitor.web.server import most_connections
from pipeline.durations import PATTERN, parse_duration
from pipeline.errors import ConfigError, UnknownNameError, UnreachableError
from pipeline.model import Table
from pipeline.settings import address_of, is_loopback
from pipeline.sources.source import SourceArrivals

READING = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES = frozenset({"", "none", "same-origin"})
"""Accepted values of Sec-Fetch-Site: no browser, an address that a user typed, our own page."""
API = "/v1/"
OPEN = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths that any machine may read without a token, because they show no row."""

TOKEN_NEEDED = (
    "this request needs the token of http.auth; "  # noqa: S105  - not a token
    "set SLUICE_TOKEN, or send the header 'Authorization: Bearer TOKEN'"
)


@dataclass(frozen=True, slots=True)
class Access:
    """Which requests the service accepts.

    ``names`` are its host names. ``token`` is the token that a request must bring, empty if none is
    set. ``beyond``: other machines reach the service, so reading needs the token, too.
    """

    names: frozenset[str] = frozenset()
    token: str = ""
    beyond: bool = False

    @classmethod
    def of(cls, http: HttpSettings) -> "Access":
        """Build access from the names of this machine and those of the settings."""
        names = frozenset({*http.names, http.host, gethostname(), getfqdn()})
        token = "" if http.auth is None else http.auth.token
        return cls(names - {""}, token, beyond=not is_loopback(http.host))

    def unauthorized(self, method: str, path: str, authorization: str) -> bool:
        """Tell whether the request needs a token and has none; compares in constant time."""
        needed = method not in READING or (self.beyond and path not in OPEN)
        if not self.token:
            return self.beyond and needed
        scheme, _, sent = authorization.partition(" ")
        same = hmac.compare_digest(sent.strip().encode(), self.token.encode())
        return needed and not (same and scheme.lower() == "bearer")


def find_refusal(
    host: str,
    origin: str,
    names: Collection[str],
    bound: str = "",
    *,
    path: str = "",
    site: str = "",
    acts: bool = False,
) -> str:
    """Return why a request is refused, with the fix; empty if it is accepted.

    *host* and *origin* are the request's headers, empty if absent. *names* are those of the
    service. *bound* is the address at which this connection arrived, *site* the header
    Sec-Fetch-Site. Other sites may link to the pages for people, but neither to the API nor to a
    page that *acts*.
    """
    if not _is_ours(_name(f"//{host}"), names, bound):
        return f"Host {host!r} is not a known name of this service; add it to http.names"
    if origin and origin.partition("://")[2] != host:
        return f"requests from pages of {origin!r} are refused; use a page of this service"
    if (acts or path.startswith(API)) and site not in OWN_SITES:
        what = path if acts else API
        return f"requests from other sites to {what} are refused; open the address directly"
    return ""


def _is_ours(name: str, names: Collection[str], bound: str) -> bool:
    if is_loopback(name) or name in {one.lower() for one in names}:
        return True
    address = address_of(name)
    return address is not None and address in {address_of(bound), *map(address_of, names)}


def _name(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""


AGAIN = 1.0  # seconds between two rounds
SEEN = 1.0  # seconds between two looks for disconnected clients
GRACE = 1.0  # seconds that a timed-out request waits for its last answer
MOST = 200  # questions per round: at a millisecond each, a fifth of the time
FEWEST, TURNS = 20, 30  # least number per round without hope, so that all are asked in 30 rounds
MOST_WAITING = 1_000  # requests; each keeps a connection that health checks need, too
AT_ONCE = 4  # one silent mirror must not block the answers of the others
Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A")
log = structlog.get_logger(__name__)


async def never_gone() -> bool:
    """Report that the client is connected: the default for clients."""
    return False


class BusyError(UnreachableError):
    """Raised if too many requests wait already; the same request may succeed later."""


class LongPollFullError(BusyError):
    """Raised if too many requests wait at the gate; the same request without a wait is answered."""


@dataclass(eq=False)
class LongPoll(Generic[Q, A]):
    """Answers waiting requests by calling ``ask`` in threads; to be used from one event loop.

    ``hopeful`` selects the questions that are worth asking. ``closing`` returns whether waiting
    must end. At most ``most`` requests wait at once.
    """

    ask: Callable[[Q], A]
    way: RequestPriority
    hopeful: Callable[[Sequence[Q]], Sequence[Q]] = tuple
    closing: Callable[[], bool] = lambda: False
    most: int = MOST_WAITING
    _waiters: int = 0
    _waiting: dict[Q, asyncio.Future[A]] = field(default_factory=dict)  # oldest first
    _asked: dict[Q, asyncio.Task[A]] = field(default_factory=dict)
    _answering: asyncio.Task[None] | None = None
    _limit: CapacityLimiter | None = None

    async def next(
        self,
        question: Q,
        within: float | None = None,
        gone: Callable[[], Awaitable[bool]] = never_gone,
    ) -> A | None:
        """Return the next answer to *question*, shared by all who wait for it.

        None if no answer comes within *within* seconds, nor shortly after the last attempt. None
        also for a client that has *gone*; its slot is then free.

        Raises:
            LongPollFullError: ``most`` wait already.
        """
        if self._waiters >= self.most:
            raise LongPollFullError(
                f"{self._waiters} requests already wait at the gate; try again later"
            )
        self._waiters += 1
        try:
            return await self._next(question, within, gone)
        finally:
            self._waiters -= 1

    async def _next(
        self, question: Q, within: float | None, gone: Callable[[], Awaitable[bool]]
    ) -> A | None:
        if question not in self._waiting:
            self._waiting[question] = asyncio.get_running_loop().create_future()
        answer = self._waiting[question]
        if self._answering is None or self._answering.done():
            self._answering = asyncio.create_task(self._answer_in_order())
        clock = asyncio.get_running_loop().time
        until = math.inf if within is None else clock() + within
        while not answer.done() and (left := until - clock()) > 0:
            await asyncio.wait({answer}, timeout=min(left, SEEN))
            if not answer.done() and await gone():
                return None
        if not answer.done():
            self._begin(question)
            await asyncio.wait({answer}, timeout=GRACE)
        return answer.result() if answer.done() else None

    async def _answer_in_order(self) -> None:
        while self._waiting:
            await asyncio.sleep(AGAIN)
            for question in await self._due():
                self._begin(question)

    async def _due(self) -> Sequence[Q]:
        waiting = [question for question in self._waiting if question not in self._asked]
        if self.closing():
            return waiting
        anyway = waiting[: max(FEWEST, len(self._waiting) // TURNS)]
        rest = waiting[len(anyway) :]
        hopeful = await to_thread.run_sync(self._hopeful, rest) if rest else ()
        return [*anyway, *hopeful[: max(0, MOST - len(self._asked))]]

    def _hopeful(self, questions: Sequence[Q]) -> Sequence[Q]:
        self.way.give()
        try:
            return self.hopeful(questions)
        except Exception:  # the boundary of one round: the next round asks again
            log.exception("hope_unknown", waiting=len(questions))
            return ()

    def _begin(self, question: Q) -> None:
        if question in self._waiting and question not in self._asked:
            task = self._asked[question] = asyncio.create_task(self._answer(question))
            task.add_done_callback(partial(self._tell, question))

    async def _answer(self, question: Q) -> A:
        if self._limit is None:
            self._limit = CapacityLimiter(AT_ONCE)
        return await to_thread.run_sync(partial(self._ask, question), limiter=self._limit)

    def _tell(self, question: Q, asked: asyncio.Task[A]) -> None:
        """Pass the answer, or the error of the question, to the requests that wait for it."""
        del self._asked[question]
        answer = self._waiting.pop(question)
        if asked.cancelled():
            answer.cancel()
        elif error := asked.exception():
            answer.set_exception(error)
            answer.exception()  # mark the error as seen, because all may have disconnected
        else:
            answer.set_result(asked.result())

    def _ask(self, question: Q) -> A:
        self.way.give()
        return self.ask(question)


@dataclass(eq=False)
class ThreadLimit:
    """Runs slow work in its own threads, at most ``at_once``, so that other requests do not wait.

    At most ``most`` more calls wait for a thread. ``work`` names the work in messages. To be used
    from one event loop.
    """

    work: str
    at_once: int
    most: int
    _count: int = 0
    _limit: CapacityLimiter | None = None

    async def run(self, call: Callable[[], A]) -> A:
        """Run *call* in a thread and return its result.

        Raises:
            BusyError: ``most`` wait already.
        """
        if self._count >= self.at_once + self.most:
            raise BusyError(f"{self._count} {self.work} already run or wait; try again later")
        self._count += 1
        try:
            if self._limit is None:
                self._limit = CapacityLimiter(self.at_once)
            return await to_thread.run_sync(call, limiter=self._limit)
        finally:
            self._count -= 1


TRACES_AT_ONCE, MOST_TRACES_WAITING = 4, 8
GateRoom = LongPoll[GateQuestion, Decision]


@dataclass(frozen=True, slots=True)
class ApiParts:
    """The objects that routes read and write; ``estimates``: source -> estimated rows per shard.

    ``errors`` reads the quarantine, and ``links`` the lineage of columns; both are None without a
    lake. ``arrivals`` are those of sources whose rows come in partitions. ``rows`` traces single
    rows; None without a lake. ``traces`` limits how many are traced at once. ``waits``: table ->
    checks whose last look gave no verdict, each with the reason.
    """

    gate: Gate
    current: CurrentBoard
    store: ServiceStore
    clock: Callable[[], datetime]
    stopping: Callable[[], bool]
    access: Access = field(default_factory=Access)
    way: RequestPriority = field(default_factory=RequestPriority)
    estimates: Callable[[str], Mapping[str, int]] = lambda _: {}
    errors: ErrorTable | None = None
    links: Lineage | None = None
    arrivals: Mapping[str, SourceArrivals] = field(default_factory=dict)
    rows: Tracer | None = None
    traces: ThreadLimit = field(
        default_factory=lambda: ThreadLimit("traces", TRACES_AT_ONCE, MOST_TRACES_WAITING)
    )
    waits: Callable[[str], Mapping[str, str]] = lambda _: {}
    scrape: Scrape = field(init=False)

    def __post_init__(self) -> None:
        """Create the registry that Prometheus scrapes."""
        object.__setattr__(self, "scrape", Scrape(self.current, self.clock))

    def borne(self, name: str) -> bool:
        """Tell whether anything waivable has this id now."""
        return WaivableIds(self.gate, self.store.outbox).exists(name)

    def table(self, name: str) -> Table:
        """Return the table of that name.

        Raises:
            UnknownNameError: no table has this name now.
        """
        found = self.gate.roster.table(name)
        if found is None:
            raise UnknownNameError(f"no table {name!r}; nothing was recorded; {self._named(name)}")
        return found

    def require_known(self, name: str) -> None:
        """Refuse a name that no table has or had.

        Raises:
            UnknownNameError: no table has had this name, as far as has landed.
        """
        roster, retired = self.gate.roster, self.current.board.retired
        if roster.known and not roster.table(name) and name not in {one.table for one in retired}:
            raise UnknownNameError(f"no table {name!r}; {self._named(name)}")

    def _named(self, name: str) -> str:
        return f"known: {similar_names(name, [table.name for table in self.gate.roster.tables()])}"

    def error_table(self) -> ErrorTable:
        """Return the reader of the quarantine.

        Raises:
            ConfigError: the service has no lake.
        """
        if self.errors is None:
            raise ConfigError("this service reads no change log, so it has no quarantine")
        return self.errors

    def tracer(self) -> Tracer:
        """Return the tracer of rows.

        Raises:
            ConfigError: the service has no lake.
        """
        if self.rows is None:
            raise ConfigError("this service reads no change log, so it traces no row")
        return self.rows

    def lineage(self) -> Lineage:
        """Return the reader of column lineage.

        Raises:
            ConfigError: the service has no lake.
        """
        if self.links is None:
            raise ConfigError("this service reads no change log, so it has no lineage")
        return self.links

    def room(self) -> GateRoom:
        """Create the long polling of the gate."""
        gate = self.gate
        most = most_connections() // 2  # the others are for health checks and plain questions
        return GateRoom(
            lambda asked: gate.decide(*asked), self.way, gate.hopeful, self.stopping, most
        )


async def _parts(request: Request) -> ApiParts:
    return cast(ApiParts, request.app.state.parts)


async def _room(request: Request) -> GateRoom:
    return cast(GateRoom, request.app.state.room)


Parts = Annotated[ApiParts, Depends(_parts)]
Room = Annotated[GateRoom, Depends(_room)]


_LENGTH = re.compile(PATTERN, re.IGNORECASE)


def parse_seconds(value: Any) -> Any:
    """Return the seconds of a duration such as ``5m``; anything else unchanged."""
    try:
        return parse_duration(value).total_seconds() if isinstance(value, str) else value
    except ValueError:
        return value


def end_after(text: str, now: datetime) -> datetime:
    """Return the end that *text* means: RFC 3339 with its offset, or a duration from now.

    Raises:
        ConfigError: it is neither, or it has passed.
    """
    try:
        if _LENGTH.match(text):
            found = now + parse_duration(text)
        else:
            found = datetime.fromisoformat(text.upper())
        found = found if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:  # also beyond the last year, but for the offset
        msg = f"until {text!r} is not an instant or a duration; write 2026-03-29T12:00:00Z or 4h"
        raise ConfigError(msg) from error
    if found.tzinfo is None:
        raise ConfigError(f"until {text!r} has no offset from UTC; add it, as in ...T12:00:00Z")
    if found <= now:
        raise ConfigError(f"until {text!r} is in the past; use a later time")
    return found


def _in_utc(at: datetime) -> datetime:
    try:
        return at.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("must be from the year 1 to 9999 in UTC") from error


Instant = Annotated[AwareDatetime, AfterValidator(_in_utc)]
"""An instant with its offset, converted to UTC."""
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=1000)]
"""A name, a reason or a person: never blank."""
Word = Annotated[str, StringConstraints(max_length=200)]
"""A name or a value that may be left out."""
Line = Annotated[str, StringConstraints(max_length=100_000)]
"""A key, range or condition; half a surrogate pair is refused, as in each bounded text."""
TableNames = Annotated[list[Text], Field(min_length=1, max_length=1000)]
"""The tables of one request."""
Limit = Annotated[int, Query(ge=1, le=10_000)]
"""The highest number of listed entries."""
Rate = Annotated[int, Field(ge=0, le=100_000_000)]
"""The highest number of rows read per second; 0: only the source's limits apply."""
