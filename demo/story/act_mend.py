"""Repairs all harm: incidents resolve, the gate opens, and the mirrors equal their source again."""

from demo.story.act_compare import compared
from demo.story.progress import Progress
from demo.story.stage import Stage, UnseenError

TITLE = "put it right: touch the rows, take the mirror back"


def play(stage: Stage) -> str:
    """Undo all harm, and wait until nothing is left of it.

    Raises:
        UnseenError: there was no harm, or a mirror still differs.
    """
    harm = stage.harm
    if harm is None:
        msg = "nothing was harmed that could be repaired"
        raise UnseenError(msg)
    harm.rows.undo()
    harm.value.undo()
    stage.screen.say(f"  touched at the source, with a log: {harm.rows.span}")
    harm.row.undo()
    stage.screen.say(f"  mirror taken back to version {harm.row.good}")

    def resolved(_: Progress) -> bool:
        over = {each["id"] for each in stage.service.incidents("resolved")}
        return over.issuperset(harm.incidents) and not stage.service.incidents("firing")

    stage.ask_gate("after the repair")
    stage.wait(resolved, "end of the incidents")
    stage.screen.say("  incidents resolved", "green")
    rows = compared(stage, "after the repair")
    return f"incidents resolved, gate open again; {rows} rows equal their source"
