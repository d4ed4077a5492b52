"""May a command start here? Asks the local verdict file, the server, then the cached set.

The answer that forbids is the expensive one: a "no" of the file is asked again at the server, which
may have taken it back meanwhile. Where nobody answers, the command starts (fail-open) unless the
caller is strict.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from gpuwarden_runtime.cache import CachedSet, NoCache, SetCache
from gpuwarden_runtime.client import Client
from gpuwarden_runtime.errors import GpuwardenError, SettingError
from gpuwarden_runtime.host_names import same_host
from gpuwarden_runtime.place import Place, covering, excluded_by_verdict, require_gpus, utc
from gpuwarden_runtime.records import Exclusion, ExclusionSet
from gpuwarden_wire.acknowledgement import NodeVerdict, Usable

VERDICT_FILE_FRESH_S = 120.0
"""The agent confirms its file with every acknowledgement; one this old is of a stopped agent."""


class Entry(StrEnum):
    """Answer to the question."""

    ADMITTED = "admitted"
    EXCLUDED = "excluded"
    UNANSWERED = "unanswered"  # nobody could say


@dataclass(frozen=True, slots=True)
class Admission:
    """Answer, what stands behind it, and what the user should hear.

    Attributes:
        entry: The answer.
        exclusions: What forbids, for EXCLUDED.
        source: Who answered: "verdict file", "server", "cached set of TIME", "".
        warnings: Sentences for the user.
    """

    entry: Entry
    exclusions: tuple[Exclusion, ...] = ()
    source: str = ""
    warnings: tuple[str, ...] = ()


class VerdictFile(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the local verdict file that is not the verdict."""

    written_at: float


def ask_admission(
    place: Place, verdict_file: Path, client: Client, cache: SetCache, now: float
) -> Admission:
    """May a command start at this place?

    Args:
        place: Node and GPUs.
        verdict_file: Kept by the agent of this node; one of another node is not used.
        client: Connection to the server.
        cache: Last set that this or an earlier launcher saw.
        now: Epoch seconds.

    Raises:
        SettingError: The node is known not to have one of the GPUs.
    """
    local = read_verdict_file(verdict_file, place.node, now)
    forbidden = excluded_by_verdict(place, local) if isinstance(local, NodeVerdict) else ()
    if isinstance(local, NodeVerdict) and not forbidden:
        _require_known_gpus(place, local)
        return _admitted(place, local, "verdict file")
    try:
        return _ask_server(place, client, cache, now)
    except SettingError:
        raise
    except GpuwardenError as error:
        trouble = str(error)
    if forbidden:
        return Admission(Entry.EXCLUDED, forbidden, "verdict file", (trouble,))
    return _ask_cache(place, cache, now, trouble)


def read_verdict_file(path: Path, node: str, now: float) -> NodeVerdict | str:
    """The agent's verdict if it is of this node and fresh, else the reason why not."""
    try:
        body = path.read_bytes()
        written_at = msgspec.json.decode(body, type=VerdictFile).written_at
        verdict = msgspec.json.decode(body, type=NodeVerdict)
    except (OSError, msgspec.DecodeError) as error:
        return f"{path}: {error}"
    if not same_host(verdict.node_id, node):
        return f"{path} is of node {verdict.node_id}"
    if not -VERDICT_FILE_FRESH_S <= now - written_at <= VERDICT_FILE_FRESH_S:
        return f"{path} was written {now - written_at:.0f} s ago"
    return verdict


def _ask_server(place: Place, client: Client, cache: SetCache, now: float) -> Admission:
    answer = client.verdicts([place.node])
    verdict = next((item for item in answer.verdicts if item.node_id == place.node), None)
    if verdict is not None and verdict.node.usable is Usable.YES:
        _require_known_gpus(place, verdict)
        return _admitted(place, verdict, "server")
    # Excluded, or not known by this name: the server may know it as GPU-03 or gpu-03.cluster.
    exclusions = client.exclusions()
    cache.save(exclusions, now)
    forbidden = covering(place, exclusions.exclusions)
    if forbidden:
        return Admission(Entry.EXCLUDED, forbidden, "server")
    if verdict is None or verdict.node.usable is Usable.UNKNOWN:
        return _admitted(place, verdict, "server")
    _require_known_gpus(place, verdict)
    # Lifted between both answers, or of GPUs that this command does not use.
    return Admission(Entry.ADMITTED, (), "server", (f"other GPUs of {place.node} are excluded",))


def _require_known_gpus(place: Place, verdict: NodeVerdict) -> None:
    """Of a node that is not heard of, what it had says nothing about what it has."""
    if verdict.node.usable is not Usable.UNKNOWN:
        require_gpus(place, verdict.gpus)


def _admitted(place: Place, verdict: NodeVerdict | None, source: str) -> Admission:
    warnings: tuple[str, ...] = ()
    if verdict is None or verdict.node.usable is Usable.UNKNOWN:
        why = verdict.node.why if verdict is not None else ""
        warnings = (f"nothing is known about node {place.node}: {why or 'never seen'}",)
    elif verdict.node.would:
        warnings = (f"node {place.node} is usable, but in act mode: {verdict.node.would}",)
    return Admission(Entry.ADMITTED, (), source, warnings)


def _ask_cache(place: Place, cache: SetCache, now: float, trouble: str) -> Admission:
    cached = cache.load(now)
    match cached:
        case NoCache(reason=reason):
            return Admission(Entry.UNANSWERED, (), "", (trouble, reason))
        case CachedSet(content=ExclusionSet(exclusions=exclusions), saved_at=saved_at):
            source = f"cached set of {utc(saved_at)}"
            forbidden = covering(place, exclusions)
            entry = Entry.EXCLUDED if forbidden else Entry.ADMITTED
            return Admission(entry, forbidden, source, (trouble,))
