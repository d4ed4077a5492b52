"""The benchmark's part of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuwarden_models.evaluation.exclusion.captures import LEAK_AUC, SHARES
from gpuwarden_models.evaluation.exclusion.reference import BASE_RATE, RULES, TREES, TUNE_ROWS
from gpuwarden_models.evaluation.plain import fixed, share, span, table

_DAY_S = 86400.0
_CURVE = ("rank by", "AUC", "AP", *(f"at {100 * one:g} %" for one in SHARES))


def exclusion_page(result: Mapping[str, Any]) -> str:
    """Markdown, from what `exclusion_benchmark` found as JSON."""
    titan = result["titan"]
    parts = (
        "## Whom to exclude by its past (public data)",
        "Real machines, real failures, no telemetry: which seats have an event in the 90 days after"
        " a snapshot, snapshots 60 days apart, features of the past alone. Titan is a machine of"
        " 2013 and LANL's are CPU clusters of 1996 to 2005: this compares methods and gives no rate"
        " for today's GPUs. Origins: docs/public-data.md.",
        _titan(titan),
        "Each cell: share of later events at the flagged seats (95 %, places drawn anew); precision"
        f" (95 % Wilson); lift.\n\n{_curve(titan['rankings'])}",
        _cost(titan["rankings"]),
        f"An AUC above {LEAK_AUC:.2f} is marked as a suspected leak."
        f" {_leaks('Titan', titan['rankings'])}",
        _check(result["check"]),
        _lanl(result["lanl"]),
    )
    return "\n\n".join(parts)


def exclusion_bar(result: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether the slow rank is at least as precise as the same-part rule at equal flags."""
    titan = result["titan"]
    rank, rule = titan["rank_at_rule"], _chosen_rule(titan)
    met = rank["hits"] >= rule["hits"]
    return met, (
        f"{rank['hits']} of {rank['flagged']} against {rule['hits']} of {rule['flagged']}"
        f" (95 % {span(rule['precision_wilson'])}): few flags, wide interval"
    )


