"""The model card: what a model is, what it was made from, how good it is and is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gpuwarden_models.simulate import Variation
from gpuwarden_verdict.features import FeatureSet

_NAMES = {"gpu": "GPU", "node": "node", "nic": "network port"}


def write_card(version: str, features: FeatureSet, facts: Mapping[str, Any]) -> str:
    """The card in Markdown, every figure from `facts` (metrics.json)."""
    name = _NAMES[features.kind.value]
    parts = (
        f"# {name[0].upper()}{name[1:]} risk model {version}",
        _purpose(name, facts),
        _making(facts),
        _figures(facts),
        _stages(facts),
        _columns(features),
        _limits(facts),
    )
    return "\n\n".join(parts) + "\n"


def write_refit_card(version: str, features: FeatureSet, facts: Mapping[str, Any]) -> str:
    """The card of a model that a fleet's own incidents refitted."""
    name, source = _NAMES[features.kind.value], facts["trained_on"]
    costs = facts["costs"]
    said = (
        "as it was"
        if costs is None
        else f"that of the costs set: {costs['gpu_hour_false_exclusion']:g} for a GPU-hour falsely"
        f" excluded, {costs['gpu_hour_missed_fault']:g} for one of a missed fault"
    )
    trees = "grown anew from the fleet's rows" if facts["trees_grown_anew"] else "those of"
    made = (
        f"## Made from\n\nThis fleet's own incidents, after {facts['refitted_from']}:"
        f" {source['labelled_incidents']} labelled ones, {source['faults']} of them faults"
        f" ({_counted(source['by_class']) or 'none with rows'}), {source['rows']} kept rows of"
        f" {source['entities']} entities; split seed {facts['seed']}. The trees are {trees}"
        f"{'' if facts['trees_grown_anew'] else ' ' + facts['refitted_from']}; the sigmoid is of"
        f" these rows; the operating point was {facts['operating_point_before']:g} and is"
        f" {facts['operating_point']:g}, {said}."
    )
    table = "\n".join(f"| {what} | {value} |" for what, value in _rows(facts["held_out_nodes"]))
    limits = (
        "## Limits\n\nA server keeps rows of suspects and of incidents, and few of those that are"
        " healthy: the probability is that of the kept rows. Incidents that nobody could judge, or"
        " that an exclusion hid, taught nothing."
    )
    parts = (
        f"# {name[0].upper()}{name[1:]} risk model {version}",
        _purpose(name, facts),
        made,
        f"## On held-out nodes\n\n| figure | all |\n|---|---|\n{table}",
        _columns(features),
        limits,
    )
    return "\n\n".join(parts) + "\n"


def _purpose(name: str, facts: Mapping[str, Any]) -> str:
    hours = facts["horizon_s"] / 3600.0
    return (
        f"Probability that a {name} needs action within {hours:g} h; suspect from"
        f" {facts['operating_point']:g}. {facts['trees']} gradient-boosted trees (scikit-learn"
        " HistGradientBoostingClassifier), monotone: a worse value of any feature never lowers the"
        " risk. Calibrated by a sigmoid on nodes that did not train. Stored as plain arrays; the"
        " server scores it with numpy."
    )


def _making(facts: Mapping[str, Any]) -> str:
    source = facts["trained_on"]
    lines = ["## Made from", ""]
    if facts["simulated"]:
        lines += [
            "Simulated recordings; no real telemetry is in this model. The same again:",
            "",
            "```",
            *(_command(recording) for recording in source["recordings"]),
            f"gpuwarden train {' '.join(one['name'] for one in source['recordings'])}"
            f" --seed {facts['seed']}",
            "```",
            "",
        ]
    lines += [
        "| recording | nodes | GPUs | hours | interval s | seed | generator | parameters SHA-256 |"
        " files SHA-256 |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_recording(recording) for recording in source["recordings"]),
        "",
        f"{source['incidents']} incidents ({_counted(source['mechanisms'])});"
        f" {source['train_rows']} training rows, {source['train_positive_rows']} of them positive;"
        f" {source['calibration_rows']} calibration rows; a row each"
        f" {facts['sample_every_s'] / 60.0:g} minutes; split seed {facts['seed']}. Rows of the last"
        " fifth of each recording trained nothing.",
    ]
    return "\n".join(lines)


def _command(recording: Mapping[str, Any]) -> str:
    hours = (recording["end"] - recording["start"] + recording["interval_s"]) / 3600.0
    return (
        f"gpuwarden simulate --nodes {recording['nodes']}"
        f" --gpus-per-node {recording['gpus'] // recording['nodes']} --hours {hours:g}"
        f" --seed {recording['seed']} --interval-s {recording['interval_s']:g}"
        f"{_options(recording['variation'])} --out {recording['name']}"
    )


