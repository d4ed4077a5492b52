from __future__ import annotations

import mmap
import os
import struct
from array import array
from collections.abc import Iterator

import pytest

from gpuwarden_agent.sources.nvml_answers import AnswerReader, LayoutTable
from gpuwarden_agent.sources.nvml_flight import (
    FLIGHT_BYTES,
    FlightRecorder,
    Slot,
    Step,
    read_flight,
)
from gpuwarden_agent.sources.nvml_frames import (
    MAX_FRAME_BYTES,
    AnswerFrame,
    Ask,
    End,
    FrameError,
    GpuFacts,
    GpuFrame,
    Layout,
    Refused,
    Request,
    Xid,
    read_report,
    read_request,
    write_frame,
)

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


@pytest.mark.parametrize("request_", [Ask(7), End()])
def test_a_request_arrives_as_sent(pipe: Pipe, request_: Request) -> None:
    write_frame(pipe[1], request_)
    assert read_request(pipe[0]) == request_


def frame(number: int, layout: int, *numbers: float, new: dict[int, Layout]) -> AnswerFrame:
    facts = GpuFacts("GPU-1", "0000:1b:00.0", 0, "1", "NVIDIA H100", "96.00")
    return AnswerFrame(
        number=number,
        driver_version="580.95.05",
        count=1,
        facts={0: facts} if number == 1 else {},
        layouts=new,
        gpus=(GpuFrame(0, 0, 0.001, layout, array("d", numbers).tobytes(), (4711,)),),
    )


def test_an_answer_names_its_numbers_once(pipe: Pipe) -> None:
    layouts = LayoutTable()
    layout = Layout(("gpu_power_watts",), {"gpu_recovery_action": 3})
    place = layouts.place(layout)
    assert layouts.place(Layout(layout.names, dict(layout.missing))) == place
    write_frame(pipe[1], frame(1, place, 312.5, new=layouts.take_unsent()))
    write_frame(pipe[1], frame(2, place, 313.5, new=layouts.take_unsent()))
    write_frame(pipe[1], Refused("nvmlInit", 9))
    answers = AnswerReader()
    for power in (312.5, 313.5):
        report = read_report(pipe[0])
        assert isinstance(report, AnswerFrame)
        (gpu,) = answers.read(report).gpus
        assert gpu.values == {"gpu_power_watts": power}
        assert (gpu.uuid, gpu.missing, gpu.pids) == ("GPU-1", {"gpu_recovery_action": 3}, (4711,))
    assert read_report(pipe[0]) == Refused("nvmlInit", 9)


def test_layouts_without_end_are_told_apart_and_cost_bounded_memory() -> None:
    layouts, answers = LayoutTable(), AnswerReader()
    for number in range(1_000):
        names = (f"metric_{number}", f"metric_{number + 1}")
        place = layouts.place(Layout(names))
        (gpu,) = answers.read(frame(1, place, 1.0, 2.0, new=layouts.take_unsent())).gpus
        assert tuple(gpu.values) == names
        assert place < 256
    assert layouts.evictions == 1_000 - 256


def test_an_answer_about_what_was_never_sent_is_no_answer() -> None:
    with pytest.raises(FrameError):
        AnswerReader().read(frame(1, 7, 312.5, new={}))
    with pytest.raises(FrameError):
        AnswerReader().read(frame(1, 0, 312.5, 1.0, new={0: Layout(("gpu_power_watts",))}))


def test_the_end_of_the_pipe_is_none(pipe: Pipe) -> None:
    os.close(pipe[1])
    assert read_report(pipe[0]) is None


@pytest.mark.parametrize(
    "sent",
    [
        b"\x05",
        struct.pack("<I", 10) + b"short",
        struct.pack("<I", 4),
        struct.pack("<I", MAX_FRAME_BYTES + 1),
        struct.pack("<I", 3) + b"\xc1\xc1\xc1",
        struct.pack("<I", 1) + b"\x80",
    ],
    ids=["half a length", "half a body", "no body", "oversized", "no msgpack", "no tag"],
)
def test_what_is_no_frame_is_named_so(pipe: Pipe, sent: bytes) -> None:
    os.write(pipe[1], sent)
    os.close(pipe[1])
    with pytest.raises(FrameError):
        read_report(pipe[0])


