"""What each kind of incident does to readings and to the kernel log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np

from gpuwarden_models.second_generator.levels import Floats, Readings
from gpuwarden_models.second_generator.lines import bus_line, dimm_line, lockup_line, xid_line
from gpuwarden_models.second_generator.plan import GPUS, HOUR_S, NICS, Incident
from gpuwarden_models.second_generator.shows import watched

_SBE, _DBE = "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
_SPARED, _LOST_ROWS = (
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
)
_PENDING, _FAILED = "DCGM_FI_DEV_ROW_REMAP_PENDING", "DCGM_FI_DEV_ROW_REMAP_FAILURE"
_REPLAYS = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
_FLITS = "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"
_POWER, _HEAT, _MEMORY_HEAT, _USE, _CLOCK = (
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_SM_CLOCK",
)
_LIMIT, _REASONS = "DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"
_HOT_NS = "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS"
_BRAKE_NS = "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS"
_SCRAPE = "scrape_duration_seconds:dcgm"
_SYMBOLS = "node_infiniband_symbol_error_total"
_CAP, _HW, _HW_HOT, _HW_BRAKE = 4.0, 8.0, 64.0, 128.0
_HOT_C, _MOST_A_STEP = 87.0, 5_000.0


@dataclass(frozen=True, slots=True, eq=False)
class _Scene:
    """One incident on the grid: `before`, `during` and `after` are stretches of steps."""

    readings: Readings
    one: Incident
    rng: np.random.Generator
    before: slice
    during: slice
    row: int
    port: int

    @property
    def led(self) -> int:
        """Steps in which it announces itself."""
        return int(self.before.stop - self.before.start)

    @property
    def held(self) -> int:
        """Steps for which it lasts."""
        return int(self.during.stop - self.during.start)

    def xid(self, code: int, delay_s: float = 0.0, part: int | None = None) -> None:
        """A kernel line, and dcgm-exporter's last XID from then on."""
        part = self.one.part if part is None else part
        self.xid_at(self.one.node, part, code, self.one.start + delay_s)

    def xid_at(self, node: int, part: int, code: int, at: float) -> None:
        """As `xid`, of any GPU."""
        self.readings.lines.append((at, node, xid_line(self.rng, part, code)))
        first = int(np.searchsorted(self.readings.at, at))
        self.readings.xid[node * GPUS + part, first:] = code

    def fatal(self, *codes: int) -> None:
        """Codes at the onset, and their echoes after delays of their own."""
        for code in codes:
            self.xid(code, float(self.rng.exponential(0.4)))
        self.xid(45, 1.0 + float(self.rng.exponential(4.0)))
        if self.rng.random() < 0.6:
            self.xid(154, 1.0 + float(self.rng.exponential(2.0)))

    def add(self, name: str, growth: Floats, where: slice | None = None) -> None:
        """Let a counter of the GPU grow."""
        self.readings.gpu_gain[name][self.row, where or self.before] += growth

    def per_step(self, per_hour: float) -> float:
        """A rate per step."""
        return per_hour * self.readings.step_s / HOUR_S


def play(readings: Readings, incidents: Sequence[Incident]) -> list[float]:
    """Let everything happen, in order of onset.

    Returns:
        Epoch seconds from which each changes anything that is written, infinite where it does not.
    """
    shown: list[float] = []
    for one in incidents:
        first, start, end = np.searchsorted(readings.at, [one.announced_at, one.start, one.end])
        scene = _Scene(
            readings, one, np.random.default_rng([one.seed, 11]), slice(int(first), int(start)),
            slice(int(start), int(end)), one.node * GPUS + min(one.part, GPUS - 1),
            one.node * NICS + one.part % NICS,
        )  # fmt: skip
        shown.append(watched(readings, int(first), int(end), partial(_PLAYS[one.name], scene)))
        _mend(scene)
    return shown


def _mend(scene: _Scene) -> None:
    """What ends it: the driver of the GPU is reset, or the node boots after some minutes away."""
    readings, by = scene.readings, scene.one.kind.mended_by
    end, steps = scene.during.stop, readings.at.size
    if not by or end >= steps:
        return
    away = slice(max(end - 1 - int(300.0 / readings.step_s), scene.during.start), end)
    rows = slice(scene.row, scene.row + 1)
    if by == "node":
        rows = slice(scene.one.node * GPUS, (scene.one.node + 1) * GPUS)
        readings.node_lost[scene.one.node, away] = True
        readings.booted[scene.one.node, end] = True
    readings.gpu_lost[rows, away] = True
    readings.fresh[rows, end] = True
    readings.xid[rows, end:] = 0.0


