"""A MariaDB server: asked as a MySQL is, which finds out by itself what it speaks to."""

from pipeline.sources.mysql.row_reader import MySqlRowReader
from pipeline.sources.mysql.source import MySqlSource
from pipeline.sources.row_reader import RowReader
from pipeline.sources.source import Source

SOURCE: type[Source] = MySqlSource
ROW_READER: type[RowReader] = MySqlRowReader
