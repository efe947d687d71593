"""The acts that `python -m demo run` plays: one file per act, and their helpers."""
