"""Measures what a merge over Arrow saves against the rewrite by Spark that came before it.

    python -m bench.apply --rows 8000000 --rounds 2

The rewrite unions the image with the newest changes and numbers the rows of each key by order. It
keeps the first, drops the deleted ones, and writes everything again as Parquet. It has no guard, no
account and no delete to keep. Both parse the same rows of the same change log.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from bench.kit import table
from bench.kit.lake import AT_ONCE, Lake, here
from bench.kit.rounds import Contender, compete, report
from bench.kit.spark import require_equal, session, total
from pipeline.settings import PipelineSettings

KEYS = ("recent", "uniform", "text")
WIDTHS = {"20": table.WIDE, "5": table.NARROW}
WANTED = {"20": 20.0, "5": 6.0}
RECENT = 0.05
"""Share of the table from which recent keys are drawn."""


@dataclass(eq=False)
class Race:
    """One table, kept twice: as a mirror, and as an image that each round writes again."""

    session: SparkSession
    folder: Path
    work: table.Workload
    lake: Lake = field(init=False)

    def prepare(self) -> None:
        """Write the table before all rounds, twice, and the changes of the first round."""
        self.lake = Lake(self.folder, (self.work,), here)
        self.lake.fill()
        self._image(0).mkdir(parents=True)
        for number, rows in enumerate(self.work.image(AT_ONCE)):
            pq.write_table(rows, self._image(0) / f"part-{number:03}.parquet")
        self._land(0)

    def rewrite(self, number: int) -> None:
        """Write the image of round *number* from the previous image and the round's changes."""
        image = self.session.read.parquet(str(self._image(number)))
        log = self.session.read.format("delta").load(self.lake.settings.changes)
        changes = log.where((F.col("batch") == number + 1) & F.col("op").isin("c", "u", "d"))
        newest = Window.partitionBy("id").orderBy(F.col("order").desc())
        rows = (
            image.withColumn("op", F.lit("r"))
            .unionByName(self._parsed(changes))
            .withColumn("place", F.row_number().over(newest))
            .where("place = 1 AND op != 'd'")
        )
        rows.drop("place", "op").write.parquet(str(self._image(number + 1)))

    def merge(self, _: int) -> None:
        """Apply the round's changes as the product does."""
        self.lake.apply()

    def check(self, number: int) -> None:
        """Compare mirror and image; remove the older image, and land the next round's changes."""
        mirror = self.session.read.format("delta").load(self.lake.mirror(self.work))
        image = self.session.read.parquet(str(self._image(number + 1)))
        require_equal(
            {
                "rewrite": total(image.select(*self.work.names)),
                "sluice": total(mirror.select(*self.work.names)),
            }
        )
        shutil.rmtree(self._image(number))
        self._land(number + 1)

    def _land(self, number: int) -> None:
        self.lake.land(self.work.changes(number + 1))

    def _parsed(self, changes: DataFrame) -> DataFrame:
        image = F.coalesce("after", "before")
        return changes.select(*table.parsed(self.work.columns, image), "order", "op")

    def _image(self, number: int) -> Path:
        return self.folder / f"image-{number}"


@click.command()
@click.option("--rows", default=8_000_000, help="Rows of the table.")
@click.option("--changed", default=0.01, help="Share of them that each round changes.")
@click.option("--rounds", default=2, help="Rounds; both ways run once in each.")
@click.option("--columns", "widths", type=click.Choice([*WIDTHS]), multiple=True, default=[*WIDTHS])
@click.option("--keys", type=click.Choice(KEYS), multiple=True, default=KEYS)
@click.option("--dir", "folder", default=Path("build/bench/apply"), type=Path)
def main(
    *,
    rows: int,
    changed: float,
    rounds: int,
    widths: Sequence[str],
    keys: Sequence[str],
    folder: Path,
) -> None:
    """Measure apply against the rewrite, over table widths and kinds of keys."""
    folder = folder.resolve()
    spark = session(PipelineSettings(str(folder), "", (), driver_memory="3g"))
    try:
        for width in widths:
            for kind in keys:
                window = int(rows * RECENT) if kind == "recent" else rows
                work = table.Workload(
                    WIDTHS[width], rows, int(rows * changed), window, text_keys=kind == "text"
                )
                title = f"{width} columns, {kind} keys, {work.changed} of {rows} rows changed"
                report(title, measured(Race(spark, folder, work), rounds), "rewrite", WANTED[width])
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def measured(race: Race, rounds: int) -> dict[str, list[float]]:
    """Run one scenario; a first round warms both up and does not count."""
    shutil.rmtree(race.folder, ignore_errors=True)
    race.prepare()
    contenders = [Contender("rewrite", race.rewrite), Contender("sluice", race.merge)]
    times = compete(contenders, rounds + 1, race.check)
    return {name: spent[1:] for name, spent in times.items()}


if __name__ == "__main__":
    main()
