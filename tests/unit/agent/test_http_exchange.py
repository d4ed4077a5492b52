from __future__ import annotations

import pytest

from gpuwarden_agent.transport.http_exchange import (
    HttpAnswer,
    NotHttp,
    read_answer,
    request_bytes,
)

MOST = 100


class Peer:
    """Sends a text in pieces of a size, then ends the connection or goes on for ever."""

    def __init__(self, text: bytes, piece: int, for_ever: bytes = b"") -> None:
        self.left = text
        self._piece = piece
        self._for_ever = for_ever

    def receive(self, most: int) -> bytes:
        size = min(most, self._piece)
        part, self.left = self.left[:size], self.left[size:]
        return part or self._for_ever


def answered(text: bytes, piece: int = 1 << 20, for_ever: bytes = b"") -> HttpAnswer:
    return read_answer(Peer(text, piece, for_ever).receive, MOST)


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
BIG = b"x" * (MOST + 1)

SOUND = {
    "sized": (OK + b"Content-Length: 2\r\nDate: now\r\n\r\n{}", 200, b"{}", True),
    "no reason": (b"HTTP/1.1 503\r\ncontent-LENGTH:1\r\n\r\n-", 503, b"-", True),
    "empty": (OK + b"Content-Length: 0\r\n\r\n", 200, b"", True),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "bare line feeds": (b"HTTP/1.1 200 OK\nContent-Length: 1\n\n1", 200, b"1", True),
    "interim": (INTERIM + OK + b"Content-Length: 1\r\n\r\n1", 200, b"1", True),
    "closing": (OK + b"Connection: close\r\nContent-Length: 1\r\n\r\n1", 200, b"1", False),
    "old": (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n1", 200, b"1", False),
    "old, kept": (
        b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\n1",
        200,
        b"1",
        True,
    ),
    "to the end": (OK + b"\r\nall of it", 200, b"all of it", False),
    "unasked": (OK + b"Content-Length: 1\r\n\r\n1and more", 200, b"1", False),
    "too long": (OK + b"Content-Length: 101\r\n\r\n" + BIG, 200, BIG[:MOST], False),
    "chunked": (
        CHUNKED + b"3;a=b\r\nabc\r\n00A\r\n0123456789\r\n0\r\nT: 1\r\n\r\n",
        200,
        b"abc0123456789",
        True,
    ),
    "chunked, too long": (
        CHUNKED + b"65\r\n" + BIG + b"\r\n0\r\n\r\n",
        200,
        BIG[:MOST],
        False,
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_every_form_of_an_answer_is_read_however_it_is_cut(name: str) -> None:
    text, status, body, reusable = SOUND[name]
    for piece in (1 << 20, 7, 3, 2):
        found = answered(text, piece)
        assert (found.status_code, found.body) == (status, body)
        # what nobody asked for may come after we looked
        assert found.reusable == reusable or (name == "unasked" and piece < len(text))


def test_of_a_header_that_comes_twice_the_first_holds() -> None:
    found = answered(OK + b"Retry-After : 7\r\nretry-after: 8\r\nContent-Length: 0\r\n\r\n")
    assert found.headers["retry-after"] == "7"


BROKEN = {
    "nothing": b"",
    "TLS": b"\x16\x03\x01 this is not HTTP\r\n\r\n",
    "cut in the head": OK + b"Content-Le",
    "cut in the body": OK + b"Content-Length: 5\r\n\r\n123",
    "cut in a chunk": CHUNKED + b"9\r\n123",
    "negative": OK + b"Content-Length: -1\r\n\r\n",
    "two lengths in one": OK + b"Content-Length: 1, 2\r\n\r\n12",
    "endless number": OK + b"Content-Length: 99999999999999999999\r\n\r\n",
    "no chunk size": CHUNKED + b"zz\r\n",
    "chunk longer than it says": CHUNKED + b"1\r\nab\r\n0\r\n\r\n",
    "another protocol": b"HTTP/2 200 OK\r\n\r\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_answer_is_said(name: str) -> None:
    with pytest.raises(NotHttp):
        answered(BROKEN[name])


@pytest.mark.parametrize(
    ("begin", "for_ever"),
    [
        (OK, b"X-More: and more\r\n"),
        (b"", INTERIM),
        (CHUNKED, b"0"),
        (CHUNKED + b"0\r\n", b"T: 1\r\n"),
    ],
)
def test_an_answer_that_never_ends_is_given_up(begin: bytes, for_ever: bytes) -> None:
    with pytest.raises(NotHttp):
        answered(begin, for_ever=for_ever)


def test_a_body_without_an_end_is_read_as_far_as_was_asked() -> None:
    found = answered(OK + b"\r\n", for_ever=b"more")
    assert len(found.body) == MOST
    assert not found.reusable


def test_a_request_is_one_piece_and_nothing_in_it_ends_a_line() -> None:
    headers = {"Host": "gpu:8750", "Authorization": "Bearer gw_x"}
    assert request_bytes("POST", "/v1/ingest", headers, b"\n") == (
        b"POST /v1/ingest HTTP/1.1\r\nHost: gpu:8750\r\nAuthorization: Bearer gw_x\r\n"
        b"Content-Length: 1\r\n\r\n\n"
    )
    assert (
        request_bytes("GET", "/", {"Host": "gpu"}, None) == b"GET / HTTP/1.1\r\nHost: gpu\r\n\r\n"
    )
    for sick in ("a\r\nX: 1", "a\nb", "\u2028", "a\0b"):
        with pytest.raises(ValueError, match="line break"):
            request_bytes("GET", "/", {"Authorization": sick}, None)
        with pytest.raises(ValueError, match="line break"):
            request_bytes("GET", f"/{sick}", {}, None)
