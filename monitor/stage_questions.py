"""Can a stage be asked for at all?  Images and copies are there only of tables that have some."""

from collections.abc import Callable, Sequence

from pipeline.model import Stage


def refusal(
    tables: Sequence[str],
    stage: Stage,
    copy: str,
    published: Callable[[str], bool],
    copies: Callable[[str], tuple[str, ...]],
) -> str:
    """Why not; empty if it can.

    *published* tells whether images are made of a table, *copies* the names of those it has.
    """
    if copy and stage is not Stage.COPY:
        return f"copy {copy!r} is asked for at stage {stage}; ask for stage copy, or name no copy"
    for name in tables:
        if stage is Stage.IMAGE and not published(name):
            return f"no images are made of {name}; name it in `publish`"
        if stage is Stage.COPY and copy not in (known := copies(name)):
            told = f"known: {', '.join(known)}" if known else "name it in `copies`"
            return f"{name} has no copy {copy!r}; {told}"
    return ""
