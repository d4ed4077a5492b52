"""Lines of the NVIDIA drivers: XID, SXid, a GPU gone or not starting, NVLink, peermem, the rest."""

from __future__ import annotations

import re

from gpuwarden_kernel_log.catalog import acts_alone, sxid_entry, xid_entry
from gpuwarden_kernel_log.event import LineContext
from gpuwarden_kernel_log.finding import TROUBLE, Finding, RuleSet, plain_name, to_pid
from gpuwarden_kernel_log.nvlink5 import (
    NVLINK5_CODES,
    NvLink5Row,
    nvlink5_decode,
    parse_nvlink5_words,
)
from gpuwarden_kernel_log.pci import canonical_pci, find_pci
from gpuwarden_kernel_log.recovery import recovery_severity, stated_recovery_action
from gpuwarden_kernel_log.vocabulary import Family, FaultClass, Severity

__all__ = ["GPU_RULES"]

_RECOVERY_XID = 154

# NVRM: Xid (PCI:0000:3b:00): 79, pid=812, name=trainer, GPU has fallen off the bus.
# NVRM: Xid (0000:3b:00): 13, ...    NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 31, ...
_XID = re.compile(
    r"(?P<nvrm>NVRM:? {0,4})?\bXid {0,2}\((?:PCI:)?"
    r"(?P<pci>[0-9A-Fa-f][0-9A-Fa-fx:.]{3,19})[^()]{0,48}\)"
    r" ?: ?(?P<code>\d{1,4})(?!\d)(?P<rest>.*)"
)
# pid=812, name=KMS thread, ...   pid='<unknown>', name=<unknown>, ...
_PID = re.compile(r"\bpid=['\"]?(\d{1,10})\b")
_NAME = re.compile(r"\bname=('[^']{0,64}'|[^,]{1,64})")
# nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore
_SXID = re.compile(
    r"(?:(?P<switch>nvidia-nvswitch\d{1,4}): {0,2})?\bSXid {0,2}\((?:PCI:)?"
    r"(?P<pci>[0-9A-Fa-f:.]{7,20})\)"
    r" ?: ?(?P<code>\d{1,6})(?!\d),? {0,4}(?P<rest>.*)"
)
_SXID_FATAL = re.compile(r"fatal\b", re.IGNORECASE)
_SXID_NONFATAL = re.compile(r"non-?fatal\b", re.IGNORECASE)
# Severity 1 Engine instance 37 Sub-engine instance 00    Data {0x00000010, ...}
_SXID_DETAIL = re.compile(r"(?:Severity (?P<level>\d)|Data \{)")
# [ERROR] [tid 12] detected NVSwitch non-fatal error 12028 on fid 0 on NVSwitch pci bus id
# 00000000:86:00.0
_FABRIC_MANAGER = re.compile(
    r"detected NVSwitch (?P<word>non-fatal"
    r"|fatal) error (?P<code>\d{1,6})\b.{0,80}?pci bus id (?P<pci>[0-9A-Fa-f:.]{7,20})",
    re.IGNORECASE,
)
# NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.
# NVRM: fallen off the bus and is not responding
_LOST = re.compile(
    r"NVRM:? .{0,200}?(?:fallen off the bus|\bGPU (?:is |has been |was )?lost\b|GPU_IS_LOST)",
    re.IGNORECASE,
)
# Unable to determine the device handle for GPU 0000:0A:00.0: GPU is lost.  Reboot the system ...
_SMI_LOST = re.compile(r"Unable to determine the device handle for (?:GPU|gpu) ?\d?")
# nvidia 0000:3b:00.0: Unable to change power state from D3cold to D0, device inaccessible
_INACCESSIBLE = re.compile(
    r"nvidia [0-9A-Fa-f:.]{7,20}: .{0,80}(?:device inaccessible|config space inaccessible"
    r"|Refused to change power)"
)
# NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x40:2168)
# NVRM: The NVIDIA probe routine failed for 1 device(s).
_INIT_FAILED = re.compile(
    r"NVRM:? .{0,120}?(?:RmInitAdapter|rm_init_adapter|NVIDIA probe routine failed"
    r"|Cannot initialize GSP"
    r"|None of the NVIDIA (?:devices|graphics adapters) were init)"
)
# nvidia: probe of 0000:3b:00.0 failed with error -1
# nvidia 0000:3b:00.0: probe with driver nvidia failed
_PROBE_FAILED = re.compile(
    r"nvidia(?:: probe of [0-9A-Fa-f:.]{7,20}"
    r"| [0-9A-Fa-f:.]{7,20}: probe with driver nvidia) failed with error"
)
# NVRM: loading NVIDIA UNIX ...   NVRM: GPU at PCI:0000:3b:00: GPU-<uuid>
# NVRM: GPU Board Serial Number: 1
_BANNER = re.compile(
    r"NVRM:? {1,4}(?:loading NVIDIA|GPU(?: at)? (?:PCI:)?[0-9A-Fa-f:.]{7,20}: (?:GPU-[0-9A-Fa-f]"
    r"|GPU serial|GPU is on Board)"
    r"|GPU Board Serial|.{0,60}(?:Persistence mode is deprecated|cleanup successful))"
)
# NVRM:     -2    103  GSP_RM_ALLOC   0x0000000000000080 ...
# NVRM: GPU4 RPC history (CPU -> GSP):
# NVRM: kflcnCoreDumpNondestructive_IMPL: TRACE: 08 = 0x1       NVRM:     RISC-V CSR State:
_DUMP = re.compile(
    r"NVRM:? (?: {1,8}|.{0,60}(?:RPC (?:event )?history|RPC buffer contains|TRACE:|CoreDump"
    r"|crash dump|bug-report"
    r"|\*{8,}))"
)
_NVRM = re.compile(r"NVRM:? {0,8}\S")
# NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!
_NVRM_NVLINK = re.compile(r"NVRM:? .{0,120}?nv_?link", re.IGNORECASE)
# nvidia-nvlink: ... failed       nvidia-nvswitch0: ... error
_NVLINK_DRIVER = re.compile(r"nvidia-nv(?:link|switch\d{0,4}): ")
# nvidia-modeset: ERROR: GPU:0: ...    [drm:nv_drm_load [nvidia_drm]] *ERROR* ...
# nvidia-uvm: ... failed
_SIBLING = re.compile(r"(?:nvidia-(?:modeset|uvm|drm|persistenced): |\[?drm.{0,60}nvidia.drm)")
# nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further
# processing
_PEERMEM = re.compile(r"nvidia[-_]peermem")
_PEERMEM_CALL = re.compile(r"nv_(?:get_p2p|mem|dma)\w*")
#  _kgspRpcRecvPoll+0x650/0x820 [nvidia]   (a stack frame inside the call to the GSP)
_FRAME = re.compile(r"\??\s{0,4}_?kgsp\w{1,60}\+0x[0-9a-f]{1,6}/0x[0-9a-f]{1,6} \[nvidia\]")


