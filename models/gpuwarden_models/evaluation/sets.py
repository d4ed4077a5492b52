"""The recordings of an evaluation: what each is made with, and what it is for."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from pathlib import Path

from gpuwarden_models.second_generator import GENERATOR as SECOND_GENERATOR
from gpuwarden_models.second_generator import write_recording
from gpuwarden_models.simulate import Variation, simulate

GENERATOR = "gpuwarden-simulator"

OTHER_SEEDS, SECOND, CONFOUNDERS, NO_PRECURSORS, REAL_BACKGROUND = (
    "other seeds",
    "second generator",
    "confounders only",
    "no precursors",
    "real background, spliced",
)


NEARLY_HEALTHY, SECOND_HEALTHY = "nearly healthy", "nearly healthy, second generator"
HEALTHY_OF = {OTHER_SEEDS: NEARLY_HEALTHY, SECOND: SECOND_HEALTHY}
"""Where the false rate of a set comes from: healthy days of the program that made it, no others."""


class Use(StrEnum):
    """What a recording is for."""

    TRAIN = "train"  # what is retrained for comparison learns from it
    TUNE = "tune"  # thresholds are chosen on it
    TEST = "test"  # figures come from it
    HEALTHY = "healthy"  # long and nearly without faults: the false rate of the whole system


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is simulated.

    Attributes:
        nodes: Nodes of 8 GPUs in each set.
        hours: Length of each.
        interval_s: Time between readings.
        train_sets: Recordings to learn from.
        test_sets: Recordings of the set with other seeds.
        healthy_days: Length of the nearly healthy time of each generator, in recordings of at most
            HEALTHY_SHARD_DAYS.
        curve_nodes: Nodes of the curve over sampling intervals.
        curve_hours: Its length.
        curve_intervals_s: Its intervals.
        trees: Boosting rounds of what is retrained.
        fault_factor: Moves how often faults come, from the simulator's dense rates: with a horizon
            of a day those would make most rows positive.
    """

    nodes: int = 64
    hours: float = 96.0
    interval_s: float = 120.0
    train_sets: int = 2
    test_sets: int = 2
    healthy_days: float = 100.0
    curve_nodes: int = 64
    curve_hours: float = 24.0
    curve_intervals_s: tuple[float, ...] = (1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
    trees: int = 120
    fault_factor: float = 0.15


QUICK = Sizes(
    nodes=4, hours=1.5, interval_s=60.0, train_sets=0, test_sets=1, healthy_days=0.0,
    curve_nodes=0, curve_hours=0.0, curve_intervals_s=(), trees=20,
    fault_factor=12.0,
)  # fmt: skip

HEALTHY_SHARD_DAYS = 10.0
HEALTHY_DENSITY = 0.0032
"""Of the second generator: 0.31 faults a day on 500 GPUs, as published, where density 1 has 96."""

USUAL = Variation()


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one recording is made.

    Attributes:
        name: Of it, and of its step.
        group: The set that it belongs to; one line of the report.
        use: What it is for.
        nodes: Nodes of 8 GPUs.
        hours: Length.
        seed: Its seed.
        interval_s: Time between readings.
        generator: What makes it.
        variation: How it departs from the usual recording of the simulator; of the second
            generator its fault factor alone, which is that one's density.
        rows: Whether features are taken from it for scorers of rows.
        spliced: Whether its healthy GPUs show readings of real ones.
    """

    name: str
    group: str
    use: Use
    nodes: int
    hours: float
    seed: int
    interval_s: float
    generator: str = GENERATOR
    variation: Variation = USUAL
    rows: bool = True
    spliced: bool = False

    @property
    def command(self) -> str:
        """The command that makes the same recording."""
        if self.generator != GENERATOR:
            return (
                f"{self.generator}: {self.nodes} nodes, {self.hours:g} h, seed {self.seed},"
                f" every {self.interval_s:g} s, density {self.variation.fault_factor:g}"
            )
        words = [
            f"gpuwarden simulate --out DIR --nodes {self.nodes} --hours {self.hours:g}",
            f"--seed {self.seed} --interval-s {self.interval_s:g}",
        ]
        for one in fields(Variation):
            value = getattr(self.variation, one.name)
            if value != one.default:
                words.append(_option(one.name, value))
        return " ".join(words)


def recipes(sizes: Sizes, seed: int, *, real: bool = False) -> list[Recipe]:
    """All recordings, those to learn and tune from first.

    Args:
        sizes: How much.
        seed: All seeds follow from it; no two recordings share one.
        real: Whether public telemetry is there to be spliced in.
    """
    found: list[Recipe] = []
    faults = Variation(fault_factor=sizes.fault_factor)

    def add(
        name: str,
        group: str,
        use: Use,
        variation: Variation = USUAL,
        generator: str = GENERATOR,
    ) -> None:
        number = 1000 * seed + len(found)
        found.append(
            Recipe(name, group, use, sizes.nodes, sizes.hours, number, sizes.interval_s, generator,
                   variation)
        )  # fmt: skip

    for number in range(sizes.train_sets):
        add(f"train-{number}", "train", Use.TRAIN, faults)
    add("tune", "tune", Use.TUNE, faults)
    for number in range(sizes.test_sets):
        add(f"seeds-{number}", OTHER_SEEDS, Use.TEST, faults)
    add("confounders", CONFOUNDERS, Use.TEST, Variation(confounders_only=True))
    if sizes.train_sets:
        add("a100", "other GPU model", Use.TEST, replace(faults, gpu_model="a100"))
        add("twice", "parameters x 2", Use.TEST, replace(faults, scale_parameters=2.0))
        add("half", "parameters / 2", Use.TEST, replace(faults, scale_parameters=0.5))
        add("sudden", NO_PRECURSORS, Use.TEST, replace(faults, precursors=False))
        add("common", "common causes too", Use.TEST, replace(faults, common_causes=True))
    for number in range(max(1, sizes.test_sets)):
        add(f"second-{number}", SECOND, Use.TEST, faults, SECOND_GENERATOR)
    if real and sizes.train_sets:
        add("real", REAL_BACKGROUND, Use.TEST, faults)
        found[-1] = replace(found[-1], rows=False, spliced=True)
    return [*found, *_healthy(sizes, seed)]


def _healthy(sizes: Sizes, seed: int) -> list[Recipe]:
    """Of both generators in turn, so that a run that is stopped has some days of each."""
    shards = round(sizes.healthy_days / HEALTHY_SHARD_DAYS + 0.499)
    days = sizes.healthy_days / max(shards, 1)
    calibrated, seldom = Variation(rates="calibrated"), Variation(fault_factor=HEALTHY_DENSITY)
    return [
        Recipe(
            f"{name}-{number}", group, Use.HEALTHY, sizes.nodes, 24.0 * days,
            1000 * seed + first + number, sizes.interval_s, generator, variation, rows=False,
        )
        for number in range(shards)
        for name, group, first, generator, variation in (
            ("healthy", NEARLY_HEALTHY, 500, GENERATOR, calibrated),
            ("second-healthy", SECOND_HEALTHY, 700, SECOND_GENERATOR, seldom),
        )
    ]  # fmt: skip


def make_recording(recipe: Recipe, folder: Path) -> None:
    """Make a recording, from the start where one is there by half.

    Args:
        recipe: How.
        folder: Where; what is there is replaced.

    Raises:
        ValueError: The generator has no such number or word.
    """
    if folder.exists():
        shutil.rmtree(folder)
    if recipe.generator == GENERATOR:
        simulate(
            folder, recipe.nodes, 8, recipe.hours, recipe.seed, recipe.interval_s,
            variation=recipe.variation,
        )  # fmt: skip
        return
    write_recording(
        folder, recipe.nodes, recipe.hours, recipe.seed, interval_s=recipe.interval_s,
        density=recipe.variation.fault_factor,
    )  # fmt: skip


def _option(name: str, value: object) -> str:
    option = name.replace("_", "-")
    if value is True:
        return f"--{option}"
    return f"--no-{option}" if value is False else f"--{option} {value}"
