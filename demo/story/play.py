"""Plays the acts in their order; the first that fails ends the story."""

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from demo.story import (
    act_compare,
    act_harm,
    act_load,
    act_mend,
    act_servers,
    act_service,
    act_shop,
)
from demo.story.screen import Screen
from demo.story.stage import Plot, Stage
from demo.story.summary import Played, Summary
from pipeline.errors import SluiceError


class Act(Protocol):
    """An act: a module of this folder."""

    TITLE: str

    def play(self, stage: Stage) -> str:
        """Do it; return in one line what was seen."""
        ...


ACTS: tuple[Act, ...] = (
    act_servers,
    act_shop,
    act_service,
    act_load,
    act_compare,
    act_harm,
    act_mend,
)


def play(home: Path, plot: Plot, screen: Screen, ends: ExitStack) -> Stage:
    """Play all acts in *home*; *ends* stops everything that they start."""
    stage = Stage(home, plot, screen, Summary(planned=len(ACTS)), ends)
    for number, act in enumerate(ACTS, 1):
        screen.say(f"{number}/{len(ACTS)}  {act.TITLE}", "bold")
        played = _play(act, stage)
        stage.summary.acts.append(played)
        stage.summary.seconds = screen.elapsed
        screen.say(f"     {played.told}", "" if played.seen else "bold red")
        if not played.seen:
            break
    return stage


def _play(act: Act, stage: Stage) -> Played:
    began = time.monotonic()
    try:
        seen, told = True, act.play(stage)
    except SluiceError as error:
        seen, told = False, str(error)
    name = act.__name__.rpartition("_")[2] if hasattr(act, "__name__") else type(act).__name__
    return Played(name, round(time.monotonic() - began, 1), seen, told)