def hawkes(
    rng: np.random.Generator, steps: int, base: float, branching: float = 0.9, memory: float = 0.85
) -> Floats:
    """Counts that excite themselves: each raises the rate of those that follow, for a while."""
    out, excited = np.zeros(steps), 0.0
    for k in range(steps):
        out[k] = rng.poisson(min(base + excited, _MOST_A_STEP))
        excited = memory * excited + branching * (1 - memory) * out[k]
    return out


def power_law(rng: np.random.Generator, steps: int, last: float, exponent: float) -> Floats:
    """Counts whose rate grows as a power of time, up to `last` a step."""
    part = np.arange(1, steps + 1) / max(steps, 1)
    return rng.poisson(np.minimum(last * part**exponent, _MOST_A_STEP)).astype(np.float64)


def logistic(steps: int) -> Floats:
    """From about 0 to about 1."""
    return 1.0 / (1.0 + np.exp(-10.0 * (np.arange(steps) / max(steps, 1) - 0.55)))


def _cell_cascade(scene: _Scene) -> None:
    rng = scene.rng
    found = hawkes(rng, scene.led, scene.per_step(float(rng.uniform(4.0, 20.0))), 0.93)
    scene.add(_SBE, found)
    spared = rng.random(scene.led) < 1 - 0.94 ** np.minimum(found, 50)
    scene.add(_SPARED, spared.astype(np.float64))
    for step in np.flatnonzero(spared)[:6]:
        at = scene.readings.at[scene.before.start + step]
        scene.xid_at(scene.one.node, scene.one.part, 63, float(at))
    _cells_fail(scene)


def _cells_fail(scene: _Scene) -> None:
    """An error beyond correction: remapped in half of the cases, contained or not in the others."""
    readings, row, during = scene.readings, scene.row, scene.during
    codes = ((48, 63), (48, 94), (48, 95), (95,), (48, 64))[int(scene.rng.integers(5))]
    scene.fatal(*codes)
    if scene.held:
        readings.gpu_gain[_DBE][row, during.start] += 1 + scene.rng.poisson(0.5)
        readings.gpu_gain[_LOST_ROWS][row, during.start] += 63 in codes
    readings.gpu[_PENDING][row, during] = 63 in codes
    readings.gpu[_FAILED][row, during] = 64 in codes


def _replay_creep(scene: _Scene) -> None:
    last = scene.per_step(float(scene.rng.uniform(200.0, 2_000.0)))
    scene.add(_REPLAYS, power_law(scene.rng, scene.led, last, float(scene.rng.uniform(1.5, 4.0))))
    for at in np.sort(scene.rng.uniform(scene.one.announced_at, scene.one.start, 5)):
        scene.readings.lines.append((float(at), scene.one.node, bus_line(scene.one.part)))
    if scene.rng.random() < 0.3:
        half = (scene.before.start + scene.before.stop) // 2
        scene.readings.gpu["DCGM_FI_DEV_PCIE_LINK_WIDTH"][scene.row, half : scene.during.stop] = 8.0
    _bus_drop(scene)


def _bus_drop(scene: _Scene) -> None:
    scene.readings.gpu_lost[scene.row, scene.during] = True
    scene.fatal(79)


def _lane_cascade(scene: _Scene) -> None:
    scene.add(_FLITS, hawkes(scene.rng, scene.led, scene.per_step(25.0), 0.95, 0.9))
    _lane_snap(scene)


def _lane_snap(scene: _Scene) -> None:
    scene.fatal(74)
    near = (scene.one.part + 1 + int(scene.rng.integers(GPUS - 1))) % GPUS
    if scene.rng.random() < 0.4:
        scene.xid(74, float(scene.rng.exponential(0.3)), near)
    scene.add(_FLITS, scene.rng.poisson(30.0, scene.held).astype(np.float64), scene.during)


def _firmware_stutter(scene: _Scene) -> None:
    scrape, use = scene.readings.node[_SCRAPE], scene.readings.gpu[_USE]
    slow = 1.0 + 20.0 * logistic(scene.led) * (scene.rng.random(scene.led) < 0.4)
    scrape[scene.one.node, scene.before] *= slow
    use[scene.row, scene.before] *= 1.0 - 0.3 * (slow > 2.0)
    _firmware_halt(scene)


def _firmware_halt(scene: _Scene) -> None:
    gauges, row, during = scene.readings.gpu, scene.row, scene.during
    scene.readings.node[_SCRAPE][scene.one.node, during] += 6.0
    gauges[_USE][row, during] = 100.0
    gauges[_POWER][row, during] = np.minimum(gauges[_POWER][row, during], 118.0)
    scene.fatal(120 if scene.rng.random() < 0.4 else 119)
    for delay in np.cumsum(scene.rng.exponential(12.0, int(scene.rng.integers(1, 5)))):
        scene.xid(119, float(delay) + 6.0)


