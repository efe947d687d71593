"""Starts the service, and waits for the first READY of every table."""

from demo.shop import visits
from demo.story.stage import Stage

TITLE = "start the service: sluice run --config demo/sluice.yaml"


def play(stage: Stage) -> str:
    """Start it, and wait until the gate opens for the instant at which it first answered."""
    stage.ends.callback(stage.service.stop)
    stage.service.start()
    stage.screen.say(f"status page: {stage.service.url}/", "bold green")
    stage.ask_gate("while writers write")
    stage.ask_gate_for(visits.NAME)
    stage.show_jobs()
    return f"status page at {stage.service.url}/; ready for its own beginning, writers at work"
