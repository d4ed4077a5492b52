"""What a decision saved or lost, in a few words."""

from __future__ import annotations

from gpuwarden_runtime.cost_records import CostRecord


def cost_words(cost: CostRecord | None) -> str:
    """For a table; "-" where there is nothing to tell."""
    if cost is None:
        return "-"
    would = "" if cost.acted else "would have "
    if cost.outcome == "right":
        return f"{would}saved {_amount(cost.saved_gpu_hours, cost.saved_money, cost.currency)}"
    if cost.outcome == "wrong":
        return f"{would}lost {_amount(cost.lost_gpu_hours, cost.lost_money, cost.currency)}"
    right, wrong = cost.if_right_gpu_hours, cost.if_wrong_gpu_hours
    return f"open: {right:.1f} GPU-h saved if right, {wrong:.1f} lost if wrong"


def _amount(gpu_hours: float, money: float | None, currency: str) -> str:
    priced = "" if money is None else f", {money:,.2f} {currency}"
    return f"{gpu_hours:,.1f} GPU-h{priced}"
