"""Decides whether a request may be answered: by its Host, its Origin and its token.

A page whose name is made to lead to this service (DNS rebinding) sends its own name as Host; a
browser adds the Origin of the page to a request that writes.  For an image or a link it adds only
Sec-Fetch-Site, and the gate stores a certificate when it is read.  Programs send neither.  Pure.
"""

import hmac
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from pipeline.settings import address_of, is_loopback

READING = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES = frozenset({"", "none", "same-origin"})
"""What Sec-Fetch-Site may be: no browser, an address that a person typed, a page of ours."""
API = "/v1/"
OPEN = frozenset({"/livez", "/readyz", "/metrics"})
"""Paths that may be read without a token from any machine: they show no row."""

TOKEN_NEEDED = (
    "this request needs the token of http.auth; "  # noqa: S105  - not a token
    "set SLUICE_TOKEN, or send 'Authorization: Bearer TOKEN'"
)


@dataclass(frozen=True, slots=True)
class Access:
    """How the service may be asked.

    ``names`` are its host names, ``token`` is what a request must bring, empty where none is set.
    ``beyond``: other machines reach it, so the token is needed for reading, too.
    """

    names: frozenset[str] = frozenset()
    token: str = ""
    beyond: bool = False

    def unauthorized(self, method: str, path: str, authorization: str) -> bool:
        """Whether the request lacks the token that it needs; compared in constant time."""
        needed = method not in READING or (self.beyond and path not in OPEN)
        if not self.token:
            return self.beyond and needed
        scheme, _, sent = authorization.partition(" ")
        same = hmac.compare_digest(sent.strip().encode(), self.token.encode())
        return needed and not (same and scheme.lower() == "bearer")


def refusal(
    host: str,
    origin: str,
    names: Collection[str],
    bound: str = "",
    *,
    path: str = "",
    site: str = "",
) -> str:
    """Why a request is refused, with the fix; empty if it is accepted.

    *host* and *origin* are the request's headers, empty where it has none; *names* are ours.
    *bound* is the address at which this connection arrived, *site* the header Sec-Fetch-Site.
    Links of other sites may lead to the pages for people, not to the API.
    """
    if not _is_ours(_name(f"//{host}"), names, bound):
        return f"Host {host!r} is no name of this service; if it is, list it in http.names"
    if origin and origin.partition("://")[2] != host:
        return f"a page of {origin!r} may ask nothing here"
    if path.startswith(API) and site not in OWN_SITES:
        return f"a page of another site may ask nothing under {API}; open the address itself"
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
