"""The HTTP client for servers of this machine.

A client that is made for one question reads all certificates that the machine trusts: 24 ms of a
core, and a wait for a server asks twenty times a second.  This one is made once.  It keeps
no connection: the server may have been killed since.
"""

import httpx

LOCAL = httpx.Client(trust_env=False, timeout=60, limits=httpx.Limits(max_keepalive_connections=0))
