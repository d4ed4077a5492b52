"""What the learnt score costs in a sweep: `.venv/bin/python bench/score.py`.

80,000 GPUs at work, one in two hundred of them with errors that a model must look at. Both in one
run, CPU time of all threads, medians of `--repeats`:

- scikit-learn's `predict_proba` over the features of all GPUs, by a classifier with as many trees
  and leaves as the model that ships. What the features cost is not even counted;
- what a sweep does after its detectors: the first stage over the cheap features of all GPUs, all
  features of its suspects, trees and novelty of these.

Ends with 1 where the second costs more than 0.02 of the first.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.sweep import START, Bench, make_fleet, read_again, weigh
from gpuwarden_verdict.context import FleetContext
from gpuwarden_verdict.detectors import detect_sweep
from gpuwarden_verdict.features import FeatureScene, feature_table
from gpuwarden_verdict.fusion import FusionModel
from gpuwarden_verdict.fusion.fuse import score_suspects
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.schema import schema_for
from tests.builders.simulated import shipped_model

MOST = 0.02
SICK_ONE_IN = 200
ERRORS = "gpu_ecc_corrected_volatile_total"
TAUGHT = 20_000
"""Rows that the classifier of scikit-learn learns from; its size is what counts."""


def main() -> int:
    """Print the table; 0 where the limit is kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=80_000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    model, bench = shipped_model(), make_fleet(options.gpus)
    stage_ms, suspects = weigh_stage(model, bench, options.repeats)
    whole_ms = weigh_whole(model, bench, options.repeats)
    trees = model.trees.roots.size
    print(f"{options.gpus} GPUs, {len(model.features)} features, {trees} trees, CPU\n")
    print("| | ms | share | at most |\n|---|---:|---:|---:|")
    print(f"| scikit-learn, predict_proba of all | {whole_ms:.0f} | 1 | |")
    print(
        f"| first stage, features and trees of {suspects} suspects | {stage_ms:.1f} |"
        f" {stage_ms / whole_ms:.4f} | {MOST} |"
    )
    return 0 if stage_ms <= MOST * whole_ms else 1


def weigh_stage(model: FusionModel, bench: Bench, repeats: int) -> tuple[float, int]:
    """Milliseconds of the classifier's stage in a sweep, and how many suspects it scored."""
    spent: list[float] = []
    suspects = 0
    times = (START + 60.0 + 61.0 * number for number in count())
    for _, at in zip(range(repeats + 2), times, strict=False):
        read_again(bench, at)
        fall_ill(bench, at)
        scene = scene_of(bench)
        detect_sweep(scene.state, scene.fleet, at)
        began = time.process_time()
        found = score_suspects(model, scene, (), at)
        spent.append(1e3 * (time.process_time() - began))
        suspects = found.odds.size
    return median(spent[2:]), suspects


def weigh_whole(model: FusionModel, bench: Bench, repeats: int) -> float:
    """Milliseconds of scikit-learn over all rows."""
    matrix = feature_table(EntityKind.GPU, scene_of(bench), START + 3600.0).matrix
    errors = model.features.names.index("ecc_corrected_24h")
    rng = np.random.default_rng(5)
    taught = matrix[:TAUGHT] + rng.normal(0.0, 1.0, (min(TAUGHT, len(matrix)), matrix.shape[1]))
    leaves = int(model.trees.leaf.sum() / model.trees.roots.size)
    classifier = HistGradientBoostingClassifier(
        max_iter=model.trees.roots.size,
        max_leaf_nodes=max(leaves, 2),
        early_stopping=False,
        random_state=0,
    )
    taught = np.nan_to_num(taught)  # scikit-learn bins no column that is missing throughout
    needed = (taught[:, errors] + rng.normal(0.0, 3.0, len(taught))) > 1.0
    classifier.fit(taught.astype(np.float32), needed)
    return weigh(lambda: classifier.predict_proba(matrix), repeats)


def scene_of(bench: Bench) -> FeatureScene:
    """The fleet as a sweep of now sees it."""
    context = FleetContext(
        models=bench.context.models,
        pools=bench.context.pools,
        jobs=bench.context.jobs,
        memory=bench.context.memory,
    )
    return FeatureScene(bench.state.snapshot(), context)


def fall_ill(bench: Bench, at: float) -> None:
    """One GPU in SICK_ONE_IN reads many corrected errors."""
    rows = np.arange(0, len(bench.state.view(EntityKind.GPU)), SICK_ONE_IN)
    schema = schema_for(EntityKind.GPU, [ERRORS])
    errors = np.full((1, rows.size), 50.0 * (at - START))
    empty = np.empty((0, rows.size), np.float32)
    bench.state.apply_table(EntityKind.GPU, rows, schema, empty, errors, (), at + 1.0)


if __name__ == "__main__":
    sys.exit(main())
