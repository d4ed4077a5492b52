"""`gpuwarden backtest`: what would have been flagged, excluded and missed."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

from gpuwarden_models.backtest.blind import blind_planes
from gpuwarden_models.backtest.flags import FlagBook
from gpuwarden_models.backtest.history import History
from gpuwarden_models.backtest.player import Player
from gpuwarden_models.backtest.report import Played, Report
from gpuwarden_models.backtest.scores import Watched, score
from gpuwarden_models.frames import Frame
from gpuwarden_verdict.engine import FleetEngine
from gpuwarden_verdict.fusion import FusionModels
from gpuwarden_verdict.fusion.gate import exclude_limits
from gpuwarden_verdict.policy.document import Cap, Mode, PolicyDocument
from gpuwarden_verdict.policy.parse import pool_of
from gpuwarden_wire.metrics import EntityKind

_NO_CAP = Cap(max_nodes=1_000_000_000, max_percent=100.0)
Progress = Callable[[float], None]
"""Told the share of the time that is played, 0..1."""

Look = Callable[[Frame], None]
"""Shown a frame."""


def silent(share: float) -> None:
    """Where nobody waits for it."""


def unseen(frame: Frame) -> None:
    """Where nobody looks on."""


@dataclass(slots=True)
class _Census:
    """What the frames showed."""

    frames: int = 0
    events: int = 0
    node_of: dict[str, str] | None = None

    def count(self, frame: Frame) -> None:
        self.frames += 1
        self.events += len(frame.events)
        if self.node_of is None:
            self.node_of = {
                key: frame.nodes[node]
                for table in frame.tables
                if table.kind is EntityKind.GPU
                for key, node in zip(table.keys, table.node_of.tolist(), strict=True)
            }


def backtest(
    history: History,
    source: str,
    policy: PolicyDocument,
    models: FusionModels,
    progress: Progress = silent,
    *,
    keep_caps: bool = False,
    look: Look = unseen,
) -> Report:
    """Play a history through the judge, in act mode and with the learnt score's gate open.

    Args:
        history: What the fleet showed.
        source: Where it came from, for the report.
        policy: The rules; their mode is taken as act.
        models: The learnt scores; without any, rules judge alone.
        progress: Told how far it is.
        keep_caps: Let caps hold exclusions back, though nobody repairs what a backtest excludes.
        look: Shown each frame before it is judged.

    Raises:
        RecordingError: A file of the recording broke off in the middle.
    """
    began = time.process_time()
    flags, census = FlagBook(), _Census()
    rules = acting(policy, keep_caps=keep_caps)
    engine = FleetEngine(rules, models=models, gate_open=True, watch=flags.watch)
    player = Player(engine, history)
    length = max(history.end - history.start, history.interval_s)
    for frame in history.frames():
        census.count(frame)
        look(frame)
        player.play(frame)
        progress(min(1.0, (frame.at - history.start) / length))
    node_of = census.node_of or {}
    found = tuple(flags.flags())
    watched = Watched(history.start, history.end, len(node_of), node_of, nodes_behind(history))
    return Report(
        played=Played(
            source=source,
            start=history.start,
            end=history.end,
            interval_s=history.interval_s,
            frames=census.frames,
            nodes=len(history.nodes),
            gpus=len(node_of),
            events=census.events,
            cpu_s=time.process_time() - began,
        ),
        model_version=", ".join(model.version for model in models.values()),
        policy_version=rules.version,
        flags=found,
        blind=tuple(blind_planes(history)),
        scores=score(found, history.labels, watched) if history.labels else None,
        gpus=tuple(sorted(node_of)),
        exclude_confidence=max(
            (max(exclude_limits(pool_of(rules, node))) for node in history.nodes), default=1.0
        ),
    )


def acting(policy: PolicyDocument, *, keep_caps: bool) -> PolicyDocument:
    """The policy with all its pools in act mode, under the version that the user knows it by."""
    pools = tuple(
        replace(
            pool,
            mode=Mode.ACT,
            rules=tuple(replace(rule, mode=None) for rule in pool.rules),
            cap=pool.cap if keep_caps else _NO_CAP,
        )
        for pool in policy.pools
    )
    return replace(policy, pools=pools)


def nodes_behind(history: History) -> dict[tuple[str, str], frozenset[str]]:
    """Nodes behind each leaf, rack, power domain, mount and job, by (kind, name) as in labels."""
    behind: dict[tuple[str, str], set[str]] = defaultdict(set)
    for node_id, place in history.places.items():
        behind["fabric", place.leaf].add(node_id)
        behind["rack", place.rack].add(node_id)
        behind["power", place.power].add(node_id)
        for mount in place.mounts:
            behind["mount", mount].add(node_id)
    for job in history.jobs:
        behind["job", job.job_id] |= set(job.nodes)
    return {key: frozenset(nodes) for key, nodes in behind.items() if key[1]}