def _heat(scene: _Scene, rise: Floats, where: slice) -> None:
    """Warm a GPU with its load; beyond its limit the clock goes down and power with it."""
    gauges, row = scene.readings.gpu, scene.row
    warm = np.round(rise * np.clip(gauges[_POWER][row, where] / 600.0, 0.25, 1.1))
    hot = gauges[_HEAT][row, where] + warm > _HOT_C
    gauges[_HEAT][row, where] = np.minimum(gauges[_HEAT][row, where] + warm, _HOT_C + 3.0)
    gauges[_MEMORY_HEAT][row, where] += warm
    gauges[_CLOCK][row, where] *= np.where(hot, 0.68, 1.0)
    gauges[_POWER][row, where] *= np.where(hot, 0.72, 1.0)
    reasons = gauges[_REASONS][row, where]
    gauges[_REASONS][row, where] = np.where(hot, _HW + _HW_HOT, reasons)
    scene.add(_HOT_NS, np.where(hot, 0.6e9 * scene.readings.step_s, 0.0), where)


def _paste_dryout(scene: _Scene) -> None:
    top = float(scene.rng.uniform(26.0, 38.0))
    _heat(scene, 0.75 * top * logistic(scene.led), scene.before)
    _cooling_step(scene)


def _cooling_step(scene: _Scene) -> None:
    _heat(scene, np.full(scene.held, float(scene.rng.uniform(30.0, 42.0))), scene.during)


def _brake(scene: _Scene, share: Floats, where: slice) -> None:
    """Let the board's brake pull for a share of each step."""
    gauges, row = scene.readings.gpu, scene.row
    scene.add(_BRAKE_NS, share * 1e9 * scene.readings.step_s, where)
    gauges[_CLOCK][row, where] *= 1.0 - 0.55 * share
    gauges[_POWER][row, where] *= 1.0 - 0.45 * share
    pulled = share > 0.02
    reasons = gauges[_REASONS][row, where]
    gauges[_REASONS][row, where] = np.where(pulled, _HW + _HW_BRAKE, reasons)


def _brake_bursts(scene: _Scene) -> None:
    pulls = hawkes(scene.rng, scene.led, scene.per_step(2.0), 0.8)
    _brake(scene, np.minimum(pulls * 0.04, 0.7), scene.before)
    _supply_step(scene)


def _supply_step(scene: _Scene) -> None:
    _brake(scene, np.full(scene.held, float(scene.rng.uniform(0.5, 0.9))), scene.during)


def _optics_decay(scene: _Scene) -> None:
    last = scene.per_step(float(scene.rng.uniform(1e3, 2e4)))
    gains, where = scene.readings.nic_gain, scene.before
    grown = power_law(scene.rng, scene.led, last, float(scene.rng.uniform(2.0, 5.0)))
    gains[_SYMBOLS][scene.port, where] += grown
    gains["node_infiniband_link_error_recovery_total"][scene.port, where] += scene.rng.poisson(
        grown * 2e-3
    )
    _cable_pull(scene)


def _cable_pull(scene: _Scene) -> None:
    readings, port, during = scene.readings, scene.port, scene.during
    readings.nic["node_infiniband_state_id"][port, during] = 1.0
    readings.nic["node_infiniband_physical_state_id"][port, during] = 2.0
    for way in ("transmitted", "received"):
        readings.nic_gain[f"node_infiniband_port_data_{way}_bytes_total"][port, during] = 0.0
    if scene.held:
        readings.nic_gain["node_infiniband_link_downed_total"][port, during.start] += 1.0
    name = f"mlx5_{scene.one.part}"
    text = f"mlx5_core 0000:{0x20 + 0x20 * scene.one.part:02x}:00.0 {name}: Link down"
    readings.lines.append((scene.one.start, scene.one.node, text))


def _host_memory_creep(scene: _Scene) -> None:
    last = scene.per_step(float(scene.rng.uniform(100.0, 900.0)))
    found = power_law(scene.rng, scene.led, last, float(scene.rng.uniform(1.0, 3.0)))
    gains = scene.readings.node_gain["node_edac_correctable_errors_total"]
    gains[scene.one.node, scene.before] += found
    for step in np.flatnonzero(found)[::5][:12]:
        at = float(scene.readings.at[scene.before.start + step])
        scene.readings.lines.append((at, scene.one.node, dimm_line(scene.rng)))
    _host_freeze(scene)


def _host_freeze(scene: _Scene) -> None:
    node, during = scene.one.node, scene.during
    for name in ("node_intr_total", "node_context_switches_total"):
        scene.readings.node_gain[name][node, during] *= float(scene.rng.uniform(0.15, 0.35))
    scene.readings.node["node_procs_running"][node, during] = 0.0
    scene.readings.node["node_procs_blocked"][node, during] += 20.0
    scene.readings.node["node_load1"][node, during] += 90.0 * logistic(scene.held)
    for count in range(int(scene.rng.integers(2, 8))):
        at, stuck = scene.one.start + 24.0 * (count + 1), 23 + 24 * count
        scene.readings.lines.append((at, node, lockup_line(scene.rng, stuck)))


