"""The report: results of all steps as one page, and the same as figures."""

from __future__ import annotations

from typing import Any

from gpuwarden_models.evaluation.bars import bars_page
from gpuwarden_models.evaluation.exclusion.page import exclusion_page
from gpuwarden_models.evaluation.machine import machine_words
from gpuwarden_models.evaluation.plain import plain, table
from gpuwarden_models.evaluation.results import Results
from gpuwarden_models.evaluation.score_page import score_page
from gpuwarden_models.evaluation.system_page import system_page


def report_page(results: Results) -> tuple[str, dict[str, Any]]:
    """Markdown, and all figures as JSON."""
    bars, bar_figures = bars_page(results)
    system, system_figures = system_page(results)
    score, score_figures = score_page(results)
    exclusion = results.exclusion()
    parts = [_head(results), bars, system, *([score] if score else [])]
    parts += [exclusion_page(exclusion)] if exclusion is not None else []
    parts.append(_recordings(results))
    figures = {
        "seed": results.options.seed,
        "sizes": plain(results.options.sizes),
        "models": dict(results.versions),
        "bars": bar_figures,
        "whole_system": system_figures,
        "scores": score_figures,
        "exclusion": exclusion,
        "recordings": {one.name: _facts(results, one.name) for one in results.recipes},
    }
    return "\n\n".join(parts) + "\n", plain(figures)


def _head(results: Results) -> str:
    options = results.options
    versions = ", ".join(f"{kind} {version}" for kind, version in results.versions.items())
    words = " ".join(options.words())
    return (
        f"# Evaluation\n\nModels: {versions or 'none, rules alone'}. Every number is marked:"
        " *simulated*, or *public data* (records of real machines). None of it was measured on a"
        " fleet of today's GPUs with known faults. The same report again:\n\n"
        f"```\ngpuwarden evaluate --state STATE --out FOLDER {words}\n```\n\n"
        f"Made on {machine_words()}. A step that was stopped begins anew, a finished one stays."
    )


def _recordings(results: Results) -> str:
    rows = []
    for one in results.recipes:
        facts = results.recording(one.name)
        rows.append(
            (one.name, one.group, facts.generator, facts.parameters_sha256[:12], f"`{one.command}`")
        )
    return (
        "## Recordings (simulated)\n\nMade for this report and thrown away; each comes again by its"
        f" command.\n\n{table(('name', 'set', 'generator', 'parameters', 'made by'), rows)}"
    )


def _facts(results: Results, name: str) -> dict[str, object]:
    found = results.recording(name)
    return {
        "nodes": found.nodes,
        "hours": found.hours,
        "interval_s": found.interval_s,
        "generator": found.generator,
        "parameters_sha256": found.parameters_sha256,
    }
