"""What `python -m demo run` plays: one file per act, and what the acts need."""
