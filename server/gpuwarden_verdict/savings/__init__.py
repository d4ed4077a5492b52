"""What decisions saved and lost, by stated assumptions, corrected by what they turned out to be."""

from gpuwarden_verdict.savings.assumptions import (
    ASSUMPTIONS,
    Assumption,
    Assumptions,
    SavingsError,
    parse_savings,
)
from gpuwarden_verdict.savings.costing import Cost, Facts, Outcome, cost_of, outcome_of
from gpuwarden_verdict.savings.sharing import counted_once
from gpuwarden_verdict.savings.summing import (
    Concentration,
    FalseRate,
    Totals,
    concentration_of,
    false_rates,
    totals_of,
)

__all__ = [
    "ASSUMPTIONS",
    "Assumption",
    "Assumptions",
    "Concentration",
    "Cost",
    "Facts",
    "FalseRate",
    "Outcome",
    "SavingsError",
    "Totals",
    "concentration_of",
    "cost_of",
    "counted_once",
    "false_rates",
    "outcome_of",
    "parse_savings",
    "totals_of",
]
