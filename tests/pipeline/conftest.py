"""One small Spark session for the tests marked `spark`, as the pipeline itself builds it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline import jars
from pipeline.settings import PipelineSettings
from pipeline.spark import open_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session shared by all tests: leave its settings as they are."""
    lake: Path = tmp_path_factory.mktemp("lake")
    settings = PipelineSettings(
        lake=str(lake),
        kafka="",
        sources=(),
        driver_memory="1000m",
        spark={"spark.sql.warehouse.dir": str(lake / "warehouse")},
    )
    session = open_session(settings, jars.spark())
    yield session
    session.stop()
