"""Which numbers make sense as a probe's setting?  Types for its fields, told by `check-config`.

A tolerance below nothing fails every table; no tries, or no time, and nothing is ever decided.
"""

from datetime import timedelta
from typing import Annotated

from pydantic import Field

NoneOrMore = Annotated[int, Field(ge=0)]
OneOrMore = Annotated[int, Field(ge=1)]
Days = Annotated[int, Field(ge=1, le=3_660)]  # ten years, each a statement of the source
Share = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Span = Annotated[timedelta, Field(gt=timedelta())]
