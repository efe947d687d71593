"""Builders of the values that tests need; a test names what it is about.

`landing` has one batch and its context, `harness` a landing loop over two sources, `lake` a table
with its change log and mirror, `change_log` rows of a change log and of mirrors.
"""

from tests.builders.landing import BATCH_TIME, batch_context, orders_at, schema_news

__all__ = ["BATCH_TIME", "batch_context", "orders_at", "schema_news"]
