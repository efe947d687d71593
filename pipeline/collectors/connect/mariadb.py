"""Describes Debezium's connector for MariaDB, which has what the one for MySQL has.  Pure.

Its class names the modes of TLS as MariaDB does, and MySQL's class as MySQL does.
"""

from dataclasses import replace
from typing import ClassVar

from pipeline.collectors.connect.database import ConnectedDatabase
from pipeline.collectors.connect.mysql import CLASSES, ConnectedMySql
from pipeline.finding import Demand


class ConnectedMariaDb(ConnectedMySql):
    """The same, registered by a class of its own."""

    classes: ClassVar[tuple[str, ...]] = tuple(reversed(CLASSES))
    verified: ClassVar[tuple[Demand, ...]] = tuple(
        replace(one, good=("verify-full", "verify_identity"), default="disable")
        for one in ConnectedMySql.verified
    )


CONNECTED: type[ConnectedDatabase] = ConnectedMariaDb
