"""How often the diagnosis names what makes a job slow, and whom it blames wrongly.

    .venv/bin/python bench/diagnosis.py [--nodes 40 96] [--cases 8] [--write]

Simulated plants whose jobs go step by step and wait for the slowest rank (models/gpuwarden_models/
diagnosis): single and double faults, and what looks odd though no part is at fault. Neither the
sizes nor the seeds were used for tuning. `--write` puts the table into docs/diagnosis.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gpuwarden_models.diagnosis.faults import FAULTS
from gpuwarden_models.diagnosis.scenarios import NEGATIVES, Case, make_case
from gpuwarden_verdict.diagnosis import Diagnosis, Window, diagnose
from gpuwarden_verdict.diagnosis.domain import COMPONENTS, CulpritKind

DOUBLES = (
    "gpu+leaf",
    "host+storage_server",
    "nic+disk",
    "gpu+storage_rpc",
    "mount_client+nic",
    "disk+gpu",
    "host+rail",
    "leaf+storage_server",
)
SEED = 7_000
ASKED_MINUTES = (30, 20, 15, 10, 8, 6, 4, 3)
BARS = {"top-1": (0.80, 1), "top-2": (0.92, 1), "false blame on negatives": (0.05, -1)}
PAGE = Path(__file__).resolve().parents[1] / "docs" / "diagnosis.md"
BEGIN, END = "<!-- bench/diagnosis.py begins -->", "<!-- bench/diagnosis.py ends -->"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one case went.

    Attributes:
        group: single, double or negative.
        truth: First true kind, in words.
        said: What the answer says, "undecided" for an abstention.
        first: Whether the first culprit is a true one (for a negative: the right answer).
        both: Whether all true ones are among the first two.
        false: Whether a sound part is blamed first.
        stable_s: Seconds from the onset to the first of the answers that stay right; None where
            the last answer is wrong or nothing had to be found.
        shuffled: Whether the first culprit is still true once who sits where is shuffled.
    """

    group: str
    truth: str
    said: str
    first: bool
    both: bool
    false: bool
    stable_s: float | None
    shuffled: bool


def judged(case: Case, told: Diagnosis) -> tuple[bool, bool, bool]:
    """First named is true; all true ones are among the first two; a sound part is blamed."""
    truths = {(one.kind, one.entity) for one in case.truths}
    listed = [(one.kind, one.entity) for one in told.culprits[:2]]
    if told.kind is CulpritKind.NOTHING:
        listed = [(CulpritKind.NOTHING, ""), *listed[:1]]
    first = told.kind is not None and listed[0] in truths
    return first, truths <= set(listed), told.kind in COMPONENTS and not first


def outcome(name: str, nodes: int, seed: int) -> Outcome:
    """Make a case and judge the answers."""
    case = make_case(name, nodes, seed)
    told = diagnose(case.window, case.job)
    first, both, false = judged(case, told)
    swapped = diagnose(shuffled(case.window, seed), case.job)
    return Outcome(
        group="negative" if case.is_negative else "double" if "+" in name else "single",
        truth=case.truths[0].kind.value,
        said="undecided" if told.kind is None else told.kind.value,
        first=first,
        both=both,
        false=false,
        stable_s=None if case.is_negative or not first else _stable_s(case),
        shuffled=judged(case, swapped)[0],
    )


def _stable_s(case: Case) -> float:
    """The first of the times asked from which all answers are right."""
    right_s = (case.window.steps - case.onset) * case.window.step_s
    for minutes in ASKED_MINUTES:
        last = case.onset + minutes - 1
        if last >= case.window.steps:
            continue
        if not judged(case, diagnose(case.window.until(last), case.job))[0]:
            break
        right_s = minutes * 60.0
    return right_s


def shuffled(window: Window, seed: int) -> Window:
    """The same readings with who sits where shuffled: parts in nodes, nodes in jobs and leaves.

    A part's series stay together; which part they are of does not.
    """
    rng = np.random.default_rng([seed, 99])
    nodes = rng.permutation(len(window.nodes))
    strips = {}
    for kind, strip in window.strips.items():
        order = rng.permutation(len(strip.keys))
        strips[kind] = replace(strip, values={n: v[order] for n, v in strip.values.items()})
    places = {key: nodes[rows] for key, rows in window.places.items()}
    return replace(window, strips=strips, places=places)


