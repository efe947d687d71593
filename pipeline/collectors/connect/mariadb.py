"""What has Debezium's connector for MariaDB of its own?  What that for MySQL has.  Pure."""

from typing import ClassVar

from pipeline.collectors.connect.connected import ConnectedDatabase
from pipeline.collectors.connect.mysql import CLASSES, ConnectedMySql


class ConnectedMariaDb(ConnectedMySql):
    """The same, registered by a class of its own."""

    classes: ClassVar[tuple[str, ...]] = tuple(reversed(CLASSES))


CONNECTED: type[ConnectedDatabase] = ConnectedMariaDb
