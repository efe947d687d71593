"""`sluice jars`: the jars that Spark needs, fetched and checked by their SHA-256."""

import click

from monitor.terminal import say


@click.command("jars")
@click.option(
    "--from",
    "repository",
    metavar="URL",
    default="",
    help="A Maven repository to fetch from, such as https://maven.example.com/central;"
    " by default Maven Central.",
)
def jars(repository: str) -> None:
    """Fetch the jars that Spark needs beside its own, once for each user of a machine.

    They are put into ~/.cache/sluice/jars; the environment variable SLUICE_JARS names another
    folder, which `sluice run` must be given as well.  What is there and right is not fetched again.
    """
    from pipeline.spark import jars as locked  # noqa: PLC0415  - help needs none of it

    count = locked.fetch(
        (locked.SPARK,), repository=repository, report=lambda line: say(line, err=True)
    )
    say(f"{len(locked.spark())} jars in {locked.JARS / locked.SPARK}, {count} fetched")


COMMAND = jars