def _xid(text: str, context: LineContext) -> Finding | None:
    found = _XID.search(text)
    if found is None:
        return None
    code, rest = int(found["code"]), found["rest"]
    known = xid_entry(code)
    name = _NAME.search(rest)
    pid = _PID.search(rest)
    severity, action, fault_class, alone = _xid_meaning(code, rest, context)
    return Finding(
        family=Family.XID,
        severity=severity,
        fault_class=fault_class,
        start=found.start(),
        xid=code,
        pci_bus_id=canonical_pci(found["pci"]),
        pid=to_pid(pid[1]) if pid else None,
        process=plain_name(name[1]) if name else None,
        action=action,
        application_possible=known is not None and known.application_possible,
        echo=known is not None and known.echo,
        acts_alone=alone and found["nvrm"] is not None,
    )


def _xid_meaning(
    code: int, rest: str, context: LineContext
) -> tuple[Severity, str | None, FaultClass, bool]:
    """Severity, action, fault class and acts_alone of an XID with its text."""
    known = xid_entry(code)
    if known is None:
        return Severity.WARNING, None, FaultClass.UNKNOWN, False
    if code == _RECOVERY_XID:
        stated = stated_recovery_action(rest)
        severity, fault_class, alone = recovery_severity(stated)
        return severity, stated.value if stated else None, fault_class, alone
    if code in NVLINK5_CODES:
        words = parse_nvlink5_words(rest)
        row = words and nvlink5_decode(
            code, words.unit, words.intr_info, words.error_bits, context.driver_version
        )
        if words and row:
            return _decoded_meaning(row, says_fatal=words.says_fatal)
    return known.severity, known.action, known.fault_class, known.acts_alone


def _decoded_meaning(
    row: NvLink5Row, *, says_fatal: bool
) -> tuple[Severity, str, FaultClass, bool]:
    """Meaning of a decoded NVLink 5 row; severity and action never contradict each other.

    It acts alone only when table and line both say fatal, the bucket is a reset and the sheet lays
    the fault to hardware on this side. Link faults, where the far end may be the cause, wait.
    """
    if row.action == "IGNORE":
        severity = Severity.WARNING
    elif row.action == "RESET_GPU" and row.severity in ("fatal", "link_fatal"):
        severity = Severity.CRITICAL
    else:
        severity = Severity.ERROR
    alone = (
        says_fatal
        and row.severity == "fatal"
        and row.origin == "hw"
        # "Local: Xid 48" in the sheet: a memory cell of this GPU's link unit, so a part is broken.
        and acts_alone(
            severity, row.action, FaultClass.MEMORY, application_possible=False, echo=False
        )
    )
    return severity, row.action, FaultClass.NVLINK, alone


def _sxid(text: str, context: LineContext) -> Finding | None:
    found = _SXID.search(text)
    if found is None:
        return None
    code, rest = int(found["code"]), found["rest"]
    severity, echo, alone = _sxid_meaning(code, rest)
    listed = sxid_entry(code)
    return Finding(
        family=Family.SXID,
        severity=severity,
        fault_class=listed.fault_class if listed else FaultClass.NVLINK,
        start=found.start(),
        sxid=code,
        pci_bus_id=canonical_pci(found["pci"]),
        device=found["switch"],
        echo=echo,
        acts_alone=alone and found["switch"] is not None,
    )


