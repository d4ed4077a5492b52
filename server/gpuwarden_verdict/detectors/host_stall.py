"""The host side hangs or starves: at most suspect, programs do this too."""

from __future__ import annotations

from types import MappingProxyType

from gpuwarden_kernel_log import Family
from gpuwarden_verdict.detectors.making import HOUR_S, FamilyDetector, Weight
from gpuwarden_verdict.entities import FaultClass, RecommendedAction, Rung, Severity


def _at_most_suspect(score: float, action: RecommendedAction) -> Weight:
    return Weight(score, Severity.WARNING, ttl_s=HOUR_S, action=action, max_rung=Rung.SUSPECT)


_LOCKUP = _at_most_suspect(0.5, RecommendedAction.INVESTIGATE)
_HUNG = _at_most_suspect(0.3, RecommendedAction.INVESTIGATE)
_OOM = _at_most_suspect(0.1, RecommendedAction.RESTART_APP)

LOCKUP = FamilyDetector(
    name="lockup",
    version=1,
    families=frozenset({Family.LOCKUP}),
    fault_class=FaultClass.HOST,
    # watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:123]
    weights=MappingProxyType({s: _LOCKUP for s in Severity if s is not Severity.INFO}),
    says="a CPU hung in the kernel",
)
HUNG_TASK = FamilyDetector(
    name="hung_task",
    version=1,
    families=frozenset({Family.HUNG_TASK}),
    fault_class=FaultClass.HOST,
    # INFO: task python:4711 blocked for more than 120 seconds.
    weights=MappingProxyType({s: _HUNG for s in Severity if s is not Severity.INFO}),
    says="a task is blocked in the kernel",
)
OOM = FamilyDetector(
    name="oom",
    version=1,
    families=frozenset({Family.OOM}),
    fault_class=FaultClass.APPLICATION,
    # Out of memory: Killed process 4711 (python) total-vm:...
    weights=MappingProxyType({s: _OOM for s in Severity if s is not Severity.INFO}),
    says="the kernel killed a process for memory",
)
