"""The reference operation's storage stall (Lablup 1.5: visible at 60 nodes, absent at 4)."""

from __future__ import annotations

import numpy as np

from gpuwarden_models.diagnosis.plant import GPUS, Parts, Site, Work, sound
from gpuwarden_models.diagnosis.readings import play
from gpuwarden_verdict.diagnosis import CulpritKind, Window, diagnose
from gpuwarden_verdict.diagnosis.domain import Layer
from gpuwarden_verdict.diagnosis.phases import Phase

MINUTES, FIRST = 80, 40
LARGE, SMALL = "slurm:60", "slurm:4"


def test_a_stall_at_sixty_nodes_is_storage_and_says_where_it_starts() -> None:
    window = tell(clients_from=30)

    told = diagnose(window, LARGE)

    assert told.kind is CulpritKind.STORAGE, told.line
    assert told.confidence > 0.6
    first = told.culprits[0]
    assert (first.entity, first.layer) == ("mount:/scratch", Layer.RPC_QUEUE)
    assert "RPC queue saturation" in told.line
    numbers = {name: value for one in first.evidence for name, value in one.numbers.items()}
    assert numbers["queue_share"] > 0.8
    assert numbers["answer_seconds"] < 3 * numbers["usual_answer_seconds"]
    assert (first.scale.spared_jobs, first.scale.hurt_jobs) == (4, 60)
    assert "between 4 and 60 nodes" in first.scale.sentence
    assert first.scale.share > 0.9
    calm, strained = first.scale.calm_clients, first.scale.strained_clients
    assert calm is not None and calm <= 8
    assert strained is not None and strained >= 30


def test_the_stall_acquits_every_gpu_and_the_network() -> None:
    told = diagnose(tell(clients_from=30), LARGE)

    assert {one.kind for one in told.culprits if one.score >= 0.3} == {CulpritKind.STORAGE}
    acquitted = {one.what: one.sentence for one in told.acquitted}
    assert {"GPUs", "network", "hosts", "local disks"} <= acquitted.keys()
    assert "480 of 480 GPUs" in acquitted["GPUs"]


def test_the_small_job_on_the_same_mount_has_nothing_to_complain_of() -> None:
    assert diagnose(tell(clients_from=30), SMALL).kind is CulpritKind.NOTHING


def test_the_fleet_is_told_the_same() -> None:
    told = diagnose(tell(clients_from=30))

    assert told.kind is CulpritKind.STORAGE
    assert len(told.culprits[0].hit) >= 60


def test_a_sound_server_under_the_same_saves_is_nothing_abnormal() -> None:
    window = tell(clients_from=None)

    told = diagnose(window, LARGE)

    assert told.kind is CulpritKind.NOTHING, told.line
    assert told.phases is not None
    assert told.phases.shares(FIRST)[Phase.SAVE] > 0.05  # it did save


def tell(clients_from: int | None) -> Window:
    """A job on sixty nodes begins to save when one on four has long done so.

    Args:
        clients_from: Clients at once from which the file server grants too few credits.
    """
    large = job(LARGE, np.arange(60), first_save_s=(FIRST + 6) * 60.0, share=0.06)
    small = job(SMALL, np.arange(60, 64), first_save_s=240.0, share=0.3)
    site = Site(64, np.arange(64) // 16, [large, small], server_bytes=5e10)

    def state_at(_since: float) -> Parts:
        parts = sound(64)
        if clients_from is not None:
            parts.credits, parts.server_from = 0.06, clients_from
        return parts

    return play(site, state_at, MINUTES, FIRST, np.random.default_rng(60))


def job(name: str, nodes: np.ndarray, first_save_s: float, share: float) -> Work:
    gpus = nodes.size * GPUS
    return Work(
        name=name,
        nodes=nodes,
        compute_s=1.0,
        talk_bytes=2e10,
        copy_s=0.05,
        prepare_s=0.5,
        feed_bytes=share * 5e7,
        cache_bytes=2e8,
        save_every_s=540.0 if nodes.size > 4 else 1600.0,  # the small one between the large one's
        save_bytes=3e10,
        pause_every_s=0.0,
        share=np.ones(gpus),
        presses=0.01,
        tells=False,
        watts=np.full(gpus, 620.0),
        next_save_s=first_save_s,
    )
