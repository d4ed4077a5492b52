"""Clients whose authority or certificate is taken back are shut out without a restart."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from gpuwarden_server.config import Settings
from gpuwarden_server.core.errors import StartError
from gpuwarden_server.serving import bind_socket
from tests.builders.authority import Authority, Client
from tests.builders.server import make_settings, wait_until
from tests.integration.test_door import TLS, serving_tls

SHUT_S = 30.0


def settings_of(folder: Path, client_ca: Path) -> Settings:
    files = {"tls_cert": TLS / "server.pem", "tls_key": TLS / "server.key"}
    return make_settings(folder, **files, tls_client_ca=client_ca, shutdown_grace_s=1)


def trust_of(client: Client) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=TLS / "ca.pem")
    context.load_cert_chain(client.cert, client.key)
    return context


@contextmanager
def caller(url: str, client: Client) -> Iterator[httpx.Client]:
    """Connections that are kept, and one TLS context whose sessions could be resumed."""
    with httpx.Client(base_url=url, verify=trust_of(client)) as opened:
        yield opened


def let_in(url: str, client: Client) -> bool:
    """Whether a new connection is answered."""
    try:
        with caller(url, client) as opened:
            return opened.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False


def is_shut_out(opened: httpx.Client) -> bool:
    """Whether a caller that was let in before is let in no more, connections kept or new."""
    try:
        return opened.get("/healthz").status_code != 200
    except httpx.TransportError:
        return True


def test_an_authority_that_is_taken_out_lets_nobody_in(tmp_path: Path) -> None:
    own, other = Authority(tmp_path, "own"), Authority(tmp_path, "other")
    stays, goes = own.client("stays"), other.client("goes")
    trusted = tmp_path / "clients.pem"
    trusted.write_text(own.pem())
    with (
        serving_tls(settings_of(tmp_path, trusted)) as url,
        caller(url, stays) as kept,
        caller(url, goes) as left,
    ):
        assert kept.get("/healthz").status_code == 200
        assert not let_in(url, goes)
        trusted.write_text(own.pem() + other.pem())
        wait_until(lambda: not is_shut_out(left), "the other authority is trusted", SHUT_S)
        trusted.write_text(own.pem())
        wait_until(lambda: is_shut_out(left), "who was let in is shut out", SHUT_S)
        assert not let_in(url, goes)
        assert let_in(url, stays)
        wait_until(lambda: not is_shut_out(kept), "who stays connects anew", SHUT_S)


def test_a_certificate_that_was_revoked_lets_nobody_in(tmp_path: Path) -> None:
    own = Authority(tmp_path, "own")
    stays, goes = own.client("stays"), own.client("goes")
    trusted = tmp_path / "clients.pem"
    trusted.write_text(own.pem())
    with serving_tls(settings_of(tmp_path, trusted)) as url, caller(url, goes) as left:
        assert left.get("/healthz").status_code == 200
        own.revoke(goes)
        trusted.write_text(own.pem() + own.revoked())
        wait_until(lambda: is_shut_out(left), "the revoked one is shut out", SHUT_S)
        assert not let_in(url, goes)
        assert let_in(url, stays)


def test_a_stream_of_a_client_that_is_let_in_no_more_ends(tmp_path: Path) -> None:
    own, other = Authority(tmp_path, "own"), Authority(tmp_path, "other")
    goes = other.client("goes")
    trusted = tmp_path / "clients.pem"
    trusted.write_text(own.pem() + other.pem())
    settings = settings_of(tmp_path, trusted)
    assert settings.admin_key is not None
    admin = {"Authorization": f"Bearer {settings.admin_key.get_secret_value()}"}
    with serving_tls(settings) as url, caller(url, goes) as left:
        with left.stream("GET", "/v1/exclusions/stream", headers=admin, timeout=SHUT_S) as stream:
            lines = stream.iter_lines()
            assert next(lines)
            trusted.write_text(own.pem())
            with pytest.raises(httpx.TransportError):
                for _ in lines:
                    pass
        assert not let_in(url, goes)


def test_a_list_of_revoked_certificates_alone_is_no_authority(tmp_path: Path) -> None:
    trusted = tmp_path / "clients.pem"
    trusted.write_text(Authority(tmp_path, "own").revoked())
    with pytest.raises(StartError, match="holds no certificate"):
        bind_socket(settings_of(tmp_path, trusted))
