from __future__ import annotations

import asyncio
import errno
import os
import ssl
from pathlib import Path

from structlog.testing import capture_logs

from gpuwarden_server.certificates import CertificateWatch, make_context
from tests.builders.server import make_settings

TLS = Path(__file__).parents[2] / "fixtures" / "agent" / "tls"


class Listeners:
    """Take another context, or none where the system has no more to give."""

    def __init__(self) -> None:
        self.full = False
        self.tried = 0
        self.ended: list[bool] = []

    async def renew(self, context: ssl.SSLContext, end_former: bool) -> None:
        self.tried += 1
        if self.full:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.ended.append(end_former)


def test_what_the_system_refused_is_tried_at_each_look_and_told_once(tmp_path: Path) -> None:
    authorities = tmp_path / "clients.pem"
    authorities.write_text((TLS / "ca.pem").read_text() + (TLS / "server.pem").read_text())
    files = {"tls_cert": TLS / "server.pem", "tls_key": TLS / "server.key"}
    settings = make_settings(tmp_path, **files, tls_client_ca=authorities)
    listeners = Listeners()
    watch = CertificateWatch(settings, make_context(settings)[1], listeners.renew)

    def looks(times: int) -> list[str]:
        with capture_logs() as told:
            for _ in range(times):
                asyncio.run(watch.look())
        return [one["event"] for one in told]

    assert looks(2) == []
    authorities.write_text((TLS / "ca.pem").read_text())
    listeners.full = True
    assert looks(3) == ["tls_listeners_not_renewed"]
    assert listeners.tried == 3
    listeners.full = False
    assert looks(3) == ["tls_files_renewed"]
    assert listeners.ended == [True], "who was let in before the trouble is shut out after it"
    authorities.unlink()
    assert looks(3) == ["tls_files_refused"]
    authorities.write_text("no certificate")
    assert looks(3) == ["tls_files_refused"]
    authorities.write_text((TLS / "ca.pem").read_text())
    assert looks(3) == ["tls_files_renewed"]
    assert listeners.ended == [True, False]
