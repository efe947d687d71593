"""Provides the HTTP client for servers of this machine.

A client that is created for one request reads all certificates that the machine trusts. That takes
24 ms of a core, and a wait for a server asks twenty times a second. This client is created once. It
keeps no connection, because the server may have been killed since.
"""

import httpx

LOCAL = httpx.Client(trust_env=False, timeout=60, limits=httpx.Limits(max_keepalive_connections=0))