def _filer(scene: _Scene, factor: Floats, where: slice) -> None:
    for name, gains in scene.readings.mount_gain.items():
        if "_time_" in name:
            gains[:, where] *= factor
    waits = scene.readings.node_gain["node_pressure_io_waiting_seconds_total"]
    waits[:, where] *= np.minimum(factor, 4.0)


def _filer_creep(scene: _Scene) -> None:
    _filer(scene, 1.0 + 6.0 * logistic(scene.led), scene.before)
    _filer_stall(scene)


def _filer_stall(scene: _Scene) -> None:
    _filer(scene, np.full(scene.held, float(scene.rng.uniform(40.0, 120.0))), scene.during)
    name = "node_mountstats_nfs_operations_major_timeouts_total:WRITE"
    timeouts = scene.readings.mount_gain[name]
    timeouts[:, scene.during] += scene.rng.poisson(0.3, (timeouts.shape[0], scene.held))


def _power_cap(scene: _Scene) -> None:
    cap = float(scene.rng.choice([350.0, 450.0, 550.0]))
    rows = _rows(scene.one.nodes)
    gauges, during = scene.readings.gpu, scene.during
    over = gauges[_POWER][rows, during] > cap
    gauges[_POWER][rows, during] = np.minimum(gauges[_POWER][rows, during], cap)
    gauges[_CLOCK][rows, during] *= np.where(over, 0.62 + 0.3 * (cap / 700.0), 1.0)
    gauges[_REASONS][rows, during] = np.where(over, _CAP, gauges[_REASONS][rows, during])
    gauges[_LIMIT][rows, during] = cap


def _hot_room(scene: _Scene) -> None:
    bump = float(scene.rng.uniform(4.0, 11.0)) * np.sin(np.pi * np.linspace(0, 1, scene.held)) ** 2
    for name in (_HEAT, _MEMORY_HEAT):
        scene.readings.gpu[name][_rows(scene.one.nodes), scene.during] += np.round(bump)


def _rows(nodes: Sequence[int]) -> slice:
    return slice(min(nodes) * GPUS, (max(nodes) + 1) * GPUS)


def _scrape_outage(scene: _Scene) -> None:
    which = int(scene.rng.integers(3))
    if which != 1:
        scene.readings.dcgm_lost[scene.one.node, scene.during] = True
    if which != 0:
        scene.readings.node_lost[scene.one.node, scene.during] = True


def _planned_reboot(scene: _Scene) -> None:
    scene.readings.dcgm_lost[scene.one.node, scene.during] = True
    scene.readings.node_lost[scene.one.node, scene.during] = True


def _driver_upgrade(scene: _Scene) -> None:
    scene.readings.gpu_lost[_rows((scene.one.node,)), scene.during] = True


def _program_fault(scene: _Scene) -> None:
    """A program's own mistake: the same code on many GPUs of the job, and its echoes."""
    code = 31 if scene.rng.random() < 0.6 else 13
    for node in scene.one.nodes:
        for part in range(GPUS):
            if scene.rng.random() < 0.7:
                at = scene.one.start + float(scene.rng.exponential(1.5))
                scene.xid_at(node, part, code, at)
                scene.xid_at(node, part, 43 if code == 13 else 45, at + scene.rng.exponential(3.0))


def _quiet_burst(scene: _Scene) -> None:
    scene.add(_SBE, hawkes(scene.rng, scene.held, scene.per_step(3.0), 0.7), scene.during)


_PLAYS: Mapping[str, Callable[[_Scene], None]] = MappingProxyType(
    {
        "cell_cascade": _cell_cascade,
        "cell_snap": _cells_fail,
        "replay_creep": _replay_creep,
        "bus_drop": _bus_drop,
        "lane_cascade": _lane_cascade,
        "lane_snap": _lane_snap,
        "firmware_stutter": _firmware_stutter,
        "firmware_halt": _firmware_halt,
        "paste_dryout": _paste_dryout,
        "cooling_step": _cooling_step,
        "brake_bursts": _brake_bursts,
        "supply_step": _supply_step,
        "optics_decay": _optics_decay,
        "cable_pull": _cable_pull,
        "host_memory_creep": _host_memory_creep,
        "host_freeze": _host_freeze,
        "filer_creep": _filer_creep,
        "filer_stall": _filer_stall,
        "power_cap": _power_cap,
        "hot_room": _hot_room,
        "scrape_outage": _scrape_outage,
        "driver_upgrade": _driver_upgrade,
        "planned_reboot": _planned_reboot,
        "program_fault": _program_fault,
        "quiet_burst": _quiet_burst,
    }
)
