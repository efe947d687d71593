"""Which columns a table had, which types they have in the lake, and when a mirror may follow."""
