"""Certificates for https, from files that may change while we run."""

from __future__ import annotations

import ssl
from pathlib import Path

from gpuwarden_agent.logs import get_logger

_log = get_logger("transport")

Stamp = tuple[tuple[int, int, int] | None, ...]


class TlsUnusable(Exception):
    """The TLS settings cannot be used; the message names the file and the mend."""


def tls_context(
    ca_file: Path | None, client_cert_file: Path | None, client_key_file: Path | None
) -> ssl.SSLContext:
    """Certificates are always checked; own authorities replace the host's.

    Raises:
        TlsUnusable: A file cannot be read or is not PEM.
    """
    try:
        context = ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
    except (OSError, ssl.SSLError) as error:
        raise TlsUnusable(f"CA file {ca_file}: {error}. Give a readable PEM file.") from error
    if client_cert_file and client_key_file:
        try:
            context.load_cert_chain(client_cert_file, client_key_file)
        except (OSError, ssl.SSLError) as error:
            raise TlsUnusable(
                f"client certificate {client_cert_file} with {client_key_file}: {error}. "
                "Give a PEM certificate and its key."
            ) from error
    return context


class TlsSource:
    """Gives the present context; makes it anew whenever a file changed. Not thread-safe."""

    def __init__(
        self,
        ca_file: Path | None = None,
        client_cert_file: Path | None = None,
        client_key_file: Path | None = None,
    ) -> None:
        """Read the files.

        Raises:
            TlsUnusable: A file cannot be read or is not PEM.
        """
        self._files = (ca_file, client_cert_file, client_key_file)
        self._stamp = self.stamp()
        self._context = tls_context(*self._files)

    @property
    def context(self) -> ssl.SSLContext:
        """As of the last `refresh`."""
        return self._context

    def refresh(self) -> bool:
        """True where files changed and the context is a new one.

        Files that cannot be used, as those that are written one after the other for a moment, leave
        the former context in place until they change again.
        """
        stamp = self.stamp()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._context = tls_context(*self._files)
        except TlsUnusable as unusable:
            _log.warning("certificates_not_usable", why=str(unusable), then="keeps the former ones")
            return False
        _log.info("certificates_read_again")
        return True

    def stamp(self) -> Stamp:
        """Changes whenever a file does."""
        return tuple(_stamp(path) for path in self._files)


def _stamp(path: Path | None) -> tuple[int, int, int] | None:
    if path is None:
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
