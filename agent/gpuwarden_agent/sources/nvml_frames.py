"""Frames between the agent and its NVML child: length-prefixed msgpack over three pipes.

Requests, answers to them, and reports that nobody asked for each have their own.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from gpuwarden_wire.readings import Reading

T = TypeVar("T")

MAX_FRAME_BYTES = 4 * 1024 * 1024
"""Largest frame. The first answer about 16 GPUs takes about 40 kB."""

_LENGTH = struct.Struct("<I")


class FrameError(Exception):
    """Bytes on the pipe that are not a frame: the peer is not ours or broke off inside one."""


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """Asks the child to read all GPUs once; `number` comes back in the answer."""

    number: int


class End(msgspec.Struct, frozen=True, tag="end"):
    """Asks the child to end between calls."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """NVML is initialised."""

    driver_version: str


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """NVML as a whole does not work; the child ends after it.

    Attributes:
        call: Function that failed.
        code: nvmlReturn_t.
    """

    call: str
    code: int


class GpuAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU at one poll, put together from its frame.

    Attributes:
        uuid: "GPU-…".
        pci_bus_id: Lower-case dddd:bb:dd.f.
        index: Driver's index at the last enumeration.
        serial: "" where the driver gives none.
        model: Product name.
        vbios_version: "" where unknown.
        code: nvmlReturn_t of the GPU as a whole: 0 answers, 15 lost, 6 or 28 gone.
        values: Numbers by metric name, in the registry's units.
        missing: nvmlReturn_t by metric name.
        probe_s: Wall time of this GPU's calls, seconds.
        pids: Processes that compute on it, None where this poll did not ask or it did not say.
    """

    uuid: str
    pci_bus_id: str
    index: int
    serial: str = ""
    model: str = ""
    vbios_version: str = ""
    code: int = 0
    values: Mapping[str, Reading] = {}
    missing: Mapping[str, int] = {}
    probe_s: float = 0.0
    pids: tuple[int, ...] | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs at one poll, put together from its frame.

    Attributes:
        number: Number of the Ask.
        driver_version: Kernel driver.
        count: nvmlDeviceGetCount_v2.
        unreachable: nvmlReturn_t of each index that the driver counts but gives no handle for.
        gpus: GPUs known to this child, lost and gone ones included.
    """

    number: int
    driver_version: str
    count: int
    unreachable: tuple[int, ...] = ()
    gpus: tuple[GpuAnswer, ...] = ()


class GpuFacts(msgspec.Struct, frozen=True, array_like=True):
    """What hardly ever changes of a GPU; as in GpuAnswer."""

    uuid: str
    pci_bus_id: str
    index: int
    serial: str
    model: str
    vbios_version: str


class Layout(msgspec.Struct, frozen=True, array_like=True):
    """What the numbers of a GPU are, and why there is no number of the rest.

    Attributes:
        names: Metric names, in order of the numbers.
        missing: nvmlReturn_t by metric name.
    """

    names: tuple[str, ...] = ()
    missing: dict[str, int] = {}


class GpuFrame(msgspec.Struct, frozen=True, array_like=True):
    """One GPU at one poll.

    Attributes:
        gpu: Its place in the child's list; its facts were sent under it.
        code: As in GpuAnswer.
        probe_s: As in GpuAnswer.
        layout: Place under which its layout was sent.
        numbers: float64 in the machine's order, as the layout says.
        pids: As in GpuAnswer.
    """

    gpu: int
    code: int
    probe_s: float
    layout: int
    numbers: bytes = b""
    pids: tuple[int, ...] | None = None


class AnswerFrame(msgspec.Struct, frozen=True, tag="answer", kw_only=True):
    """All GPUs at one poll: what is the same as before is not sent again.

    Attributes:
        number, driver_version, count, unreachable: As in Answer.
        facts: By place of the GPU, where they are new.
        layouts: By place, where they are new; one replaces what stood there.
        gpus: As in Answer.
    """

    number: int
    driver_version: str
    count: int
    unreachable: tuple[int, ...] = ()
    facts: dict[int, GpuFacts] = {}
    layouts: dict[int, Layout] = {}
    gpus: tuple[GpuFrame, ...] = ()


class Xid(msgspec.Struct, frozen=True, tag="xid", kw_only=True):
    """One XID event as NVML delivered it.

    Attributes:
        uuid: GPU, "" where NVML named none.
        pci_bus_id: Lower-case dddd:bb:dd.f, "" where NVML named no GPU.
        code: XID.
        counter: Microseconds since boot at receipt, raised to be unique within the child: unique
            and rising over restarts of child and agent without being stored.
        observed_at: UTC at receipt, epoch seconds.
        gpu_instance: MIG GPU instance, None for the whole GPU.
        compute_instance: MIG compute instance, None for the whole GPU.
    """

    uuid: str
    pci_bus_id: str
    code: int
    counter: int
    observed_at: float
    gpu_instance: int | None = None
    compute_instance: int | None = None


class Hurry(msgspec.Struct, frozen=True, tag="hurry"):
    """What announces a fault has changed between two polls.

    Attributes:
        gpus: UUIDs of the GPUs.
    """

    gpus: tuple[str, ...]


class Watch(msgspec.Struct, frozen=True, tag="watch"):
    """How far XID events are watched.

    Attributes:
        gpus: GPUs registered with the event set.
        code: nvmlReturn_t of the first registration that failed, 0 where none did.
    """

    gpus: int
    code: int


Request = Ask | End
Report = Ready | Refused | AnswerFrame | Xid | Watch | Hurry

_encoder = msgspec.msgpack.Encoder()
_request_decoder: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_report_decoder: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


def write_frame(descriptor: int, message: Request | Report) -> None:
    """Write one message whole.

    Raises:
        OSError: The reader is gone.
    """
    body = _encoder.encode(message)
    rest = memoryview(_LENGTH.pack(len(body)) + body)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def read_request(descriptor: int) -> Request | None:
    """The agent's next request, waiting for it; None at the end of the pipe.

    Raises:
        FrameError: Not a frame.
    """
    body = _read_body(descriptor)
    return None if body is None else _decode(_request_decoder, body)


def read_report(descriptor: int) -> Report | None:
    """The child's next report, waiting for it; None at the end of the pipe.

    Raises:
        FrameError: Not a frame.
    """
    body = _read_body(descriptor)
    return None if body is None else _decode(_report_decoder, body)


def decode_report(body: bytes) -> Report:
    """The report in the body of a frame.

    Raises:
        FrameError: It is none.
    """
    return _decode(_report_decoder, body)


def split_frame(content: bytes) -> tuple[bytes | None, bytes]:
    """The body of the first frame, None where it is not there whole, and what follows it.

    Raises:
        FrameError: Not a frame.
    """
    if len(content) < _LENGTH.size:
        return None, content
    end = _LENGTH.size + _length_in(content[: _LENGTH.size])
    if len(content) < end:
        return None, content
    return content[_LENGTH.size : end], content[end:]


def _length_in(header: bytes) -> int:
    length: int = _LENGTH.unpack(header)[0]
    if length > MAX_FRAME_BYTES:
        raise FrameError(f"frame of {length} bytes, at most {MAX_FRAME_BYTES}")
    return length


def _decode(decoder: msgspec.msgpack.Decoder[T], body: bytes) -> T:
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        raise FrameError(f"not a frame: {error}") from error


def _read_body(descriptor: int) -> bytes | None:
    header = _read_exactly(descriptor, _LENGTH.size)
    if header is None:
        return None
    length = _length_in(header)
    body = _read_exactly(descriptor, length)
    if body is None:
        raise FrameError(f"pipe ended before a frame of {length} bytes")
    return body


def _read_exactly(descriptor: int, size: int) -> bytes | None:
    parts: list[bytes] = []
    missing = size
    while missing:
        part = os.read(descriptor, missing)
        if not part:
            if parts:
                raise FrameError(f"pipe ended {missing} bytes before the end of a frame")
            return None
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
