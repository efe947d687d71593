"""A MariaDB server: asked as a MySQL is, which finds out by itself what it speaks to."""

from pipeline.sources.mysql import MySqlSource

SOURCE = MySqlSource
