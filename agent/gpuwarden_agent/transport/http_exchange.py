"""HTTP/1.1 as a client needs it that posts one thing at a time: requests as bytes, bounded answers.

The standard library's client takes an answer's headers apart as an e-mail's: four fifths of what
it costs to send a batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_MOST_HEAD_BYTES = 64 * 1024
_MOST_INTERIM = 8
_MOST_LINE_BYTES = 4 * 1024
_MOST_TRAILERS = 64
_PIECE_BYTES = 64 * 1024

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9]\d\d)(?: .*)?")  # RFC 9112 4
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;.*)?")  # RFC 9112 7.1
_SOUND_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

Receive = Callable[[int], bytes]
"""At most so many bytes as soon as there are any, b"" at the end of the connection."""


class NotHttp(Exception):
    """What came is no HTTP answer, or was cut short; the message says how."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """One answer.

    Attributes:
        status_code: HTTP status.
        headers: By name in lower case; of one that came twice the first.
        body: At most as much of it as was asked for.
        reusable: The connection takes another request.
    """

    status_code: int
    headers: Mapping[str, str]
    body: bytes
    reusable: bool


def request_bytes(
    method: str, target: str, headers: Mapping[str, str], body: bytes | None
) -> bytes:
    """A request as it goes on the wire, in one piece: headers and body apart are two TLS records.

    Raises:
        ValueError: Target or a header holds what would end its line.
    """
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    if not all(map(_SOUND_VALUE.fullmatch, lines)):
        raise ValueError("a line break or a letter beyond Latin-1 in a request's target or headers")
    head = "\r\n".join(lines).encode("latin-1")
    return b"".join((head, b"\r\n\r\n", body or b""))


def read_answer(receive: Receive, most_bytes: int) -> HttpAnswer:
    """The answer to one request.

    Args:
        receive: Gives what the peer sends.
        most_bytes: Most of its body that is read.

    Raises:
        NotHttp: It is none.
        OSError: As `receive` raises.
    """
    source = _Source(receive)
    status, minor, headers = source.read_head()
    interim = 0
    while status < 200:  # 100 Continue, 103 Early Hints
        interim += 1
        if interim > _MOST_INTERIM:
            raise NotHttp("interim answers without an end")
        status, minor, headers = source.read_head()
    body, whole = _read_body(source, status, headers, most_bytes)
    options = headers.get("connection", "").lower()
    stays = "close" not in options and (minor == 1 or "keep-alive" in options)
    return HttpAnswer(status, headers, body, stays and whole and not source.rest)


def _read_body(
    source: _Source, status: int, headers: Mapping[str, str], most_bytes: int
) -> tuple[bytes, bool]:
    """The body, and whether the next answer begins behind it."""
    if status in (204, 304):
        return b"", True
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return source.read_chunks(most_bytes)
    length = headers.get("content-length", "")
    if not length:
        return source.read_to_end(most_bytes), False
    if not (length.isascii() and length.isdigit() and len(length) < 16):
        raise NotHttp(f"Content-Length: {length[:40]!r}")
    size = int(length)
    return source.read(min(size, most_bytes)), size <= most_bytes


class _Source:
    """What the peer sends, a part at a time.

    Attributes:
        rest: Bytes that came and were not taken yet.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.rest = b""

    def read_head(self) -> tuple[int, int, dict[str, str]]:
        """Status, minor version and headers of the next answer."""
        while (end := _HEAD_END.search(self.rest)) is None:
            if len(self.rest) > _MOST_HEAD_BYTES:
                raise NotHttp("headers without an end")
            self._more()
        first, *lines = self.rest[: end.start()].splitlines()
        self.rest = self.rest[end.end() :]
        found = _STATUS_LINE.fullmatch(first)
        if found is None:
            raise NotHttp(f"{first[:40]!r} instead of a status line")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.decode("latin-1").partition(":")
            headers.setdefault(name.strip().lower(), value.strip())
        return int(found[2]), int(found[1]), headers

    def read(self, size: int) -> bytes:
        """So many bytes."""
        parts, missing = [self.rest], size - len(self.rest)
        while missing > 0:
            if not (part := self._receive(min(missing, _PIECE_BYTES))):
                raise NotHttp(f"the connection ended {missing} bytes before the end of the body")
            parts.append(part)
            missing -= len(part)
        whole = b"".join(parts)
        self.rest = whole[size:]
        return whole[:size]

    def read_to_end(self, most_bytes: int) -> bytes:
        """All that comes, at most so many bytes."""
        parts, size = [self.rest], len(self.rest)
        while size < most_bytes and (part := self._receive(_PIECE_BYTES)):
            parts.append(part)
            size += len(part)
        self.rest = b""
        return b"".join(parts)[:most_bytes]

    def read_chunks(self, most_bytes: int) -> tuple[bytes, bool]:
        """A body in chunks, and whether that was all of it."""
        parts: list[bytes] = []
        left = most_bytes
        while size := self._chunk_size():
            parts.append(self.read(min(size, left)))
            if size > left:
                return b"".join(parts), False
            left -= size
            if self._line():
                raise NotHttp("a chunk that is longer than it says")
        for _ in range(_MOST_TRAILERS):
            if not self._line():
                return b"".join(parts), True
        raise NotHttp("trailers without an end")

    def _chunk_size(self) -> int:
        line = self._line()
        found = _CHUNK_SIZE.fullmatch(line)
        if found is None:
            raise NotHttp(f"{line[:40]!r} instead of a chunk's size")
        return int(found[1], 16)

    def _line(self) -> bytes:
        while (end := self.rest.find(b"\n")) < 0:
            if len(self.rest) > _MOST_LINE_BYTES:
                raise NotHttp("a line without an end")
            self._more()
        line, self.rest = self.rest[:end], self.rest[end + 1 :]
        return line.removesuffix(b"\r")

    def _more(self) -> None:
        part = self._receive(_PIECE_BYTES)
        if not part:
            raise NotHttp("the connection ended inside an answer" if self.rest else "no answer")
        self.rest += part
