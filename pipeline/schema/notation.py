"""In which notation are the values of a column written?  A dialect reads each into one.  Pure."""

from enum import StrEnum


class Notation(StrEnum):
    """Whose texts the values are.

    CONNECT: Connect's converters': days and microseconds since 1970, bytes in base64.
    TEXTS: the server's own texts, all as strings; bytes as one letter each (ISO 8859-1), BIT and
    SET as a number of bits, ENUM as the number of its label, from 1 on.
    PLAIN: JSON's own numbers and lists, dates and times as the server writes them, bytes in
    base64, ENUM and SET by their labels.
    """

    CONNECT = "connect"
    TEXTS = "texts"
    PLAIN = "plain"
