"""The demo's folder: databases, policy, keys, logs; made anew for each run."""

from __future__ import annotations

import base64
import os
import secrets
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from gpuwarden_cli.demo.pace import Pace
from gpuwarden_cli.exits import CommandError, ExitCode

DEFAULT_FOLDER = Path("gpuwarden-demo")
DEFAULT_PORT = 8750
_MARK = ".gpuwarden-demo"

_POLICY = """\
# Policy of the demo: the played nodes may be excluded, this machine is only observed.
[defaults]
mode = "observe"
settle_s = {settle_s:g}
score_settle_s = {settle_s:g}
dwell_s = {dwell_s:g}

[[pools]]
name = "demo"
nodes = ["gpu-*"]
mode = "act"
cap = {{ max_nodes = 6, max_percent = 40 }}
standby = {{ promote = true }}
"""


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """Places in it.

    Attributes:
        path: The folder.
        admin_key: Key that the server takes over at its first start.
    """

    path: Path
    admin_key: str

    @property
    def policy(self) -> Path:
        """The policy file."""
        return self.path / "policy.toml"

    @property
    def state(self) -> Path:
        """The server's databases."""
        return self.path / "state"

    @property
    def agent(self) -> Path:
        """What the agent of this machine keeps."""
        return self.path / "agent"

    def log(self, name: str) -> Path:
        """Output of one process."""
        return self.path / f"{name}.log"


def make_folder(path: Path, pace: Pace) -> DemoFolder:
    """An empty demo folder with its policy; what an earlier demo left in it is removed.

    Raises:
        CommandError: It cannot be made, or holds something that no demo made.
    """
    try:
        if path.exists() and any(path.iterdir()):
            if not (path / _MARK).exists():
                raise CommandError(
                    ExitCode.USAGE,
                    f"{path} holds files of something else than a demo",
                    "give an empty or new folder with --folder",
                )
            shutil.rmtree(path)
        folder = DemoFolder(path.resolve(), "gw_" + _word())
        folder.agent.mkdir(parents=True)
        path.chmod(0o700)  # its keys are worth nothing elsewhere, but they are keys
        (path / _MARK).touch()
        text = _POLICY.format(settle_s=pace.settle_s, dwell_s=pace.dwell_s)
        folder.policy.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(
            ExitCode.LOCAL,
            f"cannot make {path}: {error.strerror or error}",
            "give a writable folder with --folder",
        ) from error
    return folder


def take_port(wanted: int | None) -> int:
    """A free port of loopback: the one wanted, else the usual one, else any.

    Raises:
        CommandError: The one wanted is in use.
    """
    for port in (DEFAULT_PORT, 0) if wanted is None else (wanted,):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise CommandError(
        ExitCode.LOCAL, f"port {wanted} is in use", "give another one, or leave --port out"
    )


def own_node_name() -> str:
    """Name of this machine in the demo; never one that the policy's pool takes."""
    name = socket.gethostname() or "this-machine"
    return f"host-{name}" if name.startswith("gpu-") else name


def kernel_log_access(path: Path = Path("/dev/kmsg")) -> str:
    """Why the kernel log cannot be read, "" where it can."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        return f"{path}: {error.strerror}"
    return ""


def _word() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
