"""One table's metadata told in many ways: only those that read other rows have another shape."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from pipeline.delta.log import shape_of

PART = {"name": "at", "type": "timestamp", "nullable": True, "metadata": {}}
STRUCT = {"type": "struct", "fields": [PART]}


def field(name: str, kind: Any, *, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    told = {one.replace("_", "."): value for one, value in metadata.items()}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": told}


FIELDS = (field("id", "long"), field("price", "decimal(10,2)"), field("meta", STRUCT))


def told(*fields: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    text = json.dumps({"type": "struct", "fields": fields or FIELDS})
    known = {"id": "t", "schemaString": text, "partitionColumns": []}
    return {**known, "configuration": {"sluice.floors": "{}"}, **more}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(told(name="orders", description="of the shop"), id="a name"),
        pytest.param(told(*FIELDS[::-1]), id="columns in another order"),
        pytest.param(told(field("id", "long", comment="the key"), *FIELDS[1:]), id="a comment"),
        pytest.param(told(field("id", "long", nullable=False), *FIELDS[1:]), id="not null"),
        pytest.param(
            told(FIELDS[0], field("price", "decimal(10, 2)"), FIELDS[2]), id="spelled with blanks"
        ),
        pytest.param(
            told(field("id", "long", delta_columnMapping_physicalName="id"), *FIELDS[1:]),
            id="mapped to the name it has",
        ),
        pytest.param(
            told(configuration={"sluice.floors": "{}", "delta.appendOnly": "false"}), id="a setting"
        ),
    ],
)
def test_what_reads_the_same_rows_has_the_same_shape(other: Mapping[str, Any]) -> None:
    assert shape_of(other) == shape_of(told())


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(told(*FIELDS[:-1]), id="a column less"),
        pytest.param(told(*FIELDS, field("new", "string")), id="a column more"),
        pytest.param(told(field("ID", "long"), *FIELDS[1:]), id="another name"),
        pytest.param(told(field("id", "integer"), *FIELDS[1:]), id="another type"),
        pytest.param(
            told(field("id", "long", delta_columnMapping_physicalName="col-1"), *FIELDS[1:]),
            id="another name in files, as of a column dropped and added",
        ),
        pytest.param(
            told(*FIELDS[:2], field("meta", {**STRUCT, "fields": [{**PART, "name": "on"}]})),
            id="another name inside of a column",
        ),
        pytest.param(told(configuration={}), id="what Sluice remembers is gone"),
        pytest.param(told(id="u"), id="another table"),
        pytest.param(told(partitionColumns=["id"]), id="other partitions"),
    ],
)
def test_what_reads_other_rows_has_another_shape(other: Mapping[str, Any]) -> None:
    assert shape_of(other) != shape_of(told())
