from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator

import pytest

from gpuwarden_agent.sources.nvml_flight import FLIGHT_BYTES, FlightRecorder, Slot, read_flight
from gpuwarden_agent.sources.nvml_frames import (
    MAX_FRAME_BYTES,
    Answer,
    Ask,
    End,
    FrameError,
    GpuAnswer,
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


def test_an_answer_arrives_as_sent(pipe: Pipe) -> None:
    gpu = GpuAnswer(
        uuid="GPU-1",
        pci_bus_id="0000:1b:00.0",
        index=0,
        values={"gpu_power_watts": 312.5},
        missing={"gpu_recovery_action": 3},
    )
    answer = Answer(number=1, driver_version="580.95.05", count=1, gpus=(gpu,))
    write_frame(pipe[1], answer)
    write_frame(pipe[1], Refused("nvmlInit", 9))
    assert read_report(pipe[0]) == answer
    assert read_report(pipe[0]) == Refused("nvmlInit", 9)


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


def test_a_child_stopped_within_a_write_can_still_be_read(memory: mmap.mmap) -> None:
    FlightRecorder(memory, Slot.POLL).begin("nvmlDeviceGetSerial")
    struct.pack_into("<Q", memory, 0, 3)  # odd: a write under way
    assert read_flight(memory, Slot.POLL).call == "nvmlDeviceGetSerial"
