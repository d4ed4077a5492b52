"""What the driver says of a GPU's place in the NVLink fabric (Hopper on, NVSwitch systems).

Source: nvmlDeviceGetGpuFabricInfoV and the health mask of nvmlGpuFabricInfo_v3_t. A GPU that is in
no fabric, or whose mask is not supported, says nothing. All need the same number for a minute:
links of a rack come and go while it is being powered. It is of the structure plane, as a link that
is down: one dead switch shows in both, and is not confirmed by that.
"""

from __future__ import annotations

from gpuwarden_verdict.detectors.states import StateDetector
from gpuwarden_verdict.entities import FaultClass, RecommendedAction, Rung, Severity
from gpuwarden_verdict.signals import Plane

HELD_S = 60.0
SEEKING_S = 300.0
"""A route that is sought for so long is not found by itself (assumed)."""


def _state(
    name: str,
    metric: str,
    score: float,
    severity: Severity,
    says: str,
    *,
    limit: float = 1.0,
    held_s: float = HELD_S,
    fault_class: FaultClass = FaultClass.NVLINK,
    max_rung: Rung = Rung.EXCLUDE,
) -> StateDetector:
    return StateDetector(
        name=name,
        version=2,
        metric=metric,
        fault_class=fault_class,
        score=score,
        severity=severity,
        says=says,
        limit=limit,
        action=RecommendedAction.INVESTIGATE,
        max_rung=max_rung,
        held_s=held_s,
        after_boot=False,
        plane=Plane.STRUCTURE,
    )


FABRIC_STATES = (
    _state(
        "fabric_unhealthy",
        "gpu_fabric_health",
        0.6,  # as a link down: the far end may be at fault
        Severity.ERROR,
        "the NVLink fabric is not healthy",
        limit=2.0,
    ),
    _state(
        "fabric_bandwidth_degraded",
        "gpu_fabric_bandwidth_degraded",
        0.6,
        Severity.ERROR,
        "fewer NVLinks into the fabric than there should be",
    ),
    _state(
        "fabric_route_unhealthy",
        "gpu_fabric_route_unhealthy",
        0.6,
        Severity.ERROR,
        "a degraded route in the NVLink fabric",
    ),
    _state(
        "fabric_route_recovering",
        "gpu_fabric_route_recovering",
        0.45,
        Severity.WARNING,
        "a route of the NVLink fabric is lost and being sought",
        held_s=SEEKING_S,
        max_rung=Rung.SUSPECT,
    ),
    _state(
        "fabric_access_timeout",
        "gpu_fabric_access_timeout_recovering",
        0.5,
        Severity.WARNING,
        "accesses over the NVLink fabric time out",
        max_rung=Rung.SUSPECT,
    ),
    _state(
        "fabric_misconfigured",
        "gpu_fabric_misconfiguration",
        0.4,
        Severity.WARNING,
        "the NVLink fabric is wrongly cabled, partitioned or on another firmware",
        fault_class=FaultClass.OPERATOR,
        max_rung=Rung.SUSPECT,
    ),
)
