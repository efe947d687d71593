"""Starts MySQL, Kafka, and Connect with Debezium, each on a free loopback port."""

from collections.abc import Callable

from demo import unpack
from demo.story.stage import Stage

TITLE = "start MySQL, Kafka and Connect"


def play(stage: Stage) -> str:
    """Start them; they end with the story."""
    stage.ends.callback(stage.servers.stop)
    unpack.prepare(_indented(stage))
    stage.servers.start(_indented(stage))
    mysql, kafka, connect = stage.servers.mysql, stage.servers.kafka, stage.servers.connect
    return f"MySQL at port {mysql.port}, Kafka at {kafka.bootstrap}, Connect at {connect.url}"


def _indented(stage: Stage) -> Callable[[str], None]:
    return lambda line: stage.screen.say(f"     {line}")
