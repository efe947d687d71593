"""A MariaDB server: asked as a MySQL is, which finds out by itself what it speaks to."""

from pipeline.sources.mysql.source import MySqlSource

SOURCE = MySqlSource
