"""What does a guarded MERGE save beside the rewrite that came before it?

    python -m bench.apply --rows 8000000 --rounds 2

The rewrite: union the image with the newest changes, number the rows of each key by order, keep
the first, drop the deleted, write everything anew as Parquet.  It has no guard, no account and no
delete to keep; both parse the same rows of the same change log.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from bench.kit import ours, table
from bench.kit.rounds import Contender, compete, report
from bench.kit.spark import require_equal, session, total
from pipeline.changelog import table as changelog
from pipeline.settings import PipelineSettings

WANTED = {"recent": 5.0, "uniform": 1.5}
WIDTHS = {"20": table.WIDE, "5": table.NARROW}


@dataclass(eq=False)
class Race:
    """One table, kept twice: as a mirror and as an image that is written anew each round."""

    session: SparkSession
    folder: Path
    work: table.Workload

    def prepare(self, rounds: int) -> None:
        """Write the change log of all rounds, and the table as it is before them."""
        changelog.create(self.session, self.log)
        for number in range(1, rounds + 1):
            changes = self.work.changes(self.session, number)
            changes.write.format("delta").mode("append").save(self.log)
        image = self.work.image(self.session)
        image.write.parquet(str(self._image(0)))
        ours.prepare(self.session, self.mirror, self.work.fields, image)

    @property
    def log(self) -> str:
        """The change log's address."""
        return str(self.folder / "changes")

    @property
    def mirror(self) -> str:
        """The mirror's address."""
        return str(self.folder / "mirror")

    def rewrite(self, number: int) -> None:
        """Write the image of round *number* from the one before and the round's changes."""
        image = self.session.read.parquet(str(self._image(number)))
        changes = (
            self.session.read.format("delta").load(self.log).where(F.col("batch") == number + 1)
        )
        newest = Window.partitionBy("id").orderBy(F.col("order").desc())
        rows = (
            image.withColumn("op", F.lit("r"))
            .unionByName(self._parsed(changes))
            .withColumn("place", F.row_number().over(newest))
            .where("place = 1 AND op != 'd'")
        )
        rows.drop("place", "op").write.parquet(str(self._image(number + 1)))

    def merge(self, number: int) -> None:
        """Apply the round's changes as the product does."""
        ours.apply(self.session, self.log, self.mirror, self.work.fields, number + 1)

    def check(self, number: int) -> None:
        """Hold mirror against image; the older image goes."""
        mirror = self.session.read.format("delta").load(self.mirror)
        image = self.session.read.parquet(str(self._image(number + 1)))
        require_equal(
            {
                "rewrite": total(image.select(*self.work.names)),
                "sluice": total(mirror.select(*self.work.names)),
            }
        )
        shutil.rmtree(self._image(number))

    def _parsed(self, changes: DataFrame) -> DataFrame:
        image = F.coalesce("after", "before")
        return changes.select(*table.parsed(self.work.fields, image), "order", "op")

    def _image(self, number: int) -> Path:
        return self.folder / f"image-{number}"


@click.command()
@click.option("--rows", default=8_000_000, help="Rows of the table.")
@click.option("--changed", default=0.01, help="Share of them that each round changes.")
@click.option("--rounds", default=2, help="Rounds; both ways run once in each.")
@click.option("--columns", "widths", type=click.Choice([*WIDTHS]), multiple=True, default=[*WIDTHS])
@click.option("--keys", type=click.Choice([*WANTED]), multiple=True, default=[*WANTED])
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
                work = table.Workload(WIDTHS[width], rows, int(rows * changed), kind == "recent")
                _race(spark, folder, work, rounds)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _race(spark: SparkSession, folder: Path, work: table.Workload, rounds: int) -> None:
    """Run one scenario; a first round warms both up and does not count."""
    shutil.rmtree(folder, ignore_errors=True)
    keys = "recent" if work.recent else "uniform"
    title = f"{len(work.fields)} columns, {keys} keys, {work.changed} of {work.rows} rows changed"
    click.echo(title)
    race = Race(spark, folder, work)
    race.prepare(rounds + 1)
    contenders = [Contender("rewrite", race.rewrite), Contender("sluice", race.merge)]
    times = compete(contenders, rounds + 1, race.check)
    counted = {name: spent[1:] for name, spent in times.items()}
    report(title, counted, "rewrite", WANTED[keys])


if __name__ == "__main__":
    main()
