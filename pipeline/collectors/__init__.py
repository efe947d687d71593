"""Collectors, one module each: what they have acknowledged, and which server they read."""
