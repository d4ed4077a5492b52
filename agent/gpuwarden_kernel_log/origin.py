"""Whether a message is the kernel's own, as far as its shape tells.

Users put words of theirs into kernel messages (mount options, paths, names), and those words may
read like a fault: overlayfs: unrecognized mount option "NVRM: Xid (PCI:0000:3b:00): 79, …". What a
driver says stands at the start of its message, behind nothing but the driver's own name.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from gpuwarden_kernel_log.finding import Finding
from gpuwarden_kernel_log.vocabulary import Family

__all__ = ["begins_as_kernel"]

_NVIDIA = re.compile(r"NVRM:? |nvidia[-_: ]|\[?drm[:\] ]|\??\s{0,4}_?kgsp")
# pcieport 0000:00:03.0: AER: …      {1}[Hardware Error]: …      AER: aer_status: 0x00001000, …
_AER = re.compile(
    r"(?:[\w-]{1,32} )?[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]:? "
    r"|\{\d{1,9}\}\[Hardware Error\]|AER: |DPC: |TLP Header: |aer_status: "
    r"|device \[[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}\] |\[ ?\d{1,2} ?\] "
)
_BEGINNINGS = MappingProxyType(
    {
        Family.XID: re.compile(r"NVRM:? "),
        Family.SXID: re.compile(r"nvidia-nvswitch\d{1,4}: "),
        Family.GPU_LOST: _NVIDIA,
        Family.RM_INIT_FAILED: _NVIDIA,
        Family.NVLINK: _NVIDIA,
        Family.OTHER_NVRM: _NVIDIA,
        Family.PEERMEM: _NVIDIA,
        Family.AER_CORRECTABLE: _AER,
        Family.AER_UNCORRECTABLE: _AER,
    }
)


def begins_as_kernel(text: str, finding: Finding) -> bool:
    """Whether what was recognised stands where the kernel itself puts it.

    Args:
        text: the message without its wrapper.
        finding: what a rule recognised in it.
    """
    beginning = _BEGINNINGS.get(finding.family)
    return finding.start == 0 and (beginning is None or beginning.match(text) is not None)
