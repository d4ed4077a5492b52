"""The report: results of all steps as one page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwarden_models.evaluation.exclusion.page import exclusion_bar, exclusion_page
from gpuwarden_models.evaluation.machine import machine_words
from gpuwarden_models.evaluation.options import Options
from gpuwarden_models.evaluation.plain import table


def report_page(results: Mapping[str, Any], options: Options) -> str:
    """Markdown, from the results of the steps as JSON."""
    parts = [_head(options), _bars(results)]
    if "exclusion" in results:
        parts.append(exclusion_page(results["exclusion"]))
    return "\n\n".join(parts) + "\n"


def _head(options: Options) -> str:
    return (
        "# Evaluation\n\nEvery number is marked: *public data* (records of real machines) or"
        " *simulated*. The same report again:\n\n"
        "```\ngpuwarden evaluate --state STATE --out FOLDER --public-data DATA"
        f" --seed {options.seed}\n```\n\nMade on {machine_words()}."
    )


def _bars(results: Mapping[str, Any]) -> str:
    rows: list[tuple[str, str, str, str]] = []
    if "exclusion" in results:
        met, words = exclusion_bar(results["exclusion"])
        bar = "slow rank at least as precise as the same-part rule at equal flags, Titan"
        rows.append((bar, "public data", "met" if met else "not met", words))
    return f"## Bars\n\n{table(('bar', 'source', 'verdict', 'figures'), rows)}"
