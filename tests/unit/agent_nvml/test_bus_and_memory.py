from __future__ import annotations

from pathlib import Path

import pytest

from gpuwarden_agent.sources.nvml_pci import PciBus
from gpuwarden_agent.sources.nvml_seen import MostSeen
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


@pytest.mark.parametrize("text", ["", "boot-1", "boot-1 many", "boot-1 8 9", "\xff"])
def test_a_damaged_memory_is_no_memory(tmp_path: Path, text: str) -> None:
    (tmp_path / "gpus_seen").write_text(text, "latin-1")
    assert MostSeen(tmp_path, "boot-1").most(4) == 4


def test_a_folder_that_cannot_be_written_leaves_the_memory_of_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    seen = MostSeen(tmp_path / "file" / "run", "boot-1")
    assert [seen.most(8), seen.most(7)] == [8, 8]