def _sxid_meaning(code: int, rest: str) -> tuple[Severity, bool, bool]:
    """Severity, echo and acts_alone of an SXid.

    Only the driver's own word Fatal acts alone. The Severity and Data lines repeat the line before
    them (1 is fatal, nvswitch driver), and a line without a word falls back on the guide's lists.
    """
    detail = _SXID_DETAIL.match(rest)
    if detail is not None:
        return (Severity.ERROR if detail["level"] == "1" else Severity.INFO), True, False
    if _SXID_NONFATAL.match(rest):
        return Severity.WARNING, False, False
    if _SXID_FATAL.match(rest):
        return Severity.CRITICAL, False, True
    listed = sxid_entry(code)
    fatal = listed is not None and listed.fatal
    return (Severity.CRITICAL if fatal else Severity.WARNING), False, False


def _fabric_manager(text: str, context: LineContext) -> Finding | None:
    """The fabric manager's own log restates SXids that the kernel has logged: always an echo."""
    found = _FABRIC_MANAGER.search(text)
    if found is None:
        return None
    return Finding(
        family=Family.SXID,
        severity=Severity.CRITICAL if found["word"].lower() == "fatal" else Severity.WARNING,
        fault_class=FaultClass.NVLINK,
        start=found.start(),
        sxid=int(found["code"]),
        pci_bus_id=canonical_pci(found["pci"]),
        echo=True,
    )


def _gpu_lost(text: str, context: LineContext) -> Finding | None:
    found = _LOST.match(text) or _SMI_LOST.search(text) or _INACCESSIBLE.search(text)
    if found is None:
        return None
    return Finding(
        family=Family.GPU_LOST,
        severity=Severity.CRITICAL,
        fault_class=FaultClass.BUS,
        start=found.start(),
        pci_bus_id=find_pci(text[found.start() :].replace("GPU0", "GPU 0", 1)),
    )


def _init_failed(text: str, context: LineContext) -> Finding | None:
    found = _INIT_FAILED.match(text) or _PROBE_FAILED.search(text)
    if found is None:
        return None
    return Finding(
        family=Family.RM_INIT_FAILED,
        severity=Severity.ERROR,
        fault_class=FaultClass.DRIVER,
        start=found.start(),
        pci_bus_id=find_pci(text),
    )


def _nvrm(text: str, context: LineContext) -> Finding | None:
    """Any other line of the resource manager: its NVLink code, a dump, or trouble in words."""
    if _NVRM.match(text) is None or _BANNER.match(text):
        return None
    if _DUMP.match(text):
        return _nvrm_finding(text, Family.OTHER_NVRM, Severity.INFO, FaultClass.DRIVER, echo=True)
    trouble = Severity.WARNING if TROUBLE.search(text) else Severity.INFO
    if _NVRM_NVLINK.match(text):
        return _nvrm_finding(text, Family.NVLINK, trouble, FaultClass.NVLINK, echo=False)
    return _nvrm_finding(text, Family.OTHER_NVRM, trouble, FaultClass.DRIVER, echo=False)


def _nvrm_finding(
    text: str, family: Family, severity: Severity, fault_class: FaultClass, *, echo: bool
) -> Finding:
    return Finding(family, severity, fault_class, pci_bus_id=find_pci(text), echo=echo)


def _sibling_drivers(text: str, context: LineContext) -> Finding | None:
    """Trouble of nvidia-nvlink, nvidia-nvswitch, nvidia-modeset, nvidia-uvm or nvidia-drm."""
    link = _NVLINK_DRIVER.search(text)
    found = link or _SIBLING.search(text)
    if found is None or not TROUBLE.search(text, found.end()):
        return None
    return Finding(
        family=Family.NVLINK if link else Family.OTHER_NVRM,
        severity=Severity.WARNING,
        fault_class=FaultClass.NVLINK if link else FaultClass.DRIVER,
        start=found.start(),
        pci_bus_id=find_pci(text),
    )


def _peermem(text: str, context: LineContext) -> Finding | None:
    found = _PEERMEM.search(text)
    if found is None:
        return None
    if not (TROUBLE.search(text, found.end()) or _PEERMEM_CALL.search(text, found.end())):
        return None
    return Finding(
        family=Family.PEERMEM,
        severity=Severity.WARNING,
        fault_class=FaultClass.DRIVER,
        start=found.start(),
        # A process that dies with memory still registered leaves this line on sound hardware.
        application_possible=True,
    )


def _gsp_frame(text: str, context: LineContext) -> Finding | None:
    if _FRAME.match(text) is None:
        return None
    return Finding(Family.OTHER_NVRM, Severity.INFO, FaultClass.DRIVER, echo=True)


GPU_RULES = RuleSet(
    tokens=("nvrm", "xid", "nvidia", "nvswitch", "kgsp", "device handle for gpu"),
    rules=(
        _xid,
        _sxid,
        _fabric_manager,
        _peermem,
        _gpu_lost,
        _init_failed,
        _nvrm,
        _sibling_drivers,
        _gsp_frame,
    ),
)
