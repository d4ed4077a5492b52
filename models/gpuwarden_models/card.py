"""The model card: what a model is, what it was made from, how good it is and is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwarden_verdict.features import FEATURE_SETS
from gpuwarden_wire.metrics import EntityKind


def write_card(version: str, facts: Mapping[str, Any]) -> str:
    """The card in Markdown, every figure from `facts` (metrics.json)."""
    parts = (
        f"# GPU risk model {version}",
        _purpose(facts),
        _making(facts),
        _figures(facts["held_out_nodes"], simulated=bool(facts["simulated"])),
        _features(),
        _limits(facts),
    )
    return "\n\n".join(parts) + "\n"


def _purpose(facts: Mapping[str, Any]) -> str:
    hours = facts["horizon_s"] / 3600.0
    return (
        f"Probability that a GPU needs action within {hours:g} h. Gradient-boosted trees"
        " (scikit-learn HistGradientBoostingClassifier), monotone: a larger value of any feature"
        " never lowers the risk. Calibrated by a sigmoid on nodes that did not train. Stored as"
        " plain arrays; the server scores it with numpy."
    )


def _making(facts: Mapping[str, Any]) -> str:
    source = facts["trained_on"]
    lines = ["## Made from", ""]
    if facts["simulated"]:
        lines += [
            "A simulated recording; no real telemetry is in this model. The same bytes again:",
            "",
            "```",
            f"gpuwarden simulate --nodes {source['nodes']}"
            f" --gpus-per-node {source['gpus'] // source['nodes']} --hours {source['hours']:g}"
            f" --seed {source['recording_seed']} --interval-s {source['interval_s']:g}"
            f"{' --common-causes' if source.get('common_causes') else ''} --out DIR",
            f"gpuwarden train DIR --seed {facts['seed']}",
            "```",
            "",
        ]
    lines.append(
        f"{source['gpus']} GPUs on {source['nodes']} nodes over {source['hours']:g} h,"
        f" {source['incidents']} incidents; {source['train_rows']} training rows,"
        f" {source['train_positive_rows']} of them positive; {source['calibration_rows']}"
        f" calibration rows; split seed {facts['seed']}."
    )
    return "\n".join(lines)


def _figures(held_out: Mapping[str, Any], *, simulated: bool) -> str:
    mark = " (simulated)" if simulated else ""
    lead = held_out["median_lead_s"]
    rows = (
        ("rows", held_out["rows"]),
        ("base rate", f"{held_out['base_rate']:.4f}"),
        ("Brier score", f"{held_out['brier']:.5f}"),
        ("Brier skill against the base rate", f"{held_out['brier_skill']:.3f}"),
        ("ROC AUC", _or_none(held_out["roc_auc"])),
        ("average precision", _or_none(held_out["average_precision"])),
        ("incidents", held_out["incidents"]),
        ("flagged at 0.5 before their end", held_out["flagged"]),
        ("of these before action was needed", held_out["flagged_before_start"]),
        ("median of start less first flag", "none" if lead is None else f"{lead:.0f} s"),
        ("false episodes", held_out["false_episodes"]),
        ("GPU-days outside labels", f"{held_out['healthy_gpu_days']:.1f}"),
    )
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    classes = "\n".join(
        f"| {name} | {row['incidents']} | {row['flagged']} | {row['flagged_before_start']} |"
        for name, row in held_out["by_class"].items()
    )
    return (
        f"## On held-out nodes{mark}\n\n| figure | value |\n|---|---|\n{table}\n\n"
        "| class | incidents | flagged | before action was needed |\n|---|---|---|---|\n"
        f"{classes}"
    )


def _features() -> str:
    features = FEATURE_SETS[EntityKind.GPU].features
    table = "\n".join(f"| {f.name} | {f.plane} | {f.fault_class} |" for f in features)
    return f"## Features\n\n| name | plane | points at |\n|---|---|---|\n{table}"


def _limits(facts: Mapping[str, Any]) -> str:
    origin = (
        "Faults come far more often in the recording than in life, so the probability is that of"
        " the training mix: good for ranking and for a threshold, too high at a real base rate."
        if facts["simulated"]
        else "The probability holds for fleets that fail as often as the recording's."
    )
    return (
        f"## Limits\n\n{origin} Faults without any trace beforehand (a GPU off the bus) are for the"
        " rules to name: rows of a GPU that no longer answers taught nothing, so that a reading"
        " that a GPU lacks is no sign of a fault. Kinds of faults that the recording lacks are not"
        " learnt; the rules stand beside the score for them. The score alone may exclude only where"
        " the policy allows it and a trial on the very fleet is recorded."
    )


def _or_none(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
