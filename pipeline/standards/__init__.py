"""Standards: how values are written that do not reach the lake as their source has them."""
