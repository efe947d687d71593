"""Facts about a host that is asked: whether it is this machine, and whether it must be verified.

To read all authorities takes a tenth of a second.  Pure.
"""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address

_LOGIN = re.compile(r"(?:\A(?!\S*//)|(?<=//))\S*@")


def vouched(url: str) -> bool:
    """Whether the server at *url* has to show a certificate."""
    return url[:6].lower() == "https:"


def without_login(text: str) -> str:
    """*text* without the user and password of any URL in it, whether the URL can be read or not."""
    return _LOGIN.sub("(hidden)@", text)


def address_of(text: str) -> IPv4Address | IPv6Address | None:
    """The address that *text* writes, as IPv4 where it can be; None if it is a name."""
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return (isinstance(found, IPv6Address) and found.ipv4_mapped) or found


def needs_tls(tls: bool | None, host: str) -> bool:
    """Whether the server at *host* must speak TLS: as *tls* says, else unless it is local."""
    return not (is_loopback(host) or host.startswith("/")) if tls is None else tls


def is_loopback(host: str) -> bool:
    """Whether *host* is this machine and no network reaches it so; the DNS is not asked."""
    if host.lower() == "localhost":
        return True
    address = address_of(host)
    return address is not None and address.is_loopback
