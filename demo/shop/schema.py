"""Defines the shop's tables: seven physical ones, folded into four mirrors.

Every table has the column ``touched``: the number of the transaction that wrote the row last. With
the ledger, a row alone shows how far its reader is.
"""

from dataclasses import dataclass

DATABASES = ("shop", "shop_00", "shop_01")

USERS = """
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    email VARCHAR(120) NOT NULL,
    name VARCHAR(80) NULL,
    about TEXT NULL,
    points INT NOT NULL DEFAULT 0,
    born DATE NULL,
    active BIT(1) NOT NULL DEFAULT b'1',
    joined DATETIME(3) NOT NULL,
    changed TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3),
    touched BIGINT NOT NULL DEFAULT 0,
    UNIQUE KEY email (email)
"""

ORDERS = """
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    number BIGINT NOT NULL,
    user_id BIGINT NULL,
    state ENUM('new', 'paid', 'sent', 'closed', 'cancelled') NOT NULL DEFAULT 'new',
    total DECIMAL(12,2) NOT NULL,
    placed DATETIME(6) NOT NULL,
    note VARCHAR(200) NULL,
    touched BIGINT NOT NULL DEFAULT 0,
    KEY number (number)
"""

ORDER_ITEMS = """
    order_id BIGINT NOT NULL,
    line INT NOT NULL,
    sku VARCHAR(40) NOT NULL,
    quantity SMALLINT UNSIGNED NOT NULL,
    price DECIMAL(12,4) NOT NULL,
    gift BIT(1) NOT NULL DEFAULT b'0',
    touched BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (order_id, line)
"""

# MySQL 8.0.15 leaves YEAR out of the signedness bits of a table-map event, but Debezium expects it:
# beside a YEAR, a multiple of eight other numeric columns would make the bits too short.
PAYMENTS = """
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    order_number BIGINT NULL,
    amount DECIMAL(12,4) NOT NULL,
    rate DECIMAL(38,10) NULL,
    paid DATETIME(6) NULL,
    booked DATETIME NULL,
    created TIMESTAMP NULL,
    settled TIMESTAMP(3) NULL,
    detail JSON NULL,
    method ENUM('card', 'wire', 'voucher', 'cash on delivery') NULL,
    marks SET('fraud', 'manual', 'refund', 'test') NULL,
    approved BIT(1) NULL,
    mask BIT(9) NULL,
    receipt BLOB NULL,
    digest VARBINARY(32) NULL,
    reference BIGINT UNSIGNED NULL,
    memo TEXT NULL,
    open_for TIME NULL,
    due DATE NULL,
    vintage YEAR NULL,
    attempts INT NOT NULL DEFAULT 0,
    score DOUBLE NULL,
    ratio FLOAT NULL,
    touched BIGINT NOT NULL DEFAULT 0
"""


@dataclass(frozen=True, slots=True)
class Shelf:
    """One physical table: ``name`` is ``database.table``, ``mirror`` the table that it folds into.

    ``numbered``: MySQL chooses the key (AUTO_INCREMENT).
    """

    name: str
    mirror: str
    columns: str
    key: tuple[str, ...] = ("id",)
    numbered: bool = True

    @property
    def ddl(self) -> str:
        """Return the statement that creates it."""
        return f"CREATE TABLE {self.name} ({self.columns}) DEFAULT CHARSET utf8mb4"


USERS_SHELF = Shelf("shop.users", "shop.users", USERS)
ORDER_SHELVES = tuple(
    Shelf(f"shop_{database:02}.orders_{table:02}", "shop.orders", ORDERS)
    for database in range(2)
    for table in range(2)
)
ITEMS_SHELF = Shelf(
    "shop.order_items", "shop.order_items", ORDER_ITEMS, ("order_id", "line"), False
)
PAYMENTS_SHELF = Shelf("shop.payments", "shop.payments", PAYMENTS)

SHELVES = (USERS_SHELF, *ORDER_SHELVES, ITEMS_SHELF, PAYMENTS_SHELF)

MIRRORS: dict[str, tuple[str, ...]] = {
    mirror: tuple(shelf.name for shelf in SHELVES if shelf.mirror == mirror)
    for mirror in ("shop.users", "shop.orders", "shop.order_items", "shop.payments")
}
