"""A throw-away authority that signs clients' certificates and takes them back."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_CONFIG = """
[ca]
default_ca = own
[own]
database = {folder}/index.txt
serial = {folder}/serial
new_certs_dir = {folder}
certificate = {folder}/ca.pem
private_key = {folder}/ca.key
default_md = sha256
default_days = 30
default_crl_days = 30
policy = any
[any]
commonName = supplied
[req]
distinguished_name = name
x509_extensions = signs
prompt = no
[name]
CN = {name}
[signs]
basicConstraints = critical, CA:TRUE
keyUsage = keyCertSign, cRLSign
subjectKeyIdentifier = hash
"""
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Client:
    """Files of a client.

    Attributes:
        cert: PEM certificate.
        key: Its key.
    """

    cert: Path
    key: Path


class Authority:
    """Made with the `openssl` command; skips the test where it is missing."""

    def __init__(self, folder: Path, name: str) -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not on PATH (Debian package openssl)")
        self._folder = folder / name
        self._folder.mkdir()
        self._config = self._folder / "openssl.cnf"
        self._config.write_text(_CONFIG.format(folder=self._folder, name=name))
        (self._folder / "index.txt").touch()
        (self._folder / "serial").write_text("01")
        files = ("-keyout", self._folder / "ca.key", "-out", self._folder / "ca.pem")
        self._run("req", "-x509", *_KEY, "-config", self._config, "-days", "30", *files)

    def pem(self) -> str:
        """Its certificate."""
        return (self._folder / "ca.pem").read_text()

    def client(self, name: str) -> Client:
        """Sign a new client's certificate."""
        request, cert, key = (self._folder / f"{name}.{end}" for end in ("csr", "pem", "key"))
        subject = ("-subj", f"/CN={name}", "-config", self._config)
        self._run("req", "-new", *_KEY, *subject, "-keyout", key, "-out", request)
        own = ("-config", self._config, "-batch", "-notext")
        self._run("ca", *own, "-in", request, "-out", cert)
        return Client(cert, key)

    def revoke(self, client: Client) -> None:
        """Take a certificate back; `revoked` says so from now on."""
        self._run("ca", "-config", self._config, "-revoke", client.cert)

    def revoked(self) -> str:
        """The list of what it took back."""
        file = self._folder / "crl.pem"
        self._run("ca", "-config", self._config, "-gencrl", "-out", file)
        return file.read_text()

    def _run(self, *words: str | Path) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)
