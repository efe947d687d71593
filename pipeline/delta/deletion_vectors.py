"""Reads and writes deletion vectors, the bitmaps of deleted rows, with all checks.

Format (Delta protocol, "Deletion Vector Format"): one byte (1), then per vector its size
(big-endian), magic and portable 64-bit roaring bitmap (little-endian), and the CRC-32 of both
(big-endian).

Files are below `_v/`, which every VACUUM treats as hidden. In other locations the full VACUUM
of deltalake removes vectors that are in use. Only Sluice's own maintenance removes files there.
"""

import base64
import struct
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyroaring import BitMap64

from pipeline.delta.store import Store, open_store
from pipeline.errors import HeldError

PREFIX = "_v"
Descriptor = Mapping[str, Any]

_MAGIC = 1681511377
_VERSION = b"\x01"
_UUID_CHARACTERS = 20
_PYTHON85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85 = bytes.maketrans(_PYTHON85, _Z85)
_FROM_Z85 = bytes.maketrans(_Z85, _PYTHON85)


def read_vector(store: Store, descriptor: Descriptor) -> BitMap64:
    """Positions of the deleted rows in their data file, counted from 0.

    Raises:
        HeldError: ``vector_damaged``, the file is missing or damaged.
    """
    kind, size = descriptor["storageType"], descriptor["sizeInBytes"]
    if kind == "i":
        # z85 pads to a multiple of four bytes; the size says where the vector ends
        return _positions(_from_z85(descriptor["pathOrInlineDv"])[:size], descriptor, "inline")
    name = file_name(descriptor)
    if name is None:
        if kind != "p":
            raise _damaged(store.uri, f"a deletion vector of unknown kind {kind!r}")
        folder, _, name = str(descriptor["pathOrInlineDv"]).rpartition("/")
        store = open_store(folder)
    return _positions(_stored(store, name, descriptor), descriptor, f"{store.uri}/{name}")


def file_name(descriptor: Descriptor) -> str | None:
    """File of a vector stored with its table, relative to the table; None for other kinds."""
    if descriptor["storageType"] != "u":
        return None
    text = str(descriptor["pathOrInlineDv"])
    prefix, name = text[:-_UUID_CHARACTERS], text[-_UUID_CHARACTERS:]
    file = f"deletion_vector_{uuid.UUID(bytes=_from_z85(name))}.bin"
    return f"{prefix}/{file}" if prefix else file


def vector_identity(descriptor: Descriptor | None) -> str | None:
    """The unique id of a vector; with the path of a data file it identifies a logical file."""
    if descriptor is None:
        return None
    offset = descriptor.get("offset")
    own = f"{descriptor['storageType']}{descriptor['pathOrInlineDv']}"
    return own if offset is None else f"{own}@{offset}"


@dataclass(eq=False)
class VectorFile:
    """One file with all vectors of a commit; nothing is written before ``save``."""

    id: uuid.UUID = field(default_factory=uuid.uuid4)
    _content: bytearray = field(default_factory=lambda: bytearray(_VERSION))

    @property
    def name(self) -> str:
        """Name of the file, relative to the table."""
        return f"{PREFIX}/deletion_vector_{self.id}.bin"

    def add(self, bitmap: BitMap64) -> dict[str, Any]:
        """Add a vector; return its descriptor for the ``add`` of the data file."""
        compact = BitMap64(bitmap)
        compact.run_optimize()
        vector = struct.pack("<i", _MAGIC) + compact.serialize()
        offset = len(self._content)
        self._content += struct.pack(">i", len(vector)) + vector
        self._content += struct.pack(">I", zlib.crc32(vector))
        return {
            "storageType": "u",
            "pathOrInlineDv": PREFIX + _to_z85(self.id.bytes),
            "offset": offset,
            "sizeInBytes": len(vector),
            "cardinality": len(bitmap),
        }

    def save(self, store: Store) -> None:
        """Write the file if it holds a vector; call this before the commit that refers to it."""
        if len(self._content) > len(_VERSION):
            store.put(self.name, bytes(self._content))


def _stored(store: Store, name: str, descriptor: Descriptor) -> bytes:
    size = descriptor["sizeInBytes"]
    where = f"{store.uri}/{name}"
    try:
        found = store.read(name, descriptor.get("offset") or 0, size + 8)
    except FileNotFoundError as error:
        raise _damaged(where, "the file is gone") from error
    if len(found) != size + 8:
        raise _damaged(where, f"{len(found)} bytes where {size + 8} were written")
    if struct.unpack_from(">i", found)[0] != size:
        raise _damaged(where, "another size than the log's")
    if struct.unpack_from(">I", found, size + 4)[0] != zlib.crc32(found[4:-4]):
        raise _damaged(where, "wrong checksum")
    return found[4:-4]


def _positions(vector: bytes, descriptor: Descriptor, where: str) -> BitMap64:
    if len(vector) != descriptor["sizeInBytes"] or vector[:4] != struct.pack("<i", _MAGIC):
        raise _damaged(where, "it does not begin as a vector does")
    try:
        bitmap = BitMap64.deserialize(vector[4:])
    except (ValueError, MemoryError) as error:
        raise _damaged(where, str(error)) from error
    if len(bitmap) != descriptor["cardinality"]:
        raise _damaged(where, f"{len(bitmap)} rows where the log says {descriptor['cardinality']}")
    return bitmap


def _damaged(where: str, what: str) -> HeldError:
    return HeldError(
        "vector_damaged",
        f"{where}: {what}; restore the file from a backup, or rebuild the table",
    )


def _to_z85(data: bytes) -> str:
    return base64.b85encode(data).translate(_TO_Z85).decode("ascii")


def _from_z85(text: str) -> bytes:
    return base64.b85decode(text.encode("ascii").translate(_FROM_Z85))
