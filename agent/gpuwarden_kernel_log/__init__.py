"""Kernel-log lines of GPU nodes, and the XID catalogue. Pure: standard library, no I/O, no clock.

``parse_line`` reads one line in any wrapper, ``scan_lines`` a whole log; both are total. The
catalogue answers ``xid_entry``, ``nvlink5_decode`` and ``stated_recovery_action``.
"""

from gpuwarden_kernel_log.catalog import SxidEntry, XidEntry, sxid_entry, xid_codes, xid_entry
from gpuwarden_kernel_log.event import KernelEvent, LineContext, event_to_json
from gpuwarden_kernel_log.nvlink4 import (
    NvLink4Words,
    NvLinkFault,
    nvlink4_fault,
    parse_nvlink4_words,
)
from gpuwarden_kernel_log.nvlink5 import (
    NvLink5Row,
    NvLink5Words,
    nvlink5_decode,
    parse_nvlink5_words,
)
from gpuwarden_kernel_log.parser import parse_events, parse_line, scan_lines
from gpuwarden_kernel_log.recovery import stated_recovery_action
from gpuwarden_kernel_log.sm_place import SmPlace, parse_sm_place
from gpuwarden_kernel_log.vocabulary import Family, FaultClass, RecoveryAction, Severity

__all__ = [
    "Family",
    "FaultClass",
    "KernelEvent",
    "LineContext",
    "NvLink4Words",
    "NvLink5Row",
    "NvLink5Words",
    "NvLinkFault",
    "RecoveryAction",
    "Severity",
    "SmPlace",
    "SxidEntry",
    "XidEntry",
    "event_to_json",
    "nvlink4_fault",
    "nvlink5_decode",
    "parse_events",
    "parse_line",
    "parse_nvlink4_words",
    "parse_nvlink5_words",
    "parse_sm_place",
    "scan_lines",
    "stated_recovery_action",
    "sxid_entry",
    "xid_codes",
    "xid_entry",
]
