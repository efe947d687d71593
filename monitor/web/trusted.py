"""May this request change something, or see values?  Only under our name, from no foreign page.

A page whose name is made to lead to this service (DNS rebinding) sends its own name as Host; a
browser adds the Origin of the page to whatever changes something.  Programs send no Origin.  Pure.
"""

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

LOCAL = frozenset({"localhost"})
READING = frozenset({"GET", "HEAD", "OPTIONS"})
SHOWING = frozenset({"/v1/quarantine/message", "/v1/bootstraps", "/v1/rereads"})
"""What tells values of rows to whoever reads it."""


def refusal(method: str, path: str, host: str, origin: str, names: Collection[str]) -> str:
    """Why it is refused, with what to do; empty if it may go on.

    *host* and *origin* are the request's headers, empty where it has none; *names* are ours.
    """
    if method in READING and path not in SHOWING:
        return ""
    name = _name(f"//{host}")
    if not _is_ours(name, names):
        return f"Host {host!r} is no name of this service; if it is, list it in http.names"
    if origin and origin.partition("://")[2] != host:
        return f"a page of {origin!r} may change nothing here"
    return ""


def _is_ours(name: str, names: Collection[str]) -> bool:
    if name in LOCAL or name in {one.lower() for one in names}:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _name(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""
