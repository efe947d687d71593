"""What is said of a source whose changes have no places in its log?  Pure."""

from checks.ordering import CANNOT, SourceOrdering
from pipeline.finding import NOTE, REFUSE, Finding
from pipeline.model import Ordering

CODE = "weak_order"


def order_findings(one: SourceOrdering, partitions: int, where: str) -> list[Finding]:
    """None of places in the log; *partitions* is how many the source's changes come through."""
    found = list[Finding]()
    if one.ordering is Ordering.LOG:
        return found
    what = f"changes are ordered by {CANNOT[one.ordering]}"
    if one.accepted:
        found.append(Finding(NOTE, CODE, where, what, "nothing: weakest_order asks for it"))
    else:
        fix = f"say weakest_order: {one.ordering} of the source if that will do"
        found.append(Finding(REFUSE, CODE, where, f"no table will be READY: {what}", fix))
    if one.ordering is Ordering.OFFSET and partitions > 1:
        what = f"changes come through {partitions} partitions, whose offsets say nothing of another"
        fix = "let all changes of the source go through one partition, statements too"
        found.append(Finding(REFUSE, "many_partitions", where, what, fix))
    return found
