"""The files of TLS: checked before the start, and taken over again when they change."""

from __future__ import annotations

import re
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from gpuwarden_server.config import Settings
from gpuwarden_server.core.errors import StartError

LOOK_S = 1
"""How often somebody looks whether the files have changed."""

_Stamp = tuple[int, int, int] | None
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_REVOKED = "X509 CRL"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose certificates let clients in.

    Attributes:
        authorities: PEM of certificates that sign clients' certificates, without white space.
        revocations: The same of lists of certificates that were taken back.
    """

    authorities: frozenset[str] = frozenset()
    revocations: frozenset[str] = frozenset()

    def takes_back(self, before: Trust) -> bool:
        """Whether somebody whom `before` let in may not be let in now."""
        return bool(before.authorities - self.authorities or self.revocations - before.revocations)


def make_context(settings: Settings) -> tuple[ssl.SSLContext | None, Trust]:
    """What connections are made with, None without TLS; and whom it lets in.

    Raises:
        StartError: Certificates that no client could use; names the setting and the mend.
    """
    cert, key, client_ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
    if cert is None or key is None:
        if (cert, key, client_ca) != (None, None, None):
            raise StartError(
                "GPUWARDEN_TLS_CERT and GPUWARDEN_TLS_KEY go together, and _CLIENT_CA needs both",
                "Set certificate and key, or none of them.",
            )
        return None, Trust()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:  # ssl.SSLError is an OSError
        raise StartError(
            f"certificate {cert} with key {key} cannot be used: {error}",
            "Give a PEM certificate and its own key, readable for the server.",
        ) from error
    if client_ca is None:
        return context, Trust()
    return context, _ask_clients(context, client_ca)


def check_tls(settings: Settings) -> None:
    """Refuse certificates that no client could use.

    Raises:
        StartError: Names the setting and the mend.
    """
    make_context(settings)


def _ask_clients(context: ssl.SSLContext, client_ca: Path) -> Trust:
    """Let in only clients with a certificate of these authorities that none of them took back."""
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        trust = _trust_in(client_ca.read_text(encoding="ascii", errors="replace"))
        context.load_verify_locations(client_ca)  # lists of revoked certificates too
        if not trust.authorities:
            raise ValueError("it holds no certificate")
    except (OSError, ValueError) as error:
        raise StartError(
            f"GPUWARDEN_TLS_CLIENT_CA {client_ca} cannot be used: {error}",
            "Give a PEM file of the authorities that sign clients' certificates.",
        ) from error
    if trust.revocations:
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF  # each authority needs a list then
    return trust


def _trust_in(text: str) -> Trust:
    blocks = [(kind, "".join(body.split())) for kind, body in _BLOCK.findall(text)]
    return Trust(
        frozenset(body for kind, body in blocks if kind != _REVOKED),
        frozenset(body for kind, body in blocks if kind == _REVOKED),
    )


class CertificateWatch:
    """Gives new connections what stands in the files now.

    Connections that are open go on as they are, unless an authority or a client's certificate was
    taken back: then all are made anew. Files that cannot be used, such as a certificate whose key
    is not there yet, change nothing. What failed for want of the system, such as of file
    descriptors, is tried again at each look.
    """

    def __init__(
        self,
        settings: Settings,
        trust: Trust,
        renew: Callable[[ssl.SSLContext, bool], Awaitable[None]],
    ) -> None:
        """Remember how the files look.

        Args:
            settings: Name them.
            trust: Who is let in so far.
            renew: Takes the context of new connections, and whether those that are open must end.
        """
        self._settings = settings
        self._trust = trust
        self._renew = renew
        self._seen = self._stamps()
        self._said: tuple[object, str] | None = None

    async def look(self) -> None:
        """Take over what has changed; on the event loop, once in LOOK_S."""
        stamps = self._stamps()
        if stamps == self._seen:
            return
        try:
            taken_over = await self._take_over()
        except StartError as error:
            self._say("tls_files_refused", stamps, error)
            if not _may_pass(error.__cause__):
                self._seen = stamps
            return
        except OSError as error:
            self._say("tls_listeners_not_renewed", stamps, error)
            return
        self._seen = stamps
        self._said = None
        if taken_over is not None:
            _log.info("tls_files_renewed", open_connections=taken_over)

    async def _take_over(self) -> str | None:
        """What happens to open connections, None without TLS."""
        context, trust = make_context(self._settings)
        if context is None:
            return None
        taken_back = trust.takes_back(self._trust)
        await self._renew(context, taken_back)
        self._trust = trust
        return "end" if taken_back else "go on"

    def _say(self, event: str, stamps: object, error: Exception) -> None:
        """Log what ails these files once, however often it is met."""
        said = stamps, str(error)
        if said != self._said:
            _log.error(event, reason=str(error), effect="the former ones hold")
        self._said = said

    def _stamps(self) -> tuple[_Stamp, ...]:
        settings = self._settings
        files = (settings.tls_cert, settings.tls_key, settings.tls_client_ca)
        return tuple(_stamp(file) if file is not None else None for file in files)


def _may_pass(cause: BaseException | None) -> bool:
    """Whether the same files may do later: they could not be read, and were not found wanting."""
    return isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError)


def _stamp(file: Path) -> _Stamp:
    try:
        found = file.stat()  # what a link leads to: mounted secrets are swapped so
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
