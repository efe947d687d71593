"""A MariaDB server: uses the MySQL source, which detects the kind of server."""

from pipeline.sources.mysql.row_reader import MySqlRowReader
from pipeline.sources.mysql.source import MySqlSource
from pipeline.sources.row_reader import RowReader
from pipeline.sources.source import Source

SOURCE: type[Source] = MySqlSource
ROW_READER: type[RowReader] = MySqlRowReader
