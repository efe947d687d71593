"""Creates a shop of eight tables and its first rows, connects Debezium, and starts writers."""

from demo.debezium import mysql_connector
from demo.shop import visits
from demo.shop.schema import DATABASES, SHELVES
from demo.story.stage import Stage

TITLE = "open a shop, and begin to write"
HEARTBEAT = "sluice"


def play(stage: Stage) -> str:
    """Create and fill the tables, start to collect, and start the writers."""
    stage.shop.create()
    stage.workload.fill(stage.plot.rows)
    stage.visits.create()
    config = mysql_connector(
        stage.servers.mysql,
        stage.servers.kafka.bootstrap,
        databases=[*DATABASES, HEARTBEAT],
    )
    stage.servers.connect.register("shop", config)
    stage.ends.callback(stage.workload.stop)
    stage.workload.start()
    rate = f"{stage.workload.rate:.0f} changes a second"
    began = stage.workload.tally["changes"]
    return f"{len(SHELVES)} tables of {began} rows, {visits.ROWS} rows of {visits.NAME}, {rate}"
