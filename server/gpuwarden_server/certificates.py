"""The files of TLS: checked before the start, and taken over again when they change."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import structlog

from gpuwarden_server.config import Settings
from gpuwarden_server.core.errors import StartError

LOOK_S = 1
"""How often somebody looks whether the files have changed."""

_Stamp = tuple[int, int, int] | None
_log = structlog.get_logger(__name__)


def check_tls(settings: Settings) -> None:
    """Refuse certificates that no client could use.

    Raises:
        StartError: Names the setting and the mend.
    """
    cert, key, client_ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
    if cert is None or key is None:
        if (cert, key, client_ca) != (None, None, None):
            raise StartError(
                "GPUWARDEN_TLS_CERT and GPUWARDEN_TLS_KEY go together, and _CLIENT_CA needs both",
                "Set certificate and key, or none of them.",
            )
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:  # ssl.SSLError is an OSError
        raise StartError(
            f"certificate {cert} with key {key} cannot be used: {error}",
            "Give a PEM certificate and its own key, readable for the server.",
        ) from error
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except OSError as error:
            raise StartError(
                f"GPUWARDEN_TLS_CLIENT_CA {client_ca} cannot be used: {error}",
                "Give a PEM file of the authorities that sign clients' certificates.",
            ) from error


class CertificateWatch:
    """Gives new connections what stands in the files now; those that are open go on as they are.

    Files that cannot be used, such as a certificate whose key is not there yet, change nothing.
    """

    def __init__(self, settings: Settings, context: Callable[[], ssl.SSLContext | None]) -> None:
        """Remember how the files look.

        Args:
            settings: Name them.
            context: What connections are made with; None before the server has started.
        """
        self._settings = settings
        self._context = context
        self._seen = self._stamps()

    async def look(self) -> None:
        """Take over what has changed; on the event loop, once in LOOK_S."""
        stamps, context = self._stamps(), self._context()
        if stamps == self._seen or context is None:
            return
        self._seen = stamps
        try:
            check_tls(self._settings)
        except StartError as error:
            _log.error("tls_files_refused", reason=str(error), effect="the former ones hold")
            return
        cert, client_ca = self._settings.tls_cert, self._settings.tls_client_ca
        if cert is not None:
            context.load_cert_chain(cert, self._settings.tls_key)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
        _log.info("tls_files_renewed")

    def _stamps(self) -> tuple[_Stamp, ...]:
        settings = self._settings
        files = (settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        return tuple(_stamp(file) if file is not None else None for file in files)


def _stamp(file: Path) -> _Stamp:
    try:
        found = file.stat()  # what a link leads to: mounted secrets are swapped so
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
