"""NVIDIA's action buckets as recommended actions."""

from __future__ import annotations

from types import MappingProxyType

from gpuwarden_kernel_log import xid_entry
from gpuwarden_verdict.entities import RecommendedAction

ACTION_OF_BUCKET = MappingProxyType(
    {
        "NONE": RecommendedAction.NONE,
        "IGNORE": RecommendedAction.NONE,
        "RESTART_APP": RecommendedAction.RESTART_APP,
        "RESET_GPU": RecommendedAction.RESET_GPU,
        "RESTART_VM": RecommendedAction.REBOOT_NODE,
        "RESTART_BM": RecommendedAction.REBOOT_NODE,
        "CONTACT_SUPPORT": RecommendedAction.INVESTIGATE,
        "CHECK_MECHANICALS": RecommendedAction.CHECK_CABLE,
        "UPDATE_SWFW": RecommendedAction.INVESTIGATE,
        "CHECK_UVM": RecommendedAction.INVESTIGATE,
        # solo: restart the application; beside another fault: ignore. We never act on it.
        "WORKFLOW_XID_45": RecommendedAction.NONE,
        "WORKFLOW_XID_48": RecommendedAction.RESET_GPU,
        "WORKFLOW_NVLINK_ERR": RecommendedAction.INVESTIGATE,
        "WORKFLOW_NVLINK5_ERR": RecommendedAction.INVESTIGATE,
        "XID_154": RecommendedAction.NONE,
        # take 154's action if one comes, else restart the application
        "XID_154_EVAL": RecommendedAction.RESTART_APP,
        "DRAIN_P2P": RecommendedAction.INVESTIGATE,
        "DRAIN_AND_RESET": RecommendedAction.RESET_GPU,
    }
)
"""Every bucket of the catalogue, of the NVLink 5 table and of XID 154 (Xid-Catalog.xlsx)."""

ACTION_OF_INVESTIGATION = MappingProxyType(
    {
        "NONE": RecommendedAction.NONE,
        "IGNORE": RecommendedAction.NONE,
        "CONTACT_SUPPORT": RecommendedAction.INVESTIGATE,
        "REPORT_ISSUE": RecommendedAction.INVESTIGATE,
        "CHECK_APP/CUDA": RecommendedAction.RESTART_APP,
        "INVESTIGATE_SW": RecommendedAction.INVESTIGATE,
        "INVESTIGATE_SW_USER": RecommendedAction.INVESTIGATE,
        "INVESTIGATE_SW_USER_LINK_SI": RecommendedAction.CHECK_CABLE,
        "INVESTIGATE_LINK_SI": RecommendedAction.CHECK_CABLE,
        "INVESTIGATE_LINK_SI_AND_CABLES": RecommendedAction.CHECK_CABLE,
        "INVESTIGATE_PEER_DEVICE": RecommendedAction.INVESTIGATE,
        "INVESTIGATE_HOST": RecommendedAction.INVESTIGATE,
        "CHECK_NVLINK_FAILURE_FLOW": RecommendedAction.INVESTIGATE,
        "SYMPATHETIC_REPORT_SOLO": RecommendedAction.INVESTIGATE,
        "UPDATE_SWFW": RecommendedAction.INVESTIGATE,
        "RESTART_FM": RecommendedAction.INVESTIGATE,
        "WORKFLOW_XID_13": RecommendedAction.INVESTIGATE,
        "WORKFLOW_XID_31": RecommendedAction.INVESTIGATE,
        "WORKFLOW_XID_48": RecommendedAction.INVESTIGATE,
        "WORKFLOW_NVLINK5_ERR": RecommendedAction.INVESTIGATE,
        "XID_137_FLOW": RecommendedAction.INVESTIGATE,
    }
)
"""Every investigatory bucket of the catalogue and of the NVLink 5 table: what to do where a fault
comes again."""

ASKS_FOR_HARDWARE = frozenset(
    {
        "RESET_GPU",
        "RESTART_VM",
        "RESTART_BM",
        "WORKFLOW_XID_48",
        "DRAIN_AND_RESET",
    }
)
"""Buckets that make a catalogue's "fatal" count. An empty or unknown bucket is never fatal: peers
that took CONTACT_SUPPORT or no bucket for fatal flagged XID 162, which is good news."""


def recommended(bucket: str | None) -> RecommendedAction:
    """The action of a bucket; one that we do not know, or none, asks for a look."""
    return ACTION_OF_BUCKET.get(bucket or "", RecommendedAction.INVESTIGATE)


def investigated(code: int) -> RecommendedAction:
    """The investigatory action of a code; where the sheet has none, or none to take: a look."""
    entry = xid_entry(code)
    action = ACTION_OF_INVESTIGATION.get(entry.investigation or "") if entry else None
    return action if action not in (None, RecommendedAction.NONE) else RecommendedAction.INVESTIGATE
