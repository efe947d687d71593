"""Try the mutants of what decides; fail for a survivor that is not named in survivors.txt.

``python -m tests.mutants`` tries all of them; with paths only those of these modules, and with
``--sample`` a few of each, which are the same each time.
"""

import importlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path

import click

from tests.mutants.survivors import named
from tests.mutants.targets import TARGETS
from tests.mutants.trial import Outcome, tried

PRELOADED = (  # what most tests need is imported once, before the forks
    *("hypothesis", "kafka.admin", "pandas", "psycopg", "pyarrow", "pydantic"),
    *("pyspark.sql", "pytest", "redis", "sqlalchemy", "structlog"),
)
ENOUGH = 0.95


@click.command()
@click.argument("modules", nargs=-1)
@click.option("--minutes", default=90.0, show_default=True, help="No module begins after that.")
@click.option("--sample", type=click.IntRange(1), help="At most so many mutants of each module.")
def main(modules: Sequence[str], minutes: float, sample: int | None) -> None:
    """Print a line a module and one a fault."""
    for name in PRELOADED:
        importlib.import_module(name)
    until = time.monotonic() + 60 * minutes
    faults: list[str] = []
    tried_ = survived = 0
    for target in modules or TARGETS:
        if time.monotonic() > until:
            faults.append(f"{target}: not tried, its time was over")
            continue
        began = time.monotonic()
        try:
            outcomes = tuple(_outcomes(target, sample))
        except ChildProcessError:
            faults.append(f"{target}: it could not be tried; do its tests pass, and import it?")
            click.echo(faults[-1])
            continue
        left = sum(not one.killed for one in outcomes)
        tried_, survived = tried_ + len(outcomes), survived + left
        took = f" {time.monotonic() - began:.0f} s"
        click.echo(f"{_score(f'`{target}`', len(outcomes), left)}{took}")
        for line in _faults(target, outcomes, whole=sample is None):
            click.echo(f"  {line}")
            faults.append(line)
    click.echo(_score("all", tried_, survived))
    if survived > (1 - ENOUGH) * tried_:
        faults.append(f"fewer than {ENOUGH:.0%} die")
    if faults:
        raise click.ClickException(f"{len(faults)} faults, the last: {faults[-1]}")


def _score(what: str, mutants: int, survived: int) -> str:
    share = (mutants - survived) / mutants if mutants else 1.0
    return f"| {what} | {mutants} | {survived} | {share:.1%} |"


def _faults(target: str, outcomes: Sequence[Outcome], whole: bool) -> Iterator[str]:
    """Survivors without a name in the list, and names there of what survives no more."""
    listed = {one.mutant for one in named() if one.module == target}
    survived = {one.name: one for one in outcomes if not one.killed}
    yield from (f"{target}:{one.line}: {n}" for n, one in survived.items() if n not in listed)
    tried_ = {one.name for one in outcomes}
    dead = sorted(one for one in listed - survived.keys() if whole or one in tried_)
    yield from (f"{target}: dies, strike it: {name}" for name in dead)


def _outcomes(target: str, sample: int | None) -> Iterator[Outcome]:
    """What became of the mutants of *target*, tried in a process of its own."""
    here, there = multiprocessing.Pipe(duplex=False)
    trial = multiprocessing.get_context("fork").Process(target=_try, args=(target, sample, there))
    trial.start()
    there.close()
    try:
        while True:
            yield Outcome(**json.loads(here.recv()))
    except EOFError:
        trial.join()
    if trial.exitcode:
        raise ChildProcessError


def _try(target: str, sample: int | None, answers: Connection) -> None:
    """Say nothing but what became of each."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    tried(target, TARGETS[target], lambda one: answers.send(json.dumps(asdict(one))), sample)


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parents[2])
    sys.exit(main())