def _chosen_rule(titan: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(iter(titan["rules"].values()))
    return found


def _titan(titan: Mapping[str, Any]) -> str:
    windows, rule = titan["windows"], _chosen_rule(titan)
    rows = [
        (name, one["flagged"], one["hits"], share(one["precision"]),
         span(one["precision_wilson"]), span(one["precision_bootstrap"]), share(one["capture"]),
         fixed(one["lift"], 1), f"{one['lost_hours']:,.0f}")
        for name, one in titan["rules"].items()
    ]  # fmt: skip
    columns = (
        *("rule", "flagged", "right", "precision", "Wilson", "bootstrap", "capture", "lift"),
        "GPU-hours given up",
    )
    return (
        f"### Titan\n\n{titan['cabinets'][0]} cabinets to tune on (2015-01 to 2017-03,"
        f" {titan['rows'][0]:,} rows), {titan['cabinets'][1]} others to test on (2017-10 to"
        f" 2019-04, {titan['rows'][1]:,} rows, {titan['positives']} with an event,"
        f" {share(titan['base_rate'], 2)}). Chosen on the tuning part: the same-part rule looks"
        f" back {titan['part_window_days']:g} d; the slow rank {windows['part_s'] / _DAY_S:g} d at"
        f" the part, {windows['place_s'] / _DAY_S:g} d at the place, half-life"
        f" {windows['half_life_s'] / _DAY_S:g} d.\n\n{table(columns, rows)}\n\nAt equal flags"
        f" ({rule['flagged']}): same-part rule {rule['hits']} right, slow rank"
        f" {titan['rank_at_rule']['hits']}, trees on all {titan['trees_at_rule']['hits']}."
        " The slow rank lists parts by the same evidence first, so with as many flags as the rule"
        " it flags the same seats; what it adds is the order among them and the places after them."
    )


def _curve(rankings: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (one["name"], _auc(one), fixed(one["ranked"]["average_precision"], 3),
         *(_cell(found) for found in one["at_shares"]))
        for one in rankings
    ]  # fmt: skip
    return table(_CURVE, rows)


def _auc(one: Mapping[str, Any]) -> str:
    return fixed(one["ranked"]["auc"]) + (" leak?" if one["ranked"]["leak"] else "")


def _cell(found: Mapping[str, Any]) -> str:
    return (
        f"{share(found['capture'])} ({span(found['capture_bootstrap'])});"
        f" {share(found['precision'])} ({span(found['precision_wilson'])});"
        f" {fixed(found['lift'], 1)}"
    )


def _cost(rankings: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (one["name"], *(f"{found['lost_hours']:,.0f}" for found in one["at_shares"]))
        for one in rankings
        if one["name"] in ("chance", "slow rank", "everything (trees)")
    ]
    return (
        "What that costs: GPU-hours of flagged seats without an event, until the next snapshot"
        f"\n\n{table(('rank by', *_CURVE[3:]), rows)}"
    )


def _leaks(machine: str, rankings: Sequence[Mapping[str, Any]]) -> str:
    names = [one["name"] for one in rankings if one["ranked"]["leak"]]
    return f"{machine}: {', '.join(names)}." if names else f"{machine}: none."


def _check(check: Mapping[str, Any]) -> str:
    rules = [
        (name, one["flagged"], share(one["precision"]), share(one["capture"]),
         f"{RULES[name][0]}, {share(RULES[name][1], 0)}, {share(RULES[name][2])}")
        for name, one in check["rules"].items()
    ]  # fmt: skip
    trees = [
        (name, fixed(one["auc"]), share(one["capture"]),
         f"{fixed(TREES[name][0])}, {share(TREES[name][1])}")
        for name, one in check["trees"].items()
    ]  # fmt: skip
    same = "the same number" if check["tune_rows"] == TUNE_ROWS else f"there {TUNE_ROWS:,}"
    return (
        "### Check against figures that other code gave on these records\n\n"
        f"All {check['cabinets']} cabinets at hand, the earlier time against the later:"
        f" {check['tune_rows']:,} rows to tune on ({same}), base rate"
        f" {share(check['base_rate'], 2)} (there, on other cabinets, {share(BASE_RATE, 2)}).\n\n"
        + table(("rule", "flagged", "precision", "capture", "there"), rules)
        + "\n\n"
        + table(("trees on", "AUC", "capture at 5 %", "there"), trees)
    )


def _lanl(systems: Sequence[Mapping[str, Any]]) -> str:
    names = [one["name"] for one in systems[0]["rankings"]]
    rows = [
        (one["name"], one["nodes"], one["outages"], share(one["base_rate"]),
         f"{one['half_life_days']:g} d",
         *(f"{share(rank['at_shares'][-1]['capture'])}, {share(rank['at_shares'][-1]['precision'])}"
           + (" leak?" if rank["ranked"]["leak"] else "") for rank in one["rankings"]))
        for one in systems
    ]  # fmt: skip
    columns = ("system", "nodes", "outages", "base rate", "half-life", *names)
    return (
        "### LANL\n\nNodes stay where they are, so a node is its own part. Each system is tested on"
        " the second half of its time by what the other systems chose (half-life; trees). Each"
        " cell: capture and precision with 5 % of the nodes flagged, at least one.\n\n"
        f"{table(columns, rows)}\n\n{_mean(systems)}"
    )


def _mean(systems: Sequence[Mapping[str, Any]]) -> str:
    names = [one["name"] for one in systems[0]["rankings"]]
    rows = [
        (name, *(_summed(systems, place, number) for number in range(len(SHARES))))
        for place, name in enumerate(names)
    ]
    return (
        "Mean capture and lift over the systems\n\n"
        + table(("rank by", *_CURVE[3:]), rows)
        + "\n\nA recency score may pass the leak mark on a system where most nodes fail in any 90"
        " days: it uses nothing but outages before the snapshot."
    )


def _summed(systems: Sequence[Mapping[str, Any]], place: int, number: int) -> str:
    found = [one["rankings"][place]["at_shares"][number] for one in systems]
    capture = sum(one["capture"] or 0.0 for one in found) / len(found)
    lift = sum(one["lift"] or 0.0 for one in found) / len(found)
    return f"{share(capture)}; {fixed(lift, 1)}"
