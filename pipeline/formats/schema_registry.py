"""Fetches Avro schemas by number from a Confluent-compatible registry, and caches them.

A number never gets another schema, so a schema is cached until the process ends or the cache is
full. An unknown number is requested again each time. Only the registry itself can report a number
as unknown, by error code 40403. A plain 404, such as that of a proxy, is an error. No connection is
kept, so a registry can be sent to where a task runs.

The request is `GET /schemas/ids/{id}` of Confluent's Schema Registry API.
"""

import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import httpx
import msgspec
import pyarrow as pa

from pipeline.errors import ConfigError, NoSchemasError
from pipeline.formats.format import Format, Schemas, split_skipped
from pipeline.http import BoundedClient
from pipeline.settings import RegistrySettings, without_login
from pipeline.tls import tls_faults, verify_option

NOT_THERE = 40403
MOST_CHARACTERS = 100_000_000  # of the cached schemas
MOST = 50_000  # cached schemas; a full cache is emptied
WITNESSES = 3  # known schemas that are requested to recognize a registry
known_schemas: dict[tuple[str, int], str] = {}


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """The registry of one source.

    ``lost`` are numbers that it may not know, as long as it still knows others. None: it may miss
    any number, and nothing is checked. ``others`` are numbers that it knew in another process.
    """

    source: str
    settings: RegistrySettings
    lost: frozenset[int] | None = None
    others: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check the address; nothing is requested yet.

        Raises:
            ConfigError: it is no URL, or credentials would be sent there in clear text.
        """
        try:
            found = httpx.URL(self.settings.url)
        except (httpx.InvalidURL, TypeError) as error:
            raise ConfigError(self._no_address()) from error
        if found.scheme not in ("http", "https") or not found.host:
            raise ConfigError(self._no_address())
        if fault := next(tls_faults(self.settings), ""):
            raise ConfigError(f"source {self.source}: format_options.registry.{fault}")

    def schemas(self, numbers: Iterable[int]) -> dict[int, str | None]:
        """Return the text of each schema; None if the registry has none.

        Raises:
            NoSchemasError: the registry does not answer, or not as one does, or does not know a
                number that is not ``lost``.
        """
        found: dict[int, str | None] = {
            n: known_schemas.get((self.settings.url, n)) for n in numbers
        }
        if lacking := [number for number, text in found.items() if text is None]:
            with self._client() as client:
                found |= {number: self._ask(client, number) for number in lacking}
                self._require_known(client, found)
        return found

    def known_numbers(self) -> tuple[int, ...]:
        """Return a few numbers that the registry knew in this process."""
        known = [number for (url, number) in list(known_schemas) if url == self.settings.url]
        return tuple(known[-WITNESSES:])

    def examine(self) -> None:
        """Request a schema that may or may not exist.

        Raises:
            NoSchemasError: as ``schemas``.
        """
        with self._client() as client:
            self._ask(client, 1)

    def _require_known(self, client: httpx.Client, found: Mapping[int, str | None]) -> None:
        unknown = frozenset(number for number, text in found.items() if text is None)
        if self.lost is None or not unknown:
            return
        numbers = ", ".join(str(number) for number in sorted(unknown)[:5])
        if unknown - self.lost:
            raise self._silent(f"it knows no schema {numbers}", unknown)
        if not any(self._ask(client, number) for number in {*self.known_numbers(), *self.others}):
            why = f"it knows no schema {numbers}, nor any other"
            why += "; is it the right one, or was it emptied"
            raise self._silent(why, unknown)

    def _ask(self, client: httpx.Client, number: int) -> str | None:
        url = f"{self.settings.url.rstrip('/')}/schemas/ids/{number}"
        try:
            answer = client.get(url)
            body = answer.json() if answer.content else None
        except httpx.HTTPError as error:
            raise self._silent(f"{type(error).__name__}: {error}") from error
        except ValueError as error:
            raise self._silent(f"{answer.status_code} and no JSON") from error
        if answer.status_code == httpx.codes.NOT_FOUND:
            if isinstance(body, Mapping) and body.get("error_code") == NOT_THERE:
                return None
            raise self._silent("404, and not as a registry answers; is its address right?")
        if not answer.is_success:
            raise self._silent(_refused(answer.status_code))
        return self._kept(number, body)

    def _kept(self, number: int, body: object) -> str:
        text = body.get("schema") if isinstance(body, Mapping) else None
        if not isinstance(text, str):
            raise self._silent("an answer without a schema; is its address right?")
        kind = body.get("schemaType", "AVRO") if isinstance(body, Mapping) else "AVRO"
        if kind != "AVRO":
            text = msgspec.json.encode({"type": str(kind)}).decode()  # not a type of Avro
        kept = sum(map(len, known_schemas.values()))
        if len(known_schemas) >= MOST or kept + len(text) > MOST_CHARACTERS:
            known_schemas.clear()
        known_schemas[self.settings.url, number] = text
        return text

    def _client(self) -> BoundedClient:
        its = self.settings
        return BoundedClient(
            timeout=its.timeout,
            verify=self._authorities(),
            auth=(its.user, its.password) if its.user else None,
            headers={"authorization": f"Bearer {its.token}"} if its.token else {},
        )

    def _authorities(self) -> ssl.SSLContext | bool:
        try:
            return verify_option(self.settings.url, self.settings)
        except ConfigError as error:
            raise self._silent(str(error).removeprefix("ca: ")) from error

    def _silent(self, why: str, numbers: frozenset[int] = frozenset()) -> NoSchemasError:
        where = httpx.URL(self.settings.url).netloc.decode()
        return NoSchemasError(self.source, f"the schema registry at {where}: {why}", numbers)

    def _no_address(self) -> str:
        its = f"format_options.registry.url: {without_login(self.settings.url)!r}"
        return f"source {self.source}: {its} is not an address; write http://host:port"


def decode_with_registry(
    format_: Format, registry: SchemaRegistry | None, batch: pa.RecordBatch
) -> pa.RecordBatch:
    """Decode *batch* with the schemas that it needs, without messages that hold no change.

    Raises:
        NoSchemasError: the registry does not return a schema.
    """
    return split_skipped(decode_all_messages(format_, registry, batch))[0]


def decode_all_messages(
    format_: Format, registry: SchemaRegistry | None, batch: pa.RecordBatch
) -> pa.RecordBatch:
    """Decode *batch* as :func:`decode_with_registry` does, with rows of ``Op.SKIPPED``."""
    needed = format_.needs(batch)
    schemas: Schemas = registry.schemas(needed) if needed and registry is not None else {}
    return format_.decode(batch, schemas)


def _refused(status: int) -> str:
    said = {401: "it needs a user or a token", 403: "it does not let this user read schemas"}
    return f"{status}; {said[status]}" if status in said else f"{status}; see its own log"