def test_an_xid_keeps_a_64_bit_code(pipe: Pipe) -> None:
    xid = Xid(uuid="GPU-1", pci_bus_id="", code=2**63, counter=5, observed_at=1.0)
    write_frame(pipe[1], xid)
    assert read_report(pipe[0]) == xid


@pytest.fixture
def memory() -> Iterator[mmap.mmap]:
    with mmap.mmap(-1, FLIGHT_BYTES) as shared:
        yield shared


def test_a_call_is_seen_from_begin_to_end(memory: mmap.mmap) -> None:
    recorder = FlightRecorder(memory, Slot.POLL, clock=lambda: 100.0)
    assert read_flight(memory, Slot.POLL).call == ""
    recorder.begin("nvmlDeviceGetPowerUsage", "GPU-1")
    flight = read_flight(memory, Slot.POLL)
    assert (flight.call, flight.gpu_uuid, flight.since) == (
        "nvmlDeviceGetPowerUsage",
        "GPU-1",
        100.0,
    )
    recorder.end()
    assert read_flight(memory, Slot.POLL).call == ""


def test_each_call_has_a_number_of_its_own(memory: mmap.mmap) -> None:
    recorder = FlightRecorder(memory, Slot.POLL)
    numbers = []
    for _ in range(3):
        recorder.begin("nvmlDeviceGetCount")
        numbers.append(read_flight(memory, Slot.POLL).number)
        recorder.end()
    assert numbers == [1, 2, 3]


def test_a_wait_is_old_only_after_its_patience(memory: mmap.mmap) -> None:
    FlightRecorder(memory, Slot.EVENTS, clock=lambda: 50.0).begin("wait", patience_s=1.0)
    assert read_flight(memory, Slot.EVENTS).since == 51.0
    assert read_flight(memory, Slot.POLL).call == ""


def test_the_names_of_both_threads_are_told_apart(memory: mmap.mmap) -> None:
    poll = FlightRecorder(memory, Slot.POLL)
    events = FlightRecorder(memory, Slot.EVENTS, beside=poll)
    poll.begin("nvmlDeviceGetSerial", "GPU-1")
    events.begin("nvmlEventSetWait_v2", "GPU-2")
    seen = [read_flight(memory, slot) for slot in Slot]
    assert [(one.call, one.gpu_uuid) for one in seen] == [
        ("nvmlDeviceGetSerial", "GPU-1"),
        ("nvmlEventSetWait_v2", "GPU-2"),
    ]


def test_names_beyond_the_room_for_them_are_not_taken_for_others(memory: mmap.mmap) -> None:
    recorder = FlightRecorder(memory, Slot.POLL)
    for number in range(300):
        recorder.begin(f"call{number}")
    assert read_flight(memory, Slot.POLL).call == "?"
    recorder.begin("call7")
    assert read_flight(memory, Slot.POLL).call == "call7"


def test_prepared_calls_are_seen_each_and_end_at_the_first_that_fails(memory: mmap.mmap) -> None:
    recorder = FlightRecorder(memory, Slot.POLL)
    seen: list[tuple[str, str, int]] = []

    def look(code: int) -> int:
        flight = read_flight(memory, Slot.POLL)
        seen.append((flight.call, flight.gpu_uuid, flight.number))
        return code

    def step(call: str, code: int) -> Step:
        return Step(call, recorder.label(call, "GPU-1"), look, (code,))

    assert recorder.run([step("one", 0), step("two", 0)])
    assert not recorder.run([step("one", 15), step("two", 0)])
    assert seen == [("one", "GPU-1", 1), ("two", "GPU-1", 2), ("one", "GPU-1", 3)]
    assert read_flight(memory, Slot.POLL).call == ""
