"""What every request body is made of."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Body(BaseModel):
    """A request body or a part of one: every number in it is finite.

    JSON has no NaN or infinity, but parsers take the words, and 1e999 for infinity: what compares
    with them is neither below nor above a limit. They are refused as any wrong value, with the name
    of the field.
    """

    model_config = ConfigDict(allow_inf_nan=False)
