"""How does a mirror get the columns of today?  In one commit, with the files whose rows change."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from pipeline.apply.adoption import Adoption
from pipeline.apply.fills import Fill
from pipeline.apply.mirror_snapshot import CommitStamp, following, note
from pipeline.apply.reshape import Growth, Shape, growth, lake_schema
from pipeline.lake.alterations import altered
from pipeline.lake.commit import commit, create
from pipeline.lake.entries import Action
from pipeline.lake.log import Metadata, Snapshot
from pipeline.lake.protocol import column_types
from pipeline.lake.store import Store
from pipeline.model import Table
from pipeline.tables.delta.layout import Layout
from pipeline.tables.delta.mirror_files import MirrorFiles
from pipeline.tables.delta.rewrite import rewrite
from pipeline.tables.delta.write import Target

PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "20"}
REWRITES = "sluice: columns"


def begun(store: Store, shape: Shape, stamp: CommitStamp) -> Snapshot:
    """Create the mirror, empty."""
    return create(
        store,
        lake_schema(shape.schema.columns),
        clock=stamp.at,
        configuration={**PROPERTIES, **shape.texts},
        note=note(-1, -1, stamp.lane),
    )


def lacking(snapshot: Snapshot, shape: Shape) -> Growth | None:
    """What the mirror lacks; see :func:`pipeline.apply.reshape.growth`."""
    return growth(snapshot, partial(column_types, snapshot), shape)


def followed(store: Store, snapshot: Snapshot, shape: Shape, stamp: CommitStamp) -> Snapshot:
    """The mirror with the columns of today; the same snapshot where they are.

    Raises:
        HeldError: a change cannot be followed; names it and the statement that solves it.
        LostRaceError: somebody else committed meanwhile.
    """
    step = lacking(snapshot, shape)
    actions = altered(snapshot, step.schema, step.remembered) if step is not None else ()
    if step is None or not actions:
        return snapshot
    more: Sequence[Action] = ()
    if step.rewrites:
        more = _rewritten(store, snapshot, shape.table, actions, fills=step.fills, clock=stamp.at)
    return commit(
        store,
        snapshot,
        (*actions, *more),
        operation=REWRITES,
        clock=stamp.at,
        note=following(snapshot, -1, stamp.lane),
    )


def _rewritten(
    store: Store,
    snapshot: Snapshot,
    table: Table,
    actions: Sequence[Action],
    *,
    fills: Sequence[Fill],
    clock: datetime,
) -> tuple[Action, ...]:
    described = next(action["metaData"] for action in actions if "metaData" in action)
    mirror = MirrorFiles(
        store=store,
        files=tuple(snapshot.files.values()),
        layout=Layout.of(snapshot.metadata),
        adoption=Adoption.of(table),
    )
    target = Target(store, Metadata.of(described), table.key, clock)
    return rewrite(mirror, target, fills=fills).actions
