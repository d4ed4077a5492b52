"""What an evaluation is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gpuwarden_models.evaluation.sets import QUICK, Sizes


@dataclass(frozen=True, slots=True)
class Options:
    """Arguments of `gpuwarden evaluate`.

    Attributes:
        state: Folder of what is done so far; a run that is called again goes on there.
        out: Folder for report.md and report.json.
        seed: Everything random hangs on it.
        public: Folder of public data, None where there is none: those parts are left out.
        minutes: No step begins after so long.
        tree_seeds: How often trees of the exclusion benchmark are grown.
        sizes: How much is simulated.
    """

    state: Path
    out: Path
    seed: int = 1
    public: Path | None = None
    minutes: float = 45.0
    tree_seeds: int = 3
    sizes: Sizes = QUICK

    def words(self) -> list[str]:
        """As they are written after the command, but for folders."""
        words = [f"--seed {self.seed}", f"--tree-seeds {self.tree_seeds}"]
        words += ["--public-data DATA"] if self.public is not None else []
        sizes = self.sizes
        if sizes == QUICK:
            return ["--quick", *words]
        return [
            f"--nodes {sizes.nodes} --hours {sizes.hours:g} --interval-s {sizes.interval_s:g}",
            f"--train-sets {sizes.train_sets} --test-sets {sizes.test_sets}",
            f"--healthy-days {sizes.healthy_days:g} --curve-nodes {sizes.curve_nodes}",
            f"--curve-hours {sizes.curve_hours:g}",
            *(f"--curve-interval {one:g}" for one in sizes.curve_intervals_s),
            f"--trees {sizes.trees} --fault-factor {sizes.fault_factor:g}",
            *words,
        ]
