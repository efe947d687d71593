"""Decides when, wires the layers together, and serves people and programs."""
