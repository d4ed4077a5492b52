"""PCI addresses, in the one spelling the project uses."""

from __future__ import annotations

import re

__all__ = ["PCI", "canonical_pci", "find_pci"]

# 0000:3b:00.0   00000000:3B:00.0   0000:3b:00 (NVRM leaves the function out)   10000:e1:00.0 (VMD)
PCI = (
    r"(?<![0-9A-Fa-f:.])[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-7])?(?![0-9A-Fa-f:])"
)
_PARTS = re.compile(r"([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-7]))?\Z")
_ANY = re.compile(PCI)
_MAX_SLOT = 0x1F  # five bits of device number: PCI Local Bus 3.0, section 3.2.2.3.2


def canonical_pci(address: str) -> str | None:
    """Spell an address dddd:bb:dd.f in lower case.

    Args:
        address: four to eight hex digits of domain, bus, device and perhaps a function.

    Returns:
        The canonical form; a missing function is .0, leading zeros of a long domain are cut to four
        digits (a domain that needs five keeps them, or two devices would share a name). None where
        this is no PCI address.
    """
    parts = _PARTS.match(address)
    if parts is None or int(parts[3], 16) > _MAX_SLOT:
        return None
    return f"{int(parts[1], 16):04x}:{parts[2].lower()}:{parts[3].lower()}.{parts[4] or '0'}"


def find_pci(text: str) -> str | None:
    """The first PCI address in a message, canonical; None where there is none."""
    for match in _ANY.finditer(text):
        found = canonical_pci(match[0])
        if found is not None:
            return found
    return None
