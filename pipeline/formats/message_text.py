"""How does a person read one message, and write it anew?  As the text that it is, or as JSON.

A format whose messages are no text has a class of this kind beside its own, as ``MESSAGE_TEXT`` in
its module.
"""

from typing import Protocol

from pipeline.errors import FormatError
from pipeline.formats.format import Schemas


class MessageText(Protocol):
    """Reads and writes single messages; *schemas* hold that of the message."""

    def schema_of(self, value: bytes) -> int | None:
        """The number of the schema that a message names; None if it names none."""
        ...

    def readable(self, value: bytes, schemas: Schemas) -> str:
        """The message as a text.

        Raises:
            FormatError: it is none.
        """
        ...

    def written(self, text: str, schemas: Schemas, number: int | None) -> bytes:
        """*text* as a message, in schema *number*.

        Raises:
            FormatError: it does not fit the schema, or there is none.
        """
        ...


class PlainText:
    """A message is a text already."""

    def schema_of(self, value: bytes) -> None:
        """It names none."""

    def readable(self, value: bytes, schemas: Schemas) -> str:
        """As it is."""
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise FormatError("it is no text") from error

    def written(self, text: str, schemas: Schemas, number: int | None) -> bytes:
        """As it is."""
        return text.encode()
