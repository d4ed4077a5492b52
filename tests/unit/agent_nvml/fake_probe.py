"""An NvmlProbe whose every answer the test gives."""

from __future__ import annotations

from collections.abc import Callable

from gpuwarden_agent.sources.nvml import GpuProcesses, Poll, ProbeCondition, ProbeState
from gpuwarden_agent.sources.nvml_frames import Answer, GpuAnswer, Watch, Xid


class FakeProbe:
    def __init__(self) -> None:
        self.polls: list[Poll] = []
        self.xids: list[Xid] = []
        self.watched: Watch | None = None
        self.renewed = 0
        self.closed = False

    def will_answer(
        self, *gpus: GpuAnswer, count: int | None = None, unreachable: tuple[int, ...] = ()
    ) -> None:
        answer = Answer(
            number=1,
            driver_version="580.95.05",
            count=len(gpus) if count is None else count,
            unreachable=unreachable,
            gpus=gpus,
        )
        self.polls.append(Poll(ProbeCondition(ProbeState.READY), answer))

    def will_be(self, state: ProbeState, reason: str = "", **facts: object) -> None:
        call = str(facts.get("call", ""))
        age_s = facts.get("call_age_s", 0.0)
        assert isinstance(age_s, float)
        uuid = str(facts.get("gpu_uuid", ""))
        self.polls.append(
            Poll(ProbeCondition(state, call=call, gpu_uuid=uuid, call_age_s=age_s, reason=reason))
        )

    def poll(self) -> Poll:
        return self.polls.pop(0)

    def condition(self) -> ProbeCondition:
        return self.polls[0].condition

    def stuck_call(self) -> str:
        condition = self.condition()
        return condition.call if condition.state is ProbeState.STUCK else ""

    def next_xid(self, timeout_s: float) -> Xid | None:
        return self.xids.pop(0) if self.xids else None

    def on_change(self, hurry: Callable[[], None]) -> None:
        self.hurry = hurry

    def wake(self) -> None:
        return

    def watch(self) -> Watch | None:
        return self.watched

    def processes(self) -> GpuProcesses | None:
        return None

    def renew(self) -> None:
        self.renewed += 1

    def close(self) -> None:
        self.closed = True

    def held(self) -> str:
        return ""
