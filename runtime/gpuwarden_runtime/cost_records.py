"""What the ledger of costs tells of a decision, as a typed value."""

from __future__ import annotations

import msgspec


class CostRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision saved and lost so far, by stated assumptions; None where it is unknown."""

    outcome: str = "unsettled"
    why: str = ""
    acted: bool = True
    saved_gpu_hours: float = 0.0
    lost_gpu_hours: float = 0.0
    saved_kwh: float | None = None
    lost_kwh: float | None = None
    saved_money: float | None = None
    lost_money: float | None = None
    currency: str = ""
    if_right_gpu_hours: float = 0.0
    if_wrong_gpu_hours: float = 0.0
    says: tuple[str, ...] = ()
