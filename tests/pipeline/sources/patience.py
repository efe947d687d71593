"""Limits of a source that is asked without any, where none of them is tried."""

from pipeline.sources.source import Limits
from tests.patience import SOON

PATIENT = Limits(statement=SOON, call=SOON, connect=SOON)
