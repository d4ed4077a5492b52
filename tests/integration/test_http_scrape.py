"""Fetching metrics text over real HTTP, from endpoints that behave and that do not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gpuwarden_agent.sources.http_scrape import Endpoint, ScrapeFailed, Scraper
from tests.fakes.exporter_server import FakeExporter, free_url, serving

PATIENCE_S = 30.0
"""Longer than any of these exchanges takes on the slowest machine."""
IMPATIENCE_S = 0.3


def scraper(url: str, deadline_s: float = PATIENCE_S, body_cap: int = 10**6) -> Scraper:
    return Scraper(Endpoint(url, deadline_s, body_cap=body_cap))


def refusal(one: Scraper) -> ScrapeFailed:
    with pytest.raises(ScrapeFailed) as caught:
        one.fetch()
    one.close()
    assert caught.value.mend
    return caught.value


def test_many_looks_share_one_connection() -> None:
    with serving(FakeExporter("up 1\n")) as exporter:
        one = scraper(exporter.url)
        assert [one.fetch() for _ in range(5)] == [b"up 1\n"] * 5
        one.close()
        assert (exporter.requests, exporter.connections) == (5, 1)


def test_a_connection_closed_between_two_looks_is_made_anew() -> None:
    with serving(FakeExporter("up 1\n", hangs_up=True)) as exporter:
        one = scraper(exporter.url)
        assert [one.fetch() for _ in range(3)] == [b"up 1\n"] * 3
        one.close()
        assert exporter.connections == 3


def test_an_answer_in_chunks_is_read_whole() -> None:
    with serving(FakeExporter("up 1\n" * 1000, chunked=True)) as exporter:
        one = scraper(exporter.url)
        assert one.fetch() == one.fetch() == b"up 1\n" * 1000
        one.close()
        assert exporter.connections == 1


def test_the_token_of_now_goes_along() -> None:
    tokens = iter(["old", "new"])
    with serving(FakeExporter("up 1\n", token="new")) as exporter:
        one = Scraper(Endpoint(exporter.url, PATIENCE_S, token=lambda: next(tokens)))
        assert refusal(one).reason == "unauthorised"
        assert one.fetch() == b"up 1\n"
        one.close()


@pytest.mark.parametrize(
    ("exporter", "reason", "told"),
    [
        (FakeExporter(code=401), "unauthorised", "token"),
        (FakeExporter(code=403), "unauthorised", "token"),
        (FakeExporter(code=404), "no_such_page", "path"),
        (FakeExporter(code=500), "http_500", "log"),
        (FakeExporter(code=503), "http_503", "log"),
        (FakeExporter(code=302, headers={"Location": "/login"}), "redirected", "/login"),
        (
            FakeExporter("<html>", headers={"Content-Type": "text/html"}),
            "wrong_content_type",
            "text/html",
        ),
        (
            FakeExporter("x", headers={"Content-Encoding": "gzip"}),
            "unasked_encoding",
            "gzip",
        ),
        (FakeExporter("up 1\n", claimed_length=500), "answer_cut_short", "ended"),
        (FakeExporter("up 1\n" * 300), "answer_too_big", "1000 bytes"),
        (FakeExporter("up 1\n" * 300, chunked=True), "answer_too_big", "1000 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_metrics_text_is_refused_with_the_mend(
    exporter: FakeExporter, reason: str, told: str
) -> None:
    with serving(exporter):
        failed = refusal(scraper(exporter.url, body_cap=1000))
    assert (failed.reason, told in failed.mend) == (reason, True)


def test_a_redirect_is_not_followed() -> None:
    with serving(FakeExporter("up 1\n")) as target:
        headers = {"Location": target.url}
        with serving(FakeExporter(code=301, headers=headers)) as exporter:
            refusal(scraper(exporter.url))
        assert target.requests == 0


@pytest.mark.parametrize(
    "exporter",
    [
        FakeExporter("x" * 100_000, drip_s=0.02),  # each byte comes long before a socket's timeout
        FakeExporter(silent=True),
    ],
    ids=["drips", "says nothing"],
)
def test_the_deadline_is_of_the_whole_exchange(exporter: FakeExporter) -> None:
    with serving(exporter):
        assert refusal(scraper(exporter.url, IMPATIENCE_S)).reason == "exporter_too_slow"


def test_after_a_failure_the_next_look_is_on_a_fresh_connection() -> None:
    with serving(FakeExporter("up 1\n", claimed_length=500)) as exporter:
        one = scraper(exporter.url)
        with pytest.raises(ScrapeFailed):
            one.fetch()
        exporter.claimed_length = None
        assert one.fetch() == one.fetch() == b"up 1\n"
        one.close()
        assert exporter.connections == 2


def test_nobody_there() -> None:
    failed = refusal(scraper(free_url()))
    assert (failed.reason, "start the exporter" in failed.mend) == ("connection_refused", True)


@contextmanager
def speaking(words: bytes) -> Iterator[str]:
    """A server that speaks something else."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(words)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
        thread.join(10)


def test_a_peer_that_does_not_speak_http() -> None:
    with speaking(b"SSH-2.0-OpenSSH_9.2p1\r\n") as url:
        assert refusal(scraper(url)).reason == "not_http"
