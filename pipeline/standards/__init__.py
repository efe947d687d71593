"""How are values written that must not, or need not, reach the lake as their source has them?"""