def measure(sizes: Sequence[int], cases: int) -> list[Outcome]:
    """All cases."""
    names = (*FAULTS, *DOUBLES, *NEGATIVES)
    outcomes = []
    for nodes in sizes:
        for name in names:
            outcomes += [outcome(name, nodes, SEED + seed) for seed in range(cases)]
            print(f"{nodes} nodes, {name}", file=sys.stderr, flush=True)
    return outcomes


def table(outcomes: Sequence[Outcome], sizes: Sequence[int], took_s: float) -> str:
    """What is printed and committed."""
    lines = [
        f"{len(outcomes)} simulated cases on {' and '.join(map(str, sizes))} nodes of 8 GPUs; "
        "sizes and seeds were not used in tuning. 50 minutes are asked about, trouble begins in "
        "the first 20 of them, and 50 minutes of past lie before.",
        "",
        "| | cases | top-1 | top-2 | undecided | a sound part blamed | shuffled, top-1 |",
        "|---|---|---|---|---|---|---|",
    ]
    groups = {
        "one fault": [one for one in outcomes if one.group == "single"],
        "two faults": [one for one in outcomes if one.group == "double"],
        "faults, all": [one for one in outcomes if one.group != "negative"],
        "negatives": [one for one in outcomes if one.group == "negative"],
    }
    lines += [_row(name, ones) for name, ones in groups.items()]
    lines += ["", *_bars(groups), "", *_stability(groups["faults, all"]), "", *_matrix(outcomes)]
    lines += ["", f"One case is read, and judged once, in {took_s:.2f} s of one core."]
    return "\n".join(lines)


def _share(flags: Iterable[bool]) -> float:
    return float(np.mean([float(one) for one in flags]))


def _row(name: str, ones: Sequence[Outcome]) -> str:
    values = (
        _share(one.first for one in ones),
        _share(one.both for one in ones),
        _share(one.said == "undecided" for one in ones),
        _share(one.false for one in ones),
        _share(one.shuffled for one in ones),
    )
    return f"| {name} | {len(ones)} | " + " | ".join(f"{value:.3f}" for value in values) + " |"


def _bars(groups: dict[str, list[Outcome]]) -> list[str]:
    faults, negatives = groups["faults, all"], groups["negatives"]
    reached = {
        "top-1": _share(one.first for one in faults),
        "top-2": _share(one.both for one in faults),
        "false blame on negatives": _share(one.false for one in negatives),
    }
    lines = ["| bar | wanted | reached | |", "|---|---|---|---|"]
    for name, (wanted, sign) in BARS.items():
        met = "met" if sign * reached[name] >= sign * wanted else "MISSED"
        lines.append(
            f"| {name} | {'>=' if sign > 0 else '<='} {wanted} | {reached[name]:.3f} | {met} |"
        )
    return lines


def _stability(ones: Sequence[Outcome]) -> list[str]:
    times = [one.stable_s / 60.0 for one in ones if one.stable_s is not None]
    quantiles = np.quantile(times, (0.5, 0.9))
    return [
        f"Time from the onset to an answer that stays right: median {quantiles[0]:.0f} min, nine "
        f"of ten within {quantiles[1]:.0f} min ({len(times)} cases; asked at 3 to 30 min).",
    ]


def _matrix(outcomes: Sequence[Outcome]) -> list[str]:
    """Rows: the truth of single faults and negatives; columns: what is said."""
    ones = [one for one in outcomes if one.group != "double"]
    said = Counter((one.truth, one.said) for one in ones)
    kinds = [kind.value for kind in CulpritKind]
    head = [*kinds, "undecided"]
    lines = [
        "Truth by row, answer by column (single faults and negatives):",
        "",
        "| | " + " | ".join(head) + " |",
        "|---" * (len(head) + 1) + "|",
    ]
    for truth in kinds:
        row = [str(said[truth, one] or "") for one in head]
        lines.append(f"| {truth} | " + " | ".join(row) + " |")
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[40, 96])
    parser.add_argument("--cases", type=int, default=8, help="Cases of each name and size.")
    parser.add_argument("--write", action="store_true", help="Put it into docs/diagnosis.md.")
    arguments = parser.parse_args()
    case = make_case("leaf", arguments.nodes[-1], SEED)
    began = time.process_time()
    diagnose(case.window, case.job)
    took_s = time.process_time() - began
    told = table(measure(arguments.nodes, arguments.cases), arguments.nodes, took_s)
    print(told)
    if arguments.write:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{told}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
