"""Effects as the cases of tests write them."""

from pipeline.schema.model import BaseNeeded, Drop, Effect, Empty, Keep, Replace


def written(effect: Effect) -> str:
    """``d.t keep``, ``d.t empty``, ``d.t drop``, ``d.t of d.u`` or ``d.t hold REASON``."""
    match effect:
        case Keep():
            what = "keep"
        case Empty():
            what = "empty"
        case Drop():
            what = "drop"
        case Replace():
            what = f"of {effect.rows_of}"
        case BaseNeeded():
            what = f"hold {effect.reason}"
    return f"{effect.shard} {what}"
