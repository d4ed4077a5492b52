"""Where a command would run, and which exclusions touch it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gpuwarden_runtime.errors import SettingError
from gpuwarden_runtime.host_names import same_host
from gpuwarden_runtime.records import Exclusion
from gpuwarden_wire.acknowledgement import EntityVerdict, NodeVerdict, Usable

_PCI = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")
# NVIDIA tools take an unambiguous beginning of a UUID ("GPU-8932f937"); eight digits are safe.
_UUID = re.compile(r"GPU-[0-9a-fA-F-]{8,}")


@dataclass(frozen=True, slots=True)
class Place:
    """A node, or some of its GPUs.

    Attributes:
        node: Node id.
        gpus: Driver's indices ("3"), UUIDs or their beginnings, PCI addresses; empty for all.
    """

    node: str
    gpus: tuple[str, ...] = ()


def parse_gpus(text: str) -> tuple[str, ...]:
    """GPUs as `--gpus` names them: indices, UUIDs, PCI addresses, separated by commas.

    Raises:
        SettingError: An item is none of these.
    """
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    for name in names:
        if not (name.isdecimal() or _UUID.fullmatch(name) or _PCI.fullmatch(name.lower())):
            raise SettingError(
                f"--gpus {text!r}: {name!r} is no index, GPU-UUID or PCI address",
                "for example --gpus 0,3 or --gpus GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
            )
    if not names:
        raise SettingError(f"--gpus {text!r} names no GPU", "leave the option out for all GPUs")
    return names


def covering(place: Place, exclusions: Iterable[Exclusion]) -> tuple[Exclusion, ...]:
    """The exclusions that forbid this place: of its node, or of one of its GPUs."""
    return tuple(item for item in exclusions if _covers(place, item))


def excluded_by_verdict(place: Place, verdict: NodeVerdict) -> tuple[Exclusion, ...]:
    """The same from a verdict alone, for when the feed cannot be asked.

    A node's verdict is no for the sake of its GPUs too, and a GPU's for the sake of its node. The
    decision tells them apart: one that stands at all GPUs is the node's own.
    """
    node = verdict.node
    if node.usable is not Usable.NO:
        return ()
    gpus = [gpu for gpu in verdict.gpus if gpu.usable is Usable.NO]
    own = [gpu for gpu in gpus if gpu.decision_id != node.decision_id or node.decision_id is None]
    shared = len(gpus) - len(own)
    if not gpus or (shared == len(verdict.gpus) and shared > 1):
        items = [_from_verdict(verdict.node_id, node)]
    else:
        items = [_from_verdict(verdict.node_id, gpu) for gpu in gpus]
    return tuple(item for item in items if _covers(place, item))


def require_gpus(place: Place, gpus: Sequence[EntityVerdict]) -> None:
    """Refuse GPUs that the node does not have.

    Args:
        place: Where a command would run.
        gpus: The node's GPUs as far as they are known; empty where nothing is.

    Raises:
        SettingError: Names the GPU, and what the node has.
    """
    for name in place.gpus:
        if not gpus or any(_may_be(name, gpu) for gpu in gpus):
            continue
        has = ", ".join(_told(gpu) for gpu in gpus)
        raise SettingError(f"--gpus {name}: node {place.node} has no such GPU", f"it has {has}")


def sentence(item: Exclusion) -> str:
    """An exclusion in one sentence: what, since when, why, by whom."""
    what = f"node {item.node_id}"
    if item.entity_kind != "node":
        index = "" if item.gpu_index is None else f" (index {item.gpu_index})"
        what = f"{item.entity_kind} {item.entity}{index} of node {item.node_id}"
    since = "" if item.since is None else f" since {utc(item.since)}"
    by = f", decided by {item.decided_by}" if item.decided_by else ""
    return f"{what} is excluded{since}{by}: {item.reason or 'no reason given'}"


def utc(at: float) -> str:
    """Epoch seconds as people read them; a time that no calendar has is said as its number."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{at:g} s"


def _covers(place: Place, item: Exclusion) -> bool:
    if not same_host(place.node, item.node_id):
        return False
    if item.entity_kind != "gpu" or not place.gpus:
        return True
    return any(_is_gpu(name, item) for name in place.gpus)


def _may_be(name: str, gpu: EntityVerdict) -> bool:
    """Whether a GPU is named so, or what would tell is not known of it."""
    known = gpu.index if name.isdecimal() else gpu.pci_bus_id
    untold = known is None and not name.startswith("GPU-")
    return untold or _is_gpu(name, _from_verdict("", gpu))


def _told(gpu: EntityVerdict) -> str:
    return gpu.entity if gpu.index is None else f"{gpu.index} ({gpu.entity})"


def _is_gpu(name: str, item: Exclusion) -> bool:
    if name.isdecimal():
        return item.gpu_index == int(name)
    if name.startswith("GPU-"):
        return (item.gpu_uuid or item.entity).lower().startswith(name.lower())
    return item.pci_bus_id == _full_address(name.lower())


def _full_address(name: str) -> str:
    """The address with a four-digit domain: nvidia-smi writes eight, lspci may leave it out."""
    bus = name[-7:]  # "3b:00.0"
    domain = name[:-8] or "0"
    return f"{int(domain, 16):04x}:{bus}"


def _from_verdict(node_id: str, verdict: EntityVerdict) -> Exclusion:
    return Exclusion(
        entity_kind=verdict.entity_kind,
        entity=verdict.entity,
        node_id=node_id,
        gpu_uuid=verdict.entity if verdict.entity_kind == "gpu" else None,
        pci_bus_id=verdict.pci_bus_id,
        gpu_index=verdict.index,
        since=verdict.since,
        reason=verdict.why,
        decision_id=verdict.decision_id,
        decided_by=verdict.decided_by,
    )
