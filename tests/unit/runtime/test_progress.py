"""The call in the training loop: seldom sent, never in the way."""

from __future__ import annotations

import math
import threading

from gpuwarden_runtime.config import JobPlace, read_job_place
from gpuwarden_runtime.diagnosis_calls import tell_progress
from gpuwarden_runtime.errors import ServerUnreachable
from gpuwarden_runtime.progress import AWAY_S, Progress
from tests.fakes.waiting import wait_for


class Line:
    """Takes calls, and may be cut."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sent: list[tuple[int, float | None, float | None]] = []
        self.tried = 0
        self.cut = False
        self._done = threading.Event()

    def send(self, step: int, seconds: float | None, loss: float | None) -> None:
        self.tried += 1
        if self.cut:
            raise ServerUnreachable("cut")
        self.sent.append((step, seconds, loss))

    def process(self, rank: int = 0) -> Progress:
        return Progress(JobPlace("slurm:7", rank, "n1"), self.send, monotonic=lambda: self.now)


def test_rank_0_tells_each_ten_seconds_with_the_time_of_a_step() -> None:
    line = Line()
    progress = line.process()
    progress.report(1, 2.5)
    wait_for(lambda: len(line.sent) == 1)
    for step in range(2, 22):
        line.now += 0.5
        progress.report(step, 2.4)
    wait_for(lambda: len(line.sent) == 2)
    assert line.sent == [(1, None, 2.5), (21, 0.5, 2.4)]


def test_other_ranks_tell_only_of_a_loss_that_is_not_finite() -> None:
    line = Line()
    progress = line.process(rank=3)
    progress.report(1, 2.5)
    progress.report(2)
    assert line.tried == 0
    progress.report(3, math.nan)
    wait_for(lambda: len(line.sent) == 1)
    assert line.sent[0][0] == 3


def test_a_server_that_is_away_is_left_alone_for_a_while_and_nothing_is_raised() -> None:
    line = Line()
    line.cut = True
    progress = line.process()
    progress.report(1)
    wait_for(lambda: line.tried == 1)
    wait_for(lambda: progress._due >= line.now + AWAY_S)
    line.now += AWAY_S / 2
    progress.report(2)
    assert line.tried == 1
    line.cut = False
    line.now += AWAY_S
    progress.report(3)
    wait_for(lambda: len(line.sent) == 1)


def test_the_environment_names_job_rank_and_node() -> None:
    slurm = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "3", "SLURMD_NODENAME": "n2"}
    assert read_job_place(slurm) == JobPlace("slurm:7", 3, "n2")
    named = {**slurm, "GPUWARDEN_JOB": "kubernetes:u", "RANK": "1", "GPUWARDEN_NODE": "n9"}
    assert read_job_place(named) == JobPlace("kubernetes:u", 1, "n9")
    assert read_job_place({"HOME": "/"}) is None


def test_a_loss_that_is_not_finite_goes_as_a_word_and_without_a_key() -> None:
    call = tell_progress("slurm:7", 5, loss=-math.inf, rank=2)
    assert call.path == "/v1/sessions/slurm%3A7/progress"
    assert isinstance(call.body, dict)
    assert call.body["loss"] == "-inf"
    assert not call.writes
