"""Writes a recording: draws, plays, loses readings as scrapes do, and puts it all into files."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gpuwarden_models.second_generator.happenings import play
from gpuwarden_models.second_generator.levels import Flags, Floats, Readings, quiet, times
from gpuwarden_models.second_generator.lines import BUSES, stamped
from gpuwarden_models.second_generator.parameters import PARAMETERS, parameters_sha256
from gpuwarden_models.second_generator.plan import (
    GPUS,
    HOUR_S,
    NICS,
    START_S,
    Incident,
    Job,
    as_it_went,
    draw_incidents,
    draw_jobs,
    leaf_of,
    lognormal,
    rack_of,
)

GENERATOR = "gpuwarden-second-generator"
MOUNT = "/scratch"
_VOLATILE = "_VOL_TOTAL"
_LIFELONG = frozenset(
    {"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"}
)
_PARTIAL = (
    "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
)


def write_recording(
    out: Path,
    nodes: int,
    hours: float,
    seed: int,
    *,
    interval_s: float = 60.0,
    density: float = 1.0,
) -> None:
    """Write a recording of a fleet that nobody owns. Equal arguments write equal folders.

    Args:
        out: The folder; made where it is missing.
        nodes: Nodes of 8 GPUs.
        hours: Length.
        seed: All draws follow from it.
        interval_s: Seconds between readings.
        density: Moves how often anything happens: 1 is about a fault in 125 GPU-hours, 0 is a
            fleet without faults and confounders, whose background is that of all other densities.

    Raises:
        ValueError: A number is not positive, or density is negative.
        OSError: The folder cannot be written.
    """
    if nodes < 1 or not hours > 0 or not interval_s > 0 or not density >= 0:
        raise ValueError(
            f"nodes {nodes}, hours {hours}, interval_s {interval_s}, density {density}:"
            " give positive numbers, density may be 0"
        )
    planned = draw_jobs(np.random.default_rng([seed, 0]), nodes, hours * HOUR_S)
    drawn = draw_incidents(
        np.random.default_rng([seed, 1]), nodes, hours * HOUR_S, density, planned
    )
    jobs, incidents = as_it_went(planned, drawn)
    readings = quiet(seed, nodes, times(hours, interval_s), interval_s, jobs)
    shown = play(readings, incidents)
    lose(readings, np.random.default_rng([seed, 3]))
    out.mkdir(parents=True, exist_ok=True)
    _write_metrics(out / "metrics", readings, np.random.default_rng([seed, 4]), seed)
    end = float(readings.at[-1]) + interval_s
    _write_tables(out, nodes, seed, end, jobs, list(zip(incidents, shown, strict=True)))
    _write_lines(out / "kernel", readings)
    described = {
        "format": "gpuwarden-recording", "version": 1, "interval_s": interval_s,
        "start": START_S, "end": end, "seed": seed,
        "origin": "simulated", "generator": GENERATOR, "parameters_sha256": parameters_sha256(),
    }  # fmt: skip
    (out / "recording.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")


def lose(readings: Readings, rng: np.random.Generator) -> None:
    """Silence exporters in bursts, leave columns of some nodes out, and let some GPUs freeze."""
    steps, step_s = readings.at.size, readings.step_s
    for lost in (readings.dcgm_lost, readings.node_lost):
        away = np.zeros(lost.shape[0], bool)
        leaves = 1 - np.exp(-PARAMETERS.outages_per_hour * step_s / HOUR_S)
        returns = 1 - np.exp(-step_s / PARAMETERS.outage_s)
        for k in range(steps):
            away ^= rng.random(away.size) < np.where(away, returns, leaves)
            lost[:, k] |= away
    for node in np.flatnonzero(rng.random(lost.shape[0]) < PARAMETERS.partial_share):
        rows = slice(node * GPUS, (node + 1) * GPUS)
        for name in _PARTIAL:
            column = readings.gpu.get(name, readings.gpu_gain.get(name))
            assert column is not None  # both are columns of every recording
            column[rows] = np.nan
    rows_lost = readings.gpu_lost.shape[0]
    for _ in range(rng.poisson(PARAMETERS.stuck_per_hour * rows_lost * steps * step_s / HOUR_S)):
        row, first = int(rng.integers(rows_lost)), int(rng.integers(steps))
        length = 1 + int(lognormal(rng, PARAMETERS.stuck_s) / step_s)
        for column in readings.gpu.values():
            column[row, first : first + length] = column[row, first]


def _write_metrics(folder: Path, readings: Readings, rng: np.random.Generator, seed: int) -> None:
    folder.mkdir(exist_ok=True)
    nodes = readings.node_lost.shape[0]
    boots: Floats = np.where(readings.booted, np.rint(readings.at - 95.0), -np.inf)
    boots[:, 0] = np.rint(START_S - 86_400.0 * rng.uniform(2.0, 60.0, nodes))
    booted_at: Floats = np.maximum.accumulate(boots, axis=1)
    node = {**readings.node, "node_boot_time_seconds": booted_at}
    node |= _grown(rng, readings.node_gain, readings.booted)
    joules = np.round(readings.gpu["DCGM_FI_DEV_POWER_USAGE"] * readings.step_s * 1e3)
    gained = {**readings.gpu_gain, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": joules}
    gpu = {**readings.gpu, "DCGM_FI_DEV_XID_ERRORS": readings.xid}
    gpu |= _grown(rng, gained, readings.fresh)
    for kind in ("SBE", "DBE"):
        name = f"DCGM_FI_DEV_ECC_{kind}_VOL_TOTAL"
        gpu[name.replace("_VOL_", "_AGG_")] = 3.0 + np.cumsum(readings.gpu_gain[name], axis=1)
    names = [_node(number) for number in range(nodes)]
    of_dcgm, of_node = (rng.uniform(0.0, 0.8, (nodes, 1)) * readings.step_s for _ in range(2))
    at = readings.at + readings.step_s * 0.01 * np.tanh(
        rng.standard_t(3, (nodes, readings.at.size))
    )
    gone = readings.gpu_lost | np.repeat(readings.dcgm_lost, GPUS, axis=0)
    uuids = [_uuid(seed, row) for row in range(nodes * GPUS)]
    _write_kind(
        folder / "gpu.parquet", np.repeat(at + of_dcgm, GPUS, axis=0), gone,
        {"node": [name for name in names for _ in range(GPUS)], "gpu_uuid": uuids}, gpu,
    )  # fmt: skip
    _write_kind(folder / "node.parquet", at + of_node, readings.node_lost, {"node": names}, node)
    never = np.zeros_like(readings.booted)
    ports = {
        "node": [name for name in names for _ in range(NICS)],
        "device": [f"mlx5_{number}" for number in range(NICS)] * nodes,
        "port": ["1"] * (NICS * nodes),
    }
    _write_kind(
        folder / "nic.parquet", np.repeat(at + of_node, NICS, axis=0),
        np.repeat(readings.node_lost, NICS, axis=0), ports,
        readings.nic | _grown(rng, readings.nic_gain, np.repeat(never, NICS, axis=0)),
    )  # fmt: skip
    mounts = {"node": names, "export": ["filer:/scratch"] * nodes, "mountpoint": [MOUNT] * nodes}
    mount = _grown(rng, readings.mount_gain, readings.booted)
    _write_kind(folder / "mount.parquet", at + of_node, readings.node_lost, mounts, mount)


def _grown(
    rng: np.random.Generator, gains: Mapping[str, Floats], fresh: Flags
) -> dict[str, Floats]:
    """Counters from their growth: they begin anew where something starts, but for lifelong ones."""
    found: dict[str, Floats] = {}
    for name, gain in gains.items():
        known = np.cumsum(np.nan_to_num(gain), axis=1)
        known += 0.0 if _VOLATILE in name else rng.integers(0, 9, (known.shape[0], 1))
        if name not in _LIFELONG:
            known -= np.maximum.accumulate(np.where(fresh, known, 0.0), axis=1)
        found[name] = np.where(np.isnan(gain), np.nan, known)
    return found


def _write_kind(
    path: Path,
    at: Floats,
    gone: Flags,
    keys: Mapping[str, Sequence[str]],
    columns: Mapping[str, Floats],
) -> None:
    """Rows in order of entity and time, those that are gone left out."""
    there = ~gone
    row = np.broadcast_to(np.arange(at.shape[0], dtype=np.int32)[:, None], at.shape)[there]
    arrays: dict[str, pa.Array] = {"timestamp": pa.array(np.round(at[there], 3))}
    for name, words in keys.items():
        arrays[name] = pa.array(words).take(pa.array(row))
    arrays |= {name: pa.array(column[there]) for name, column in columns.items()}
    pq.write_table(pa.table(arrays), path)


def _node(number: int) -> str:
    return f"hx{number:03d}"


def _uuid(seed: int, row: int) -> str:
    tail = np.random.default_rng([seed, 5, row]).bytes(16).hex()
    return f"GPU-{tail[:8]}-{tail[8:12]}-{tail[12:16]}-{tail[16:20]}-{tail[20:]}"


def _write_tables(
    out: Path,
    nodes: int,
    seed: int,
    end: float,
    jobs: Sequence[Job],
    incidents: Sequence[tuple[Incident, float]],
) -> None:
    _write_csv(
        out / "fleet.csv", "node,gpu_index,gpu_uuid,serial,pci_bus_id,model,rack,leaf,mounts",
        (
            (_node(n), g, _uuid(seed, n * GPUS + g), f"17{seed % 1000:03d}{n * GPUS + g:06d}",
             f"0000:{BUSES[g]}:00.0", "NVIDIA H100 80GB HBM3", f"hall-{rack_of(n)}",
             f"ibsw-{leaf_of(n)}", MOUNT)
            for n in range(nodes) for g in range(GPUS)
        ),
    )  # fmt: skip
    _write_csv(
        out / "jobs.csv", "job_id,user,nodes,start,end,state,exit_code",
        (
            (job.job_id, f"team{job.job_id // 100 % 9}", ";".join(map(_node, job.nodes)),
             f"{job.start:.3f}", *_ending(job, end))
            for job in jobs if job.start < end
        ),
    )  # fmt: skip
    _write_csv(
        out / "labels.csv",
        "entity_kind,entity,fault_class,start,end,action_needed,note",
        (row for one, shown in incidents for row in _labels(one, shown, seed)),
    )


def _ending(job: Job, end: float) -> tuple[str, str, str]:
    """End, state and exit code, as the scheduler told them when the recording ended."""
    if job.end > end:
        return "", "RUNNING", "0:0"
    return f"{job.end:.3f}", job.state, "0:0" if job.state == "COMPLETED" else "1:0"


def _labels(one: Incident, shown: float, seed: int) -> Iterable[tuple[str, ...]]:
    kind, note = one.kind, f"mechanism={one.name}"
    if kind.action:
        note += f" shows={shown:.3f}" if shown < inf else " shows=never"
    if kind.announced:
        note += f" precursor_start={one.announced_at:.3f}"
    match kind.entity:
        case "gpu":
            entities = [_uuid(seed, one.node * GPUS + one.part)]
        case "nic":
            entities = [f"{_node(one.node)}/mlx5_{one.part}"]
        case "mount":
            entities = [MOUNT]
        case "job":
            entities = [str(one.job_id)]
        case _:
            entities = [_node(number) for number in one.nodes]
    rest = (kind.fault_class, f"{one.start:.3f}", f"{one.end:.3f}", "yes" if kind.action else "no")
    return [(kind.entity, entity, *rest, note) for entity in entities]


def _write_csv(path: Path, header: str, rows: Iterable[tuple[object, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header.split(","), *rows])


def _write_lines(folder: Path, readings: Readings) -> None:
    folder.mkdir(exist_ok=True)
    told: dict[int, list[tuple[float, str]]] = defaultdict(list)
    for at, node, text in readings.lines:
        if at < readings.at[-1]:
            told[node].append((at, text))
    for node in range(readings.node_lost.shape[0]):
        name = _node(node)
        lines = (stamped(at, name, text) for at, text in sorted(told[node]))
        (folder / f"{name}.log").write_text("".join(lines), encoding="utf-8")
