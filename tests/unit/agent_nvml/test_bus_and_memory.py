from __future__ import annotations

from pathlib import Path

import pytest

from gpuwarden_agent.sources.nvml_ledger import KnownGpu, Ledger, LedgerFile
from gpuwarden_agent.sources.nvml_pci import PciBus
from tests.builders.nvml import add_pci_device, pci_bus

SLOTS = ("0000:1b:00.0", "0000:43:00.0")


def test_only_nvidia_display_controllers_count(tmp_path: Path) -> None:
    root = pci_bus(tmp_path, SLOTS)
    add_pci_device(root, "0000:1b:00.1", "0x10de", "0x040300", "snd_hda_intel")  # its audio
    add_pci_device(root, "0000:07:00.0", "0x10de", "0x068000", "nvidia-nvswitch")
    add_pci_device(root, "0000:03:00.0", "0x1a03", "0x030000", "ast")  # the BMC's screen
    add_pci_device(root, "0000:65:00.0", "0x10de", "0x030000", "nvidia")
    assert PciBus(root).count_gpus() == 3.0


def test_a_gpu_that_leaves_the_bus_and_one_that_joins(tmp_path: Path) -> None:
    bus = PciBus(pci_bus(tmp_path, SLOTS))
    assert bus.count_gpus() == 2.0
    (tmp_path / "bus/pci/devices" / SLOTS[0]).unlink()
    assert bus.count_gpus() == 1.0
    add_pci_device(tmp_path, "0000:44:00.0", "0x10de", "0x030200", "nvidia")
    assert bus.count_gpus() == 2.0


def test_virtual_functions_are_no_gpus_of_their_own(tmp_path: Path) -> None:
    root = pci_bus(tmp_path, SLOTS)
    add_pci_device(root, "0000:1b:00.4", "0x10de", "0x030200", "vfio-pci")
    virtual = (root / "bus/pci/devices/0000:1b:00.4").resolve()
    (virtual / "physfn").symlink_to(root / "bus/pci/devices" / SLOTS[0])
    bus = PciBus(root)
    assert bus.count_gpus() == 2.0
    assert bus.elsewhere == {}


LEDGER = Ledger(
    boot_id="boot-1",
    most=8,
    gpus=(KnownGpu(uuid="GPU-0", pci_bus_id=SLOTS[0], trouble=("gpu_lost",), missed_probes=2),),
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    LedgerFile(tmp_path / "state").write(LEDGER)
    assert LedgerFile(tmp_path / "state").read() == LEDGER
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["gpus.json"]


@pytest.mark.parametrize("text", ["", "8", "{", '{"most": "many"}', '{"gpus": [1]}', "\xff"])
def test_a_damaged_ledger_is_no_ledger(tmp_path: Path, text: str) -> None:
    (tmp_path / "gpus.json").write_text(text, "latin-1")
    assert LedgerFile(tmp_path).read() == Ledger()


def test_a_look_that_must_leave_no_trace_writes_nothing(tmp_path: Path) -> None:
    LedgerFile(tmp_path / "state", writable=False).write(LEDGER)
    assert not (tmp_path / "state").exists()


def test_a_folder_that_cannot_be_written_costs_the_memory_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    file = LedgerFile(tmp_path / "file" / "state")
    file.write(LEDGER)
    assert file.read() == Ledger()
