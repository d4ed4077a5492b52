"""Small sysfs trees in the kernel's formats."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

AER_CORRECTABLE = ("RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr")
AER_OTHERS = ("Undefined", "DLP", "SDES", "TLP", "CmpltTO", "RxOF", "MalfTLP", "UnsupReq")


class Sysfs:
    """A sysfs in a folder; `root` is what collectors take."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, files: Mapping[str, object]) -> None:
        """Files by path below the root."""
        for path, text in files.items():
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(f"{text}\n" if text != "" else "")

    def function(self, path: str, **files: object) -> str:
        """A PCI function at "pci0000:16/0000:16:01.0/0000:17:00.0"; returns its address."""
        address = path.rpartition("/")[2]
        self.write({f"devices/{path}/{name}": text for name, text in files.items()})
        (self.root / "devices" / path).mkdir(parents=True, exist_ok=True)
        self.link(f"bus/pci/devices/{address}", f"devices/{path}")
        return address

    def link(self, at: str, to: str) -> None:
        """A symbolic link, as sysfs has them from classes and buses to devices."""
        place = self.root / at
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(self.root / to)

    def errors(self, function: str, correctable: int, nonfatal: int, fatal: int) -> None:
        """Error counters of a PCI function given by its path below devices/."""
        kinds = (
            ("correctable", "COR", correctable, AER_CORRECTABLE),
            ("nonfatal", "NONFATAL", nonfatal, AER_OTHERS),
            ("fatal", "FATAL", fatal, AER_OTHERS),
        )
        for name, total, count, words in kinds:
            lines = [f"{word} {count if n == 0 else 0}" for n, word in enumerate(words)]
            lines.append(f"TOTAL_ERR_{total} {count}")
            self.write({f"devices/{function}/aer_dev_{name}": "\n".join(lines)})

    def pcie(self, function: str, width: object, speed: str, width_max: object, most: str) -> None:
        """The PCIe link of a function."""
        self.write(
            {
                f"devices/{function}/current_link_width": width,
                f"devices/{function}/current_link_speed": speed,
                f"devices/{function}/max_link_width": width_max,
                f"devices/{function}/max_link_speed": most,
            }
        )

    def port(
        self,
        device: str,
        number: int = 1,
        *,
        counters: Mapping[str, object] | None = None,
        hardware: Mapping[str, object] | None = None,
        function: str = "",
        state: str = "4: ACTIVE",
        physical: str = "5: LinkUp",
        rate: str = "400 Gb/sec (4X NDR)",
    ) -> None:
        """An InfiniBand or RoCE port, its device on a PCI function where one is given."""
        folder = f"class/infiniband/{device}/ports/{number}"
        files = {"state": state, "phys_state": physical, "rate": rate}
        files |= {f"counters/{name}": str(text) for name, text in (counters or {}).items()}
        files |= {f"hw_counters/{name}": str(text) for name, text in (hardware or {}).items()}
        self.write({f"{folder}/{name}": text for name, text in files.items()})
        link = f"class/infiniband/{device}/device"
        if function and not (self.root / link).exists():
            self.link(link, f"devices/{function}")

    def interface(self, name: str, function: str, **files: object) -> None:
        """A net interface that is up, on a PCI function."""
        given = {"operstate": "up", "flags": "0x1003", "speed": "100000", "carrier_changes": "2"}
        self.write({f"class/net/{name}/{file}": text for file, text in (given | files).items()})
        self.link(f"class/net/{name}/device", f"devices/{function}")
