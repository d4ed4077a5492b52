"""Writes the tables of docs/simulator.md: the parameters, and what the simulator measures.

`python docs/generate_simulator.py` plays the simulator for some seconds; a test compares the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from gpuwarden_models.simulator.calibration import QUICK, Marginal, measure
from gpuwarden_models.simulator.fault_names import FAULT_KINDS, FaultName
from gpuwarden_models.simulator.parameters import (
    MECHANISMS,
    GpuModel,
    parameters_hash,
    source_of,
    words_of,
)

PAGE = Path(__file__).with_name("simulator.md")


def page(text: str, marginals: Sequence[Marginal]) -> str:
    """The page with its hash and tables made anew; the words between them stay.

    Args:
        text: The page as it is.
        marginals: What the simulator measured of itself.
    """
    columns = ("mechanism", "class", "of", "what happens", "precursor", "repair")
    rates = ("dense", "H100", "A100", "source of the rates")
    figures = ("figure", "published", "simulated", "has to lie in", "source")
    blocks = {
        "hash": f"`{parameters_hash()}`\n",
        "mechanisms": _table((*columns, *rates), (_mechanism(name) for name in FaultName)),
        "marginals": _table(figures, (_marginal(one) for one in marginals)),
    }
    for name, block in blocks.items():
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        after = rest.partition(f"<!-- end of {name} -->\n")[2]
        text = f"{before}<!-- {name} -->\n{block}<!-- end of {name} -->\n{after}"
    return text


def _mechanism(name: FaultName) -> tuple[str, ...]:
    kind, mechanism, path = FAULT_KINDS[name], MECHANISMS[name], f"mechanisms.{name}"
    rates = [mechanism.per_million_hours[model] for model in GpuModel]
    sources = {source_of(path, f"{model}_per_million_hours"): None for model in GpuModel}
    low, high = mechanism.drawn_ramp_s
    ramp = f" over {_time(low)} to {_time(high)}" if high > 1.0 else ""
    share = f"{mechanism.precursor_share:.0%}{ramp}" if high > 1.0 else "none"
    place, text = words_of(name)
    return (
        f"`{name}`",
        kind.fault_class.value,
        place,
        text,
        share if kind.action_needed else "",
        "/".join(f"{share:.0%}" for share in mechanism.repair_shares) if _repaired(name) else "",
        f"{mechanism.dense_per_day:g}",
        *(f"{rate:g}" for rate in rates),
        "; ".join(sources),
    )


def _repaired(name: FaultName) -> bool:
    return FAULT_KINDS[name].action_needed and not FAULT_KINDS[name].common


def _time(seconds: float) -> str:
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} min"


def _marginal(one: Marginal) -> tuple[str, ...]:
    low, high = one.published.bounds
    return (
        one.name.replace("_", " "),
        one.published.text,
        f"{one.simulated:.3g}",
        f"{low:g} to {high:g}",
        one.published.source,
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), measure(QUICK)), encoding="utf-8")
