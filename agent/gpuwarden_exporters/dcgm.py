"""dcgm-exporter: what its series and labels mean to us."""

from __future__ import annotations

from math import isfinite
from types import MappingProxyType

from gpuwarden_exporters.dcgm_fields import FIELDS
from gpuwarden_exporters.identity import gpu_facts, gpu_uuid_of
from gpuwarden_exporters.rules import (
    NOTHING,
    GpuFacts,
    Meaning,
    Rule,
    Target,
    XidForm,
    XidSeries,
)
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import Missing, NotSupported, Unavailable
from gpuwarden_wire.registry import METRIC_BY_NAME

XID_NAMES = MappingProxyType(
    {
        # field 230
        "dcgm_xid_errors": XidForm.LAST_CODE,
        "DCGM_FI_DEV_XID_ERRORS": XidForm.LAST_CODE,
        "DCGM_FI_DEV_XID_ERROR": XidForm.LAST_CODE,
        # dcgm-exporter's own
        "DCGM_EXP_XID_ERRORS_COUNT": XidForm.IN_WINDOW,
        "DCGM_EXP_XID_ERRORS_TOTAL": XidForm.COUNTED,
    }
)


def _by_name() -> dict[str, tuple[Rule, ...]]:
    found: dict[str, tuple[Rule, ...]] = {}
    for one in FIELDS:
        for name in one.names:
            found[name] = (*found.get(name, ()), one.rule_of(name))
    return found


_RULES = MappingProxyType(_by_name())
_PREFIXES = ("DCGM_", "dcgm_")


# dcgm_structs.h: DCGM_INT32_BLANK 0x7ffffff0, DCGMINT64_BLANK 0x7ffffffffffffff0,
# DCGM_FP64_BLANK 140737488355328.0 (2**47); +1 not found, +2 not supported, +3 not permitted. A
# float holds the 64-bit ones only as 2**63: which of them it was cannot be told then.
BLANKS = (0x7FFFFFF0, 2**47)
INT64_BLANK = 0x7FFFFFFFFFFFFFF0
BLANK_WIDTH = 16
_BLANK_REASONS: tuple[Missing, ...] = (
    Unavailable("dcgm_blank"),
    Unavailable("dcgm_not_found"),
    NotSupported(),
    Unavailable("permission_denied"),
)


def blank_reading(value: float) -> Missing | None:
    """What a sentinel of DCGM stands for; None where the number is one."""
    if not isfinite(value):
        return None
    if value >= INT64_BLANK:
        return _blank_of(int(value) - INT64_BLANK if isinstance(value, int) else 0)
    for blank in BLANKS:
        if blank <= value < blank + BLANK_WIDTH:
            return _blank_of(int(value - blank))
    return None


def _blank_of(offset: int) -> Missing:
    return _BLANK_REASONS[offset] if offset < len(_BLANK_REASONS) else _BLANK_REASONS[0]


def is_dcgm(name: str) -> bool:
    """The series is of a dcgm-exporter."""
    return name.startswith(_PREFIXES)


def dcgm_meaning(name: str, labels: dict[str, str]) -> Meaning:
    """What a series of dcgm-exporter means to us."""
    uuid = gpu_uuid_of(labels.get("UUID") or labels.get("uuid") or labels.get("gpu_uuid") or "")
    host = labels.get("Hostname") or labels.get("hostname") or ""
    if not uuid:
        return NOTHING
    facts = _facts(uuid, labels)
    if (form := XID_NAMES.get(name)) is not None:
        return Meaning((), XidSeries(form, uuid, _code(labels)), facts, host, "", blank_reading)
    of_instance = bool(labels.get("GPU_I_ID"))
    targets = tuple(_target(rule, uuid, labels, of_instance) for rule in _RULES.get(name, ()))
    return Meaning(targets, None, facts, host, "", blank_reading)


def _target(rule: Rule, uuid: str, labels: dict[str, str], of_instance: bool) -> Target:
    kind = METRIC_BY_NAME[rule.metric].entity_kind
    entity = uuid if kind is EntityKind.GPU else ""
    part = "/".join((rule.part, *(labels.get(label, "") for label in rule.split_by)))
    return Target(kind, entity, rule, part, of_instance)


def _facts(uuid: str, labels: dict[str, str]) -> GpuFacts:
    def label(*names: str) -> str:
        return next((labels[name] for name in names if labels.get(name)), "")

    return gpu_facts(
        uuid,
        pci_bus_id=label("pci_bus_id"),
        index=label("gpu"),
        model=label("modelName", "model_name"),
        serial=label("DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_BOARD_SERIAL"),
        driver_version=label("DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION"),
        vbios_version=label("DCGM_FI_DEV_VBIOS_VERSION"),
    )


def _code(labels: dict[str, str]) -> int | None:
    text = labels.get("xid", "")
    return int(text) if text.isdecimal() and len(text) < 6 else None
