"""What to do about a refusal, in words of the command line: the server's mends speak HTTP."""

from __future__ import annotations

from types import MappingProxyType

from gpuwarden_wire.acknowledgement import Problem

_KEY = (
    "set GPUWARDEN_KEY or GPUWARDEN_KEY_FILE to a valid key of this server; an admin makes one "
    "with `gpuwarden keys create`"
)
_BY_STATUS = MappingProxyType({401: _KEY, 403: "use a key whose role may do this"})
"""For an answer without a mend: of a proxy that speaks problem details, of an older server."""
_LISTS = MappingProxyType(
    {
        "nodes": "`gpuwarden nodes` lists them",
        "gpus": "`gpuwarden nodes --json` lists their UUIDs; NODE:INDEX names one too",
        "incidents": "`gpuwarden incidents list` lists them",
        "decisions": "`gpuwarden decisions list` lists them",
        "keys": "`gpuwarden keys list` lists them",
    }
)
"""By the first segment of a route after /v1."""
_LOOK_AGAIN = frozenset({"not_live", "wrong_phase"})
"""Codes of what has moved on since it was read."""


def mend_of(problem: Problem, path: str) -> str:
    """What a user of the command line can do about it; the server's words where we know no better.

    Args:
        problem: As the server sent it.
        path: Path of the request, "/v1/nodes/x".
    """
    if problem.code == "no_valid_key":
        return _KEY
    kind = path.removeprefix("/v1/").partition("/")[0]
    if problem.status == 404 and problem.code == "not_found" and kind in _LISTS:
        return _LISTS[kind]
    if problem.code in _LOOK_AGAIN and kind in ("incidents", "decisions"):
        return f"`gpuwarden {kind} list` shows how it stands now"
    return problem.mend or _BY_STATUS.get(problem.status, "")