def _options(variation: Mapping[str, Any]) -> str:
    """Options of `gpuwarden simulate` for what departs from the usual."""
    usual = asdict(Variation())
    words: list[str] = []
    for name, value in variation.items():
        if name not in usual or value == usual[name] or (not value and not usual[name]):
            continue
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f" --{'' if value else 'no-'}{option}")
        elif isinstance(value, list | tuple):
            words.append(f" --{option} {','.join(value)}")
        else:
            words.append(f" --{option} {value}")
    return "".join(words)


def _recording(recording: Mapping[str, Any]) -> str:
    hours = (recording["end"] - recording["start"] + recording["interval_s"]) / 3600.0
    cells = (
        recording["name"],
        recording["nodes"],
        recording["gpus"],
        f"{hours:g}",
        f"{recording['interval_s']:g}",
        recording["seed"],
        recording["generator"] or recording["origin"] or "unknown",
        recording["parameters_sha256"][:16] or "none",
        recording["digest"][:16],
    )
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _counted(mechanisms: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in mechanisms.items())


def _figures(facts: Mapping[str, Any]) -> str:
    mark = " (simulated)" if facts["simulated"] else ""
    held_out, later = facts["held_out_nodes"], facts["held_out_nodes_after_the_cut"]
    table = "\n".join(
        f"| {name} | {whole} | {late} |"
        for (name, whole), (_, late) in zip(_rows(held_out), _rows(later), strict=True)
    )
    classes = "\n".join(
        f"| {name} | {row['incidents']} | {row['flagged']} | {row['flagged_before_start']} |"
        for name, row in held_out["by_class"].items()
    )
    return (
        f"## On held-out nodes{mark}\n\n"
        "The second column is of the last fifth of the time alone: other nodes, and later than all"
        " that trained. Row figures leave out rows before a made-up fault shows anything."
        f"\n\n| figure | all | later |\n|---|---|---|\n{table}\n\n"
        "| class | incidents | flagged | before action was needed |\n|---|---|---|---|\n"
        f"{classes}"
    )


def _rows(measures: Mapping[str, Any]) -> tuple[tuple[str, object], ...]:
    lead = measures["median_lead_s"]
    return (
        ("rows", measures["rows"]),
        ("base rate", f"{measures['base_rate']:.4f}"),
        ("Brier score", f"{measures['brier']:.5f}"),
        ("Brier skill against the base rate", f"{measures['brier_skill']:.3f}"),
        ("ROC AUC", _or_none(measures["roc_auc"])),
        ("average precision", _or_none(measures["average_precision"])),
        ("incidents", measures["incidents"]),
        ("flagged before their end", measures["flagged"]),
        ("of these before action was needed", measures["flagged_before_start"]),
        ("median of start less first flag", "none" if lead is None else f"{lead:.0f} s"),
        ("false episodes", measures["false_episodes"]),
        ("entity-days outside labels", f"{measures['healthy_days']:.1f}"),
    )


def _stages(facts: Mapping[str, Any]) -> str:
    stage, novelty = facts["first_stage"], facts["novelty"]
    mark = " (simulated)" if facts["simulated"] else ""
    first = (
        f"Limits on {stage['limits']} features that cost little decide who reaches the trees:"
        f" {stage['healthy_rows_passed']:.2%} of healthy rows do. Of"
        f" {stage['incidents_found_by_all_trees']} held-out incidents that the trees find"
        f" {stage['incidents_lost']} are lost to it."
        if stage["limits"]
        else "There is none: every row reaches the trees."
    )
    return (
        f"## First stage, and what nothing fits{mark}\n\n{first} Where nothing that was learnt fits"
        " (a robust distance to healthy training rows), the score says unknown fault, suspect at"
        f" most: on held-out nodes {novelty['incidents_found_by_it_alone']} incidents more, and"
        f" {novelty['false_episodes']} false episodes in {novelty['healthy_days']:.1f} entity-days."
    )


def _columns(features: FeatureSet) -> str:
    table = "\n".join(
        f"| {f.name} | {f.plane} | {f.fault_class} |{' yes' if f.cheap else ''} |"
        for f in features.features
    )
    return f"## Features\n\n| name | plane | points at | cheap |\n|---|---|---|---|\n{table}"


def _limits(facts: Mapping[str, Any]) -> str:
    origin = (
        "Faults come far more often in the recordings than in life, so the probability is that of"
        " the training mix: good for ranking and for a threshold, too high at a real base rate."
        if facts["simulated"]
        else "The probability holds for fleets that fail as often as the recordings'."
    )
    return (
        f"## Limits\n\n{origin} Faults without any trace beforehand (a GPU off the bus) are for the"
        " rules to name: rows of what no longer answers taught nothing, so that a missing reading"
        " is no sign of a fault. Kinds of faults that the recordings lack are not learnt; the rules"
        " and the distance stand beside the score for them. The score alone may exclude only where"
        " the policy allows it and a trial on the very fleet is recorded."
    )


def _or_none(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"
