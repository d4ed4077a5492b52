"""How many spares each pool wants, beside how many it has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuwarden_server.fleet.directory import FleetDirectory
from gpuwarden_server.inventory.book import Placements
from gpuwarden_server.savings.repository import Span, read_exclusions, read_spans
from gpuwarden_server.standby.ports import SeenSpare, StandbySource
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.standby.sizing import DAY_S, WINDOW_S, Advice, Seen, advise

MOST_LEAVES = 20_000
"""Decisions that are counted, the newest."""


@dataclass(frozen=True, slots=True)
class Sized:
    """A pool's advice beside what it has.

    Attributes:
        advice: How many it wants.
        spares: In the book for it, leased ones too.
        ready: Of these, those that may be taken now.
    """

    advice: Advice
    spares: int
    ready: int


def sizes(
    state: Database,
    directory: FleetDirectory,
    placements: Placements,
    source: StandbySource,
    now: float,
) -> list[Sized]:
    """Advice for every pool that has nodes or spares, by name; `now` is epoch seconds."""
    seen, members = source.seen(), source.members()
    with state.read() as connection:
        found = read_exclusions(connection, now - WINDOW_S, MOST_LEAVES)
        spans = read_spans(connection, found)
    stays: dict[str, list[tuple[float, float | None]]] = defaultdict(list)
    for node_id, own in _by_node(spans).items():
        stays[placements.pool(node_id).name] += stays_of(own)
    named = {one.look.spare.pool for one in seen}
    return [
        _sized(_seen(name, members.get(name, []), stays[name], directory, now), seen)
        for name in sorted(named | members.keys())
    ]


def _by_node(spans: Iterable[Span]) -> dict[str, list[Span]]:
    found: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        found[span.decision.entity.node_id].append(span)
    return found


def stays_of(spans: Iterable[Span]) -> list[tuple[float, float | None]]:
    """Times that one node was out: what overlaps is one."""
    merged: list[tuple[float, float | None]] = []
    for span in sorted(spans, key=lambda one: one.begun_at):
        last = merged[-1] if merged else None
        if last is None or (last[1] is not None and span.begun_at > last[1]):
            merged.append((span.begun_at, span.ended_at))
        elif last[1] is not None:
            ends = None if span.ended_at is None else max(last[1], span.ended_at)
            merged[-1] = (last[0], ends)
    return merged


def _seen(
    name: str,
    nodes: Sequence[str],
    stays: Sequence[tuple[float, float | None]],
    directory: FleetDirectory,
    now: float,
) -> Seen:
    known = [node for one in nodes if (node := directory.node(one)) is not None]
    watched = (now - max(node.first_seen_at, now - WINDOW_S) for node in known)
    over = [end - begin for begin, end in stays if end is not None]
    return Seen(name, len(nodes), sum(watched) / DAY_S, len(stays), len(over), sum(over))


def _sized(seen: Seen, spares: Sequence[SeenSpare]) -> Sized:
    own = [one for one in spares if one.look.spare.pool == seen.pool]
    return Sized(advise(seen), len(own), sum(not one.obstacles for one in own))
