"""Describes Debezium's connector for MariaDB, which has the settings of the one for MySQL.  Pure.

The names of TLS modes differ: each class uses those of its database.
"""

from dataclasses import replace
from typing import ClassVar

from pipeline.collectors.connect.database import ConnectedDatabase
from pipeline.collectors.connect.mysql import CLASSES, ConnectedMySql
from pipeline.finding import Demand


class ConnectedMariaDb(ConnectedMySql):
    """As MySQL, but registered with MariaDB's connector class."""

    classes: ClassVar[tuple[str, ...]] = tuple(reversed(CLASSES))
    verified: ClassVar[tuple[Demand, ...]] = tuple(
        replace(one, good=("verify-full", "verify_identity"), default="disable")
        for one in ConnectedMySql.verified
    )


CONNECTED: type[ConnectedDatabase] = ConnectedMariaDb
