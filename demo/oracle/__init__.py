"""Reads source and mirror and compares them; shares no code with what it checks."""
