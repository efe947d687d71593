"""How does a shop's writer reach its server, and know what became of a COMMIT without answer?"""

from dataclasses import dataclass
from typing import TypeAlias

import pymysql
from pymysql.constants import CLIENT, CR, ER
from pymysql.cursors import Cursor
from pymysql.err import InterfaceError

from demo.shop.ledger import Entry
from demo.shop.schema import SHELVES

Link: TypeAlias = "pymysql.Connection[Cursor]"

LOST = {
    CR.CR_CONN_HOST_ERROR,
    CR.CR_SERVER_GONE_ERROR,
    CR.CR_SERVER_LOST,
    ER.SERVER_SHUTDOWN,
    ER.NORMAL_SHUTDOWN,
    ER.CON_COUNT_ERROR,
}
CLASHES = {ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a MySQL server listens, and who we are there."""

    host: str
    port: int
    user: str = "root"
    password: str = ""


def connect(address: Address) -> Link:
    """Open a connection whose session is in UTC and whose row counts are of rows met."""
    return pymysql.connect(
        host=address.host,
        port=address.port,
        user=address.user,
        password=address.password,
        charset="utf8mb4",
        client_flag=CLIENT.FOUND_ROWS,
        init_command="SET time_zone = '+00:00'",
        connect_timeout=5,
        read_timeout=60,
    )


def is_loss(error: Exception) -> bool:
    """Tell whether *error* means that the server is gone or going."""
    return isinstance(error, InterfaceError) or error.args[0] in LOST


def stands(link: Link, entry: Entry) -> bool:
    """Tell whether *entry* was committed; FOR UPDATE waits for one that is still on its way."""
    keys = {shelf.name: shelf.key for shelf in SHELVES}
    with link.cursor() as cursor:
        for row in entry.rows:
            where = " AND ".join(f"{name} = %s" for name in keys[row.shard])
            cursor.execute(f"SELECT touched FROM {row.shard} WHERE {where} FOR UPDATE", row.key)
            found = cursor.fetchone()
            if (found[0] if found else None) != row.touched:
                link.rollback()
                return False
    link.rollback()
    return True
