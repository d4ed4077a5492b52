"""Starts real programs for end-to-end tests and ends them, whatever happened."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.builders.nvml import NodeScenario, ScenarioFile, pci_bus, stub_environment

END_S = 15.0


@contextmanager
def started(
    command: Sequence[object],
    log: Path,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A program that runs for the length of the block; its output goes to `log`."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            env=os.environ | (environment or {}),
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def agent_program() -> Path:
    """The agent's command as it is installed."""
    return Path(sys.executable).with_name("gpuwarden-agent")


def agent_environment(
    folder: Path, url: str, key: str, node_id: str, node: NodeScenario, **settings: object
) -> dict[str, str]:
    """Variables of an agent whose GPUs, PCI bus, kernel log and files all lie in `folder`.

    The kernel log is `folder/kern.log`; `settings` are further fields of the agent's settings.
    """
    folder.mkdir(exist_ok=True)
    scenario = ScenarioFile(folder / "scenario", node)
    scenario.write()
    kernel_log = folder / "kern.log"
    kernel_log.touch()
    fields = {
        "server_url": url,
        "key": key,
        "node_id": node_id,
        "sys_root": pci_bus(folder / "sys", [gpu.pci for gpu in node.gpus]),
        "kmsg_path": kernel_log,
        "spool_folder": folder / "spool",
        "verdict_file": folder / "verdict.json",
        "interval_s": 1,
        **settings,
    }
    variables = {f"GPUWARDEN_AGENT_{name.upper()}": str(value) for name, value in fields.items()}
    return stub_environment(scenario.path) | variables
