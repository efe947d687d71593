"""`sluice jars`: download and verify the jars that Spark needs."""

import click

from monitor.display_text import say


@click.command("jars")
@click.option(
    "--from",
    "repository",
    metavar="URL",
    default="",
    help="Maven repository to download from, such as https://maven.example.com/central;"
    " by default Maven Central.",
)
def jars(repository: str) -> None:
    """Download the jars that Spark needs beside its own, once per user and machine.

    They are stored in ~/.cache/sluice/jars, or in the directory of the environment variable
    SLUICE_JARS. `sluice run` needs the same variable. Valid jars are not downloaded again.
    """
    from pipeline.spark import jars as locked  # noqa: PLC0415  - help needs none of it

    count = locked.fetch_jars(
        (locked.SPARK,), repository=repository, report=lambda line: say(line, err=True)
    )
    say(f"{len(locked.spark_jars())} jars in {locked.JARS / locked.SPARK}, {count} downloaded")


COMMAND = jars
