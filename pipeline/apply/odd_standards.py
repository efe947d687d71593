"""Which standards cannot be those of a table's columns?  Pure."""

from pipeline.errors import HeldError
from pipeline.model import Table
from pipeline.schema.model import TableSchema
from pipeline.standards.table_standards import TableStandards


def refuse_odd(own: TableStandards | None, table: Table, schema: TableSchema) -> None:
    """Refuse two keys that become one, one value with two answers, and a name of no column.

    Raises:
        HeldError: ``standards``, with what solves it.
    """
    if own is None:
        return
    there = {column.name.casefold() for column in schema.columns}
    if lacking := sorted(name for name in own.expected if name.casefold() not in there):
        detail = f"{table.name} has no column {lacking[0]}, for which there is a standard"
        raise HeldError("standards", f"{detail}; correct its name, or take it out")
    for name in table.key:
        standard = own.of(name)
        if standard is not None and not standard.distinct:
            detail = f"by the standard of key column {name} two rows may get one key"
            advice = "take it out of `standards`, or give it one that keeps values apart"
            raise HeldError("standards", f"{table.name}: {detail}; {advice}")
    for column in schema.columns:
        standard = own.of(column.name)
        alike = column.dialect.spelled_alike(column)
        if standard is not None and standard.distinct and not alike:
            detail = f"a value of column {column.name} ({column}) may come in two spellings"
            advice = "give it a mask, or take it out of `standards` and do not send it"
            raise HeldError("standards", f"{table.name}: {detail}, with an answer each; {advice}")
