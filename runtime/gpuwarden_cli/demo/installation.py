"""A running gpuwarden: server, keys, played fleet and the agent of this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from gpuwarden_cli.demo.fleet import PlayedFleet, build_fleet, node_names
from gpuwarden_cli.demo.folder import DemoFolder, own_node_name
from gpuwarden_cli.demo.pace import Pace
from gpuwarden_cli.demo.processes import Process
from gpuwarden_cli.exits import CommandError, ExitCode
from gpuwarden_runtime.client import Client
from gpuwarden_runtime.config import RuntimeSettings
from gpuwarden_runtime.errors import GpuwardenError
from gpuwarden_runtime.exchange import ONCE
from gpuwarden_runtime.records import Role

_START_WAIT_S = 40.0
_POLL_S = 0.1


@dataclass(slots=True)
class Installation:
    """Everything the demo started; `end` ends it again.

    Attributes:
        folder: Where it keeps its files.
        pace: Its times.
        port: Port of the server.
        node: Name of this machine.
        operator_key: Key of the terminal view and of the page.
    """

    folder: DemoFolder
    pace: Pace
    port: int
    node: str = field(default_factory=own_node_name)
    operator_key: str = ""
    _server: Process | None = None
    _agent: Process | None = None
    _fleet: PlayedFleet | None = None

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def page(self) -> str:
        """Address of the page, key included: the part after # never leaves the browser."""
        return f"{self.url}/#key={self.operator_key}"

    @property
    def server(self) -> Process:
        """The server's process."""
        assert self._server is not None
        return self._server

    @property
    def fleet(self) -> PlayedFleet:
        """The played fleet."""
        assert self._fleet is not None
        return self._fleet

    def client(self) -> Client:
        """A connection with the operator's key."""
        return Client(RuntimeSettings(url=self.url, key=self.operator_key))

    def start(self) -> None:
        """Start server, fleet and agent, in this order.

        Raises:
            CommandError: The server does not come up; with its last words.
        """
        self.start_server()
        with Client(RuntimeSettings(url=self.url, key=self.folder.admin_key)) as admin:
            self.operator_key = admin.create_key(Role.OPERATOR, None, "demo").key or ""
            keys = {
                node: admin.create_key(Role.AGENT, node, "").key or ""
                for node in (*node_names(), self.node)
            }
        self._start_agent(keys[self.node])
        self._fleet = build_fleet(self.url, keys, self.pace)
        self._fleet.player.start()

    def start_server(self) -> None:
        """Start the server, or start it again on the same databases."""
        variables = {
            "GPUWARDEN_ADMIN_KEY": self.folder.admin_key,
            "GPUWARDEN_SWEEP_INTERVAL_S": str(self.pace.sweep_s),
            "GPUWARDEN_CHECKPOINT_PASS_S": "5",
            "GPUWARDEN_SILENT_AFTER_S": str(self.pace.silent_s),
        }
        log = self.folder.log("server")
        words = [
            *("server", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--policy", str(self.folder.policy), "--state-folder", str(self.folder.state)),
        ]
        self._server = Process("gpuwarden_cli.main", words, variables, log)
        self._wait_ready()

    def end(self) -> None:
        """End everything that was started, the fleet first."""
        if self._fleet is not None:
            self._fleet.player.stop(0.0)
            self._fleet = None
        for process in (self._agent, self._server):
            if process is not None:
                process.end()
        self._agent = self._server = None

    def require_alive(self) -> None:
        """Raise where server or agent ended by themselves.

        Raises:
            CommandError: With their last words.
        """
        for process in (self._server, self._agent):
            if process is not None:
                process.require_alive()

    def _start_agent(self, key: str) -> None:
        folder = self.folder.agent
        variables = {
            "GPUWARDEN_AGENT_SERVER_URL": self.url,
            "GPUWARDEN_AGENT_KEY": key,
            "GPUWARDEN_AGENT_NODE_ID": self.node,
            "GPUWARDEN_AGENT_INTERVAL_S": str(self.pace.interval_s),
            "GPUWARDEN_AGENT_SPOOL_FOLDER": str(folder / "spool"),
            "GPUWARDEN_AGENT_VERDICT_FILE": str(folder / "verdict.json"),
        }
        self._agent = Process("gpuwarden_agent.cli", ["run"], variables, self.folder.log("agent"))

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + _START_WAIT_S
        with Client(RuntimeSettings(url=self.url), retry=ONCE) as client:
            while True:
                self.server.require_alive()
                try:
                    client.check_ready()
                    return
                except GpuwardenError as error:
                    trouble = str(error)
                if time.monotonic() > deadline:
                    raise CommandError(
                        ExitCode.UNREACHABLE,
                        f"the server is not ready after {_START_WAIT_S:g} s: {trouble}",
                        f"its output is in {self.folder.log('server')}",
                    )
                time.sleep(_POLL_S)
