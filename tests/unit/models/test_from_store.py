"""What a fleet's own incidents teach the promoted model."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuwarden_models.from_store import FEWEST_INCIDENTS, retrain
from gpuwarden_models.store_rows import StoreError, read_fetched
from gpuwarden_models.train import TrainingError
from gpuwarden_verdict.fusion import decode_model
from gpuwarden_verdict.fusion.predict import log_odds
from tests.builders.simulated import SHIPPED, shipped_model

START, HOUR_S = 1_800_000_000.0, 3600.0
PROMOTED = SHIPPED / (SHIPPED / "PROMOTED").read_text().strip()


def typical() -> tuple[np.ndarray, np.ndarray]:
    """Rows of low and of high risk, of the shipped model."""
    rng = np.random.default_rng(4)
    rows = rng.gamma(0.3, 12.0, (4000, len(shipped_model().features))).astype(np.float32)
    rows[:2000] *= 0.01
    odds = log_odds(shipped_model(), rows)
    return rows[odds < np.quantile(odds, 0.3)], rows[odds > np.quantile(odds, 0.9)]


def written(
    folder: Path, incidents: int, *, unknown: int = 0, costs: tuple[float, float] | None = (1.0, 9)
) -> Path:
    """A fetched folder: every other incident was a fault, and each has its GPU and node."""
    low, high = typical()
    rows: list[dict[str, Any]] = []
    labels: list[dict[str, Any]] = []
    for number in range(incidents + unknown):
        gpu, faulty = f"GPU-{number}", number % 2 == 0
        values = (high if faulty else low)[number : number + 3]
        begin = START + number * 48 * HOUR_S
        needed = faulty if number < incidents else None
        times = [begin + hours * HOUR_S for hours in (0, 1, 2)]
        rows += [row(gpu, at, one) for at, one in zip(times, values, strict=True)]
        labels.append(label(gpu, begin, begin + 12 * HOUR_S, needed))
    rows += [row(f"GPU-h{n}", START + n * HOUR_S, low[n]) for n in range(40)]
    folder.mkdir()
    lines("labels.jsonl", labels, folder)
    lines("feature-rows.jsonl", rows, folder)
    if costs is not None:
        wrong, missed = costs
        said = {"gpu_hour_false_exclusion": wrong, "gpu_hour_missed_fault": missed}
        (folder / "costs.json").write_text(json.dumps(said))
    return folder


def row(gpu: str, at: float, values: np.ndarray, **changes: Any) -> dict[str, Any]:
    return {
        "row": 1,
        "at": at,
        "kind": "gpu",
        "entity": gpu,
        "node_id": f"node-{gpu}",
        "why": "suspect",
        "schema_hash": shipped_model().schema_hash,
        "model_version": "",
        "values": base64.b64encode(values.astype("<f4").tobytes()).decode(),
        **changes,
    }


def label(
    gpu: str, opened_at: float, resolved_at: float, needed: bool | None, **changes: Any
) -> dict[str, Any]:
    return {
        "incident_id": gpu,
        "entity_kind": "gpu",
        "entity": gpu,
        "node_id": f"node-{gpu}",
        "fault_class": "memory",
        "opened_at": opened_at,
        "resolved_at": resolved_at,
        "label": "hardware" if needed else "unknown",
        "source": "operator",
        "needed": needed,
        **changes,
    }


def lines(name: str, items: Sequence[dict[str, Any]], folder: Path) -> None:
    (folder / name).write_text("".join(f"{json.dumps(item)}\n" for item in items))


def test_twenty_labels_move_calibration_and_operating_point_and_no_tree(tmp_path: Path) -> None:
    report = retrain(written(tmp_path / "told", FEWEST_INCIDENTS), PROMOTED, tmp_path / "out", 1)
    files = {path.name: path.read_bytes() for path in report.folder.iterdir()}
    made, before = decode_model(files), shipped_model()
    assert made.version == report.version != before.version
    assert made.operating_point == pytest.approx(0.1) != before.operating_point
    assert np.array_equal(made.trees.value, before.trees.value)
    assert (made.slope, made.offset) != (before.slope, before.offset) and made.slope > 0
    facts = json.loads(files["metrics.json"])
    assert facts["refitted_from"] == before.version
    assert facts["costs"] == {"gpu_hour_false_exclusion": 1.0, "gpu_hour_missed_fault": 9.0}
    card = files["card.md"].decode()
    assert "20 labelled ones, 10 of them faults" in card and before.version in card
    assert not report.simulated and 0 < report.positive_rows < report.rows


def test_without_costs_the_operating_point_stays(tmp_path: Path) -> None:
    told = written(tmp_path / "told", 24, costs=None)
    report = retrain(told, PROMOTED, tmp_path / "out", 1)
    files = {path.name: path.read_bytes() for path in report.folder.iterdir()}
    assert decode_model(files).operating_point == shipped_model().operating_point


def test_too_few_labels_are_refused_and_those_unsure_do_not_count(tmp_path: Path) -> None:
    told = written(tmp_path / "told", FEWEST_INCIDENTS - 1, unknown=10)
    with pytest.raises(
        TrainingError, match="19 incidents of kind gpu are labelled and have rows that teach"
    ):
        retrain(told, PROMOTED, tmp_path / "out", 1)
    dataset = read_fetched(told, shipped_model()).dataset
    unsure = {f"GPU-{number}" for number in range(19, 29)}
    left_out = {dataset.refs[entity].key for entity in dataset.entity[~dataset.usable]}
    assert left_out == unsure
    assert not (tmp_path / "out").exists()


def test_rows_of_another_schema_are_left_out(tmp_path: Path) -> None:
    told = written(tmp_path / "told", FEWEST_INCIDENTS)
    text = (told / "feature-rows.jsonl").read_text()
    (told / "feature-rows.jsonl").write_text(
        text.replace(shipped_model().schema_hash, "0123456789abcdef")
    )
    with pytest.raises(
        TrainingError, match="0 incidents of kind gpu are labelled and have rows that teach"
    ):
        retrain(told, PROMOTED, tmp_path / "out", 1)


def test_labels_without_rows_count_for_nothing_and_what_is_new_is_no_healthy_row(
    tmp_path: Path,
) -> None:
    folder = written(tmp_path / "told", 4)
    said = [json.loads(line) for line in (folder / "labels.jsonl").read_text().splitlines()]
    lines("labels.jsonl", [*said, label("GPU-unseen", START, START + HOUR_S, True)], folder)
    kept = [json.loads(line) for line in (folder / "feature-rows.jsonl").read_text().splitlines()]
    newest = START + 6 * 48 * HOUR_S
    fresh = [row("GPU-fresh", newest - hours * HOUR_S, typical()[0][0]) for hours in (0, 1, 72)]
    lines("feature-rows.jsonl", [*kept, *fresh], folder)
    told = read_fetched(folder, shipped_model())
    assert (told.labelled, told.faults) == (4, 2)
    own = told.dataset.entity == [ref.key for ref in told.dataset.refs].index("GPU-fresh")
    assert told.dataset.usable[own].tolist() == [True, False, False]


def read_back(folder: Path, file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / file).read_text().splitlines()]


def test_what_we_did_ourselves_teaches_nothing(tmp_path: Path) -> None:
    """Rows after an exclusion show it: the ledger counts it, and no job runs there any more."""
    folder = written(tmp_path / "told", 4)
    said = read_back(folder, "labels.jsonl")
    said[0]["excluded_at"] = START + 1.5 * HOUR_S
    said[1]["excluded_at"] = said[1]["opened_at"] + 0.5 * HOUR_S
    said[2]["excluded_at"] = said[2]["opened_at"] - 1.0
    lines("labels.jsonl", said, folder)
    told = read_fetched(folder, shipped_model())
    keys = [ref.key for ref in told.dataset.refs]
    own = {gpu: told.dataset.entity == keys.index(gpu) for gpu in ("GPU-0", "GPU-1", "GPU-2")}
    assert told.dataset.usable[own["GPU-0"]].tolist() == [True, True, False]
    assert told.dataset.needed[own["GPU-0"]].tolist() == [True, True, False]
    assert told.dataset.usable[own["GPU-1"]].tolist() == [True, False, False]
    assert not told.dataset.usable[own["GPU-2"]].any()
    assert (told.labelled, told.faults) == (3, 1), "GPU-2 has no row of before"
    with pytest.raises(TrainingError, match=r"that teach \(1 more were excluded before any"):
        retrain(folder, PROMOTED, tmp_path / "out", 1)


def test_a_row_taken_at_random_stands_for_those_that_were_not(tmp_path: Path) -> None:
    """The same rows of a fleet 100 times as large: the score says less of each."""

    def refitted(name: str, share: float) -> tuple[float, float]:
        folder = written(tmp_path / name, FEWEST_INCIDENTS)
        kept = read_back(folder, "feature-rows.jsonl")
        high, begin = typical()[1], START + 90 * 24 * HOUR_S
        for number in range(10):  # the score is not perfect
            kept.append(row(f"GPU-odd{number}", START + number, high[-1 - number]))
        for one in kept:
            if one["entity"].startswith(("GPU-h", "GPU-odd")):
                one |= {"why": "healthy", "share": share}
        kept.append(row("GPU-last", begin, high[0]))
        lines("feature-rows.jsonl", kept, folder)
        report = retrain(folder, PROMOTED, tmp_path / f"out-{name}", 1)
        made = decode_model({path.name: path.read_bytes() for path in report.folder.iterdir()})
        raw = made.baseline + made.trees.sum_of_leaves(high[:50])
        return float(np.median(made.slope * raw + made.offset)), made.slope

    small, large = refitted("small", 1.0), refitted("large", 0.01)
    assert large[0] < small[0] - 2.0


def test_a_fault_that_stood_for_weeks_weighs_as_one_of_a_day(tmp_path: Path) -> None:
    folder = written(tmp_path / "told", 4)
    high = typical()[1]
    long = [row("GPU-long", START + n * 300.0, high[n % 50]) for n in range(3000)]
    lines("feature-rows.jsonl", [*read_back(folder, "feature-rows.jsonl"), *long], folder)
    said = read_back(folder, "labels.jsonl")
    weeks = label("GPU-long", START, START + 3000 * 300.0, True)
    lines("labels.jsonl", [*said, weeks], folder)
    told = read_fetched(folder, shipped_model())
    own = told.dataset.entity == [ref.key for ref in told.dataset.refs].index("GPU-long")
    day = shipped_model().horizon_s / 300.0
    assert told.weights[own].sum() == pytest.approx(day)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("labels.jsonl", '{"entity_kind": 3}\n', r"labels\.jsonl: .*fetch it again"),
        ("feature-rows.jsonl", "{", r"feature-rows\.jsonl: .*fetch it again"),
        ("costs.json", "[]", r"costs\.json: .*fetch it again"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, name: str, content: str, told: str) -> None:
    folder = written(tmp_path / "told", FEWEST_INCIDENTS)
    (folder / name).write_text(content)
    with pytest.raises(StoreError, match=told):
        retrain(folder, PROMOTED, tmp_path / "out", 1)


def test_rows_that_do_not_fit_or_are_not_there_are_named(tmp_path: Path) -> None:
    folder = written(tmp_path / "told", FEWEST_INCIDENTS)
    short = row("GPU-0", START, np.zeros(2, np.float32))
    lines("feature-rows.jsonl", [short], folder)
    with pytest.raises(StoreError, match="has 2 features"):
        retrain(folder, PROMOTED, tmp_path / "out", 1)
    (folder / "feature-rows.jsonl").unlink()
    with pytest.raises(StoreError, match=r"feature-rows\.jsonl: no such file"):
        retrain(folder, PROMOTED, tmp_path / "out", 1)
