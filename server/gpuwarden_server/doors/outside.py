"""What alerts and events from outside say of a node or GPU that we know: advice, never more.

They become results of plug-in checks: each is evidence of its own, makes suspect at most, and its
end clears only what it said itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import msgspec

from gpuwarden_kernel_log.pci import canonical_pci
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_wire.events import Event, EventKind
from gpuwarden_wire.metrics import EntityKind

RENEW_S = 43_200.0
"""An alert that still fires is told anew this often: evidence ends after a day without renewal."""


class Condition(StrEnum):
    """How the thing is, in the words of who says it."""

    OK = "ok"
    INFO = "info"  # on record, no evidence
    WARNING = "warning"
    CRITICAL = "critical"


_CRITICAL_WORDS = frozenset({"critical", "page", "emergency", "fatal", "high", "error"})
_INFO_WORDS = frozenset({"info", "informational", "none", "ok", "low", "debug", "notice"})


def condition_of(severity: str) -> Condition:
    """The condition that an alert's severity stands for; a word nobody knows is a warning."""
    word = severity.strip().lower()
    if word in _CRITICAL_WORDS:
        return Condition.CRITICAL
    return Condition.INFO if word in _INFO_WORDS else Condition.WARNING


@dataclass(frozen=True, slots=True)
class About:
    """Which thing is meant; "" and None where it is not said.

    Attributes:
        node_id: Node.
        gpu_uuid: GPU.
        pci_bus_id: Slot of a GPU.
        gpu_index: Driver's index of a GPU.
        nic: "device/port" or interface.
        disk: Whole disk.
        mount: Mount point.
    """

    node_id: str = ""
    gpu_uuid: str = ""
    pci_bus_id: str = ""
    gpu_index: int | None = None
    nic: str = ""
    disk: str = ""
    mount: str = ""


@dataclass(frozen=True, slots=True)
class Saying:
    """One thing that is said.

    Attributes:
        id: Natural id without its prefix: the same fact has the same id when it is sent again.
        told_by: "alertmanager" or "event": prefix of the id, and named in the evidence.
        about: Which thing.
        name: What was looked at: the alert's or check's name.
        condition: How it is.
        at: Epoch seconds.
        text: In words.
        fault_class: Where the fault lies, "" unknown.
        proves_repair: A good word ends a repair.
        attributes: Further facts, flat.
    """

    id: str
    told_by: str
    about: About
    name: str
    condition: Condition
    at: float
    text: str = ""
    fault_class: str = ""
    proves_repair: bool = False
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def event(self, about: About) -> Event:
        """The event about a thing that was found."""
        kind, entity = _entity(about)
        is_ok = self.condition is Condition.OK
        return Event(
            id=f"{self.told_by}:{self.id}"[:255],
            kind=EventKind.CHECK_PASSED if is_ok else EventKind.CHECK_FAILED,
            observed_at=self.at,
            entity_kind=kind,
            entity=entity,
            pci_bus_id=about.pci_bus_id or None,
            severity="error" if self.condition is Condition.CRITICAL else "warning",
            text=self.text[:1000],
            attributes={
                **self.attributes,
                "plug_in": True,
                "told_by": self.told_by,
                "check": self.name,
                "state": self.condition.value,
                "proves_repair": self.proves_repair,
                **({"fault_class": self.fault_class} if self.fault_class else {}),
            },
        )


def derived_id(*parts: object) -> str:
    """An id made from what is said."""
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:32]


def find(about: About, directory: FleetDirectory) -> About:
    """The thing as the fleet has it: its node, and the GPU's UUID where a slot or index is named.

    Raises:
        ProblemError: 422 where it names nothing that we know; says what to name.
    """
    node_id = about.node_id or directory.owner_of(about.gpu_uuid) or ""
    if not node_id:
        raise ProblemError(
            422,
            "no_node",
            f"nothing names a node that is known (GPU {about.gpu_uuid!r})",
            "Name the node, or the UUID of a GPU that was seen; see GPUWARDEN_NODE_LABELS.",
        )
    if directory.node(node_id) is None:
        raise ProblemError(
            422,
            "unknown_node",
            f"no node {node_id!r} is known",
            "See GET /v1/nodes for the names; `gpuwarden nodes add` makes one known.",
        )
    found = replace(about, node_id=node_id)
    owner = directory.owner_of(about.gpu_uuid) if about.gpu_uuid else None
    if about.gpu_uuid and owner != node_id:
        raise ProblemError(
            422,
            "unknown_gpu",
            f"GPU {about.gpu_uuid!r} is not known to be in node {node_id!r}",
            "See GET /v1/gpus.",
        )
    if about.gpu_uuid or (about.gpu_index is None and not about.pci_bus_id):
        return found
    return replace(found, gpu_uuid=_gpu_in(found, directory))


def _gpu_in(about: About, directory: FleetDirectory) -> str:
    slot = canonical_pci(about.pci_bus_id) or ""
    for gpu in directory.gpus_of(about.node_id):
        if gpu.present and (gpu.pci_bus_id == slot if slot else gpu.gpu_index == about.gpu_index):
            return gpu.gpu_uuid
    named = f"slot {about.pci_bus_id!r}" if about.pci_bus_id else f"index {about.gpu_index}"
    raise ProblemError(
        422,
        "unknown_gpu",
        f"node {about.node_id!r} shows no GPU of {named}",
        "See GET /v1/gpus, or name the GPU by its UUID.",
    )


def _entity(about: About) -> tuple[EntityKind, str]:
    if about.gpu_uuid:
        return EntityKind.GPU, about.gpu_uuid
    for kind, entity in (
        (EntityKind.NIC, about.nic),
        (EntityKind.DISK, about.disk),
        (EntityKind.MOUNT, about.mount),
    ):
        if entity:
            return kind, entity
    return EntityKind.NODE, ""
