"""The source for MySQL and MariaDB: sessions, log positions, tables, DDL, and the doctor."""
