"""Tracks the columns a table had, types them for the lake, and decides what mirrors may follow."""
