"""Must a client know who vouches for servers?  To read all authorities takes a tenth of a second.

Pure.
"""


def vouched(url: str) -> bool:
    """Whether the server at *url* has to show a certificate."""
    return url.startswith("https:")
