"""What programs and receivers of the user's are asked; docs/actuators.md has the same for users."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gpuwarden_verdict.actuation import TAG, Act, Wanted


def read_request(nodes: Collection[str]) -> Mapping[str, object]:
    """Asks what is held of these nodes, and of all that carry our tag."""
    return {"act": "read", "tag": TAG, "nodes": sorted(nodes)}


def exclude_request(wanted: Wanted) -> Mapping[str, object]:
    """Asks for a node to be taken out."""
    return {
        "act": "exclude",
        "tag": TAG,
        "node": wanted.node_id,
        "rung": wanted.rung.name.lower(),
        "decisions": wanted.decisions,
        "gpus": wanted.gpus,
        "reason": wanted.text,
    }


def move_request(node_id: str, jobs: Collection[str]) -> Mapping[str, object]:
    """Asks for jobs to be moved off a node."""
    return {"act": "move", "tag": TAG, "node": node_id, "jobs": sorted(jobs)}


def remedy_request(act: Act, wanted: Wanted, reason: str) -> Mapping[str, object]:
    """Asks for something to be done to a node that is out."""
    return {
        "act": act.value,
        "tag": TAG,
        "node": wanted.node_id,
        "decisions": wanted.decisions,
        "gpus": wanted.gpus,
        "reason": reason,
    }


def release_request(node_id: str) -> Mapping[str, object]:
    """Asks for a node to be let back in."""
    return {"act": "release", "tag": TAG, "node": node_id}
