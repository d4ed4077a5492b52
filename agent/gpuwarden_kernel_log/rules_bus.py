"""PCI Express error reporting: AER and DPC lines of any driver.

Source: drivers/pci/pcie/aer.c, err.c and dpc.c of Linux; bits from PCI Express Base Specification
6.0, 7.8.4.2 (uncorrectable) and 7.8.4.5 (correctable).
"""

from __future__ import annotations

import re

from gpuwarden_kernel_log.event import LineContext
from gpuwarden_kernel_log.finding import Finding, RuleSet
from gpuwarden_kernel_log.pci import find_pci
from gpuwarden_kernel_log.vocabulary import Family, FaultClass, Severity

__all__ = ["BUS_RULES"]

# pcieport 0000:00:03.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer
# nvidia 0000:3b:00.0: AER: PCIe Bus Error: severity=Correctable, type=Physical Layer
_BUS_ERROR = re.compile(
    r"PCIe Bus Error: severity=(?P<kind>\w{1,16})(?: \((?P<grade>[\w-]{1,12})\))?"
)
# pcieport 0000:00:03.0: AER: Multiple Uncorrected (Fatal) error received: 0000:00:03.0
# pcieport 0000:00:03.0: AER: Correctable error message received from 0000:3b:00.0
_RECEIVED = re.compile(
    r"AER: (?:Multiple )?(?P<kind>Correct\w{1,8}"
    r"|Uncorrect\w{1,8})(?: \((?P<grade>[\w-]{1,12})\))? error ",
    re.IGNORECASE,
)
#   device [8086:6f08] error status/mask=00004020/00000000
# aer_status: 0x00001000, aer_mask: 0x0
_BITS = re.compile(
    r"(?:error status/mask=|aer_status: 0x)(?P<bits>[0-9A-Fa-f]{8})(?:/"
    r"|, aer_mask: 0x)(?P<mask>[0-9A-Fa-f]{8})?"
)
#    [12] Timeout        [ 0] RxErr        [ 5] SDES        [14] CmpltTO     (First)
_BIT_LINE = re.compile(
    r"(?:: {1,8}|AER: {1,8}|^)\[ ?(?P<bit>\d{1,2}) ?\] {1,2}(?P<name>[A-Z][\w ()/-]{2,40})"
)
_CORRECTABLE_NAMES = re.compile(
    r"RxErr|Receiver Error|Bad ?TLP|Bad ?DLLP|Rollover|RELAY_NUM Rollover|Timeout|Replay Timer"
    r"|NonFatalErr"
    r"|Advisory Non-?Fatal|CorrIntErr|Corrected Internal|HeaderOF|Header Log Overflow"
)
_UNCORRECTABLE_NAMES = re.compile(
    r"DLP\b|Data Link Protocol|SDES|Surprise Down|TLP\b|Poison|FCP\b|Flow Control|Cmplt"
    r"|Completion Timeout"
    r"|Completer Abort|UnxCmplt|Unexpected Completion|RxOF|Receiver Overflow|MalfTLP|Malformed|ECRC"
    r"|UnsupReq|Unsupported Request|ACSViol|ACS Violation|UncorrIntErr|Uncorrectable Internal"
    r"|BlockedTLP"
    r"|MC Blocked|AtomicOp|TLPBlocked|TLP Prefix"
)
# AER: can't recover (no error_detected callback)   AER: device recovery failed
# broadcast error_detected
_RECOVERY = re.compile(
    r"AER: (?:can't recover|device recovery|Root Port link has been reset|[\w ]{0,40}reset"
    r"|[\w ]{0,40}disconnect)"
    r"|broadcast (?:error_detected|mmio_enabled|slot_reset|resume) message"
    r"|device has no AER-aware driver"
)
# pcieport 0000:00:03.0: DPC: containment event, status:0x1f01 source:0x0000
_DPC = re.compile(r"DPC: (?:containment event|unmasked uncorrectable|ERR_\w{1,10} detected|RP PIO)")
_FIRST_AGENT = re.compile(r"Error of this Agent(?:\(\w{1,8}\))? is reported first")
_HEADER = re.compile(r"TLP Header: [0-9A-Fa-f]{8}")

_CORRECTABLE_BITS = 0x0000_F1C1  # 0, 6, 7, 8, 12 to 15: table 7-127
_SHARED_BITS = 0x0000_F000  # 12 to 15 mean something else in the uncorrectable register
_ADVISORY_MASK = 0x0000_2000  # bit 13 is masked by default in the correctable register only


def _graded(text: str, kind: str, grade: str | None, *, echo: bool = False) -> Finding:
    correctable = kind.lower().startswith("correct")
    if correctable:
        severity = Severity.WARNING
    elif (grade or "").lower() == "fatal":
        severity = Severity.CRITICAL
    else:
        severity = Severity.ERROR
    return Finding(
        family=Family.AER_CORRECTABLE if correctable else Family.AER_UNCORRECTABLE,
        severity=severity,
        fault_class=FaultClass.BUS,
        pci_bus_id=find_pci(text),
        echo=echo,
    )


def _stated(text: str, context: LineContext) -> Finding | None:
    found = _BUS_ERROR.search(text) or _RECEIVED.search(text)
    if found is None:
        return None
    return _graded(text, found["kind"], found["grade"], echo=found.re is _RECEIVED)


def _bits(text: str, context: LineContext) -> Finding | None:
    """The register line does not say which register: what its bits and mask allow decides.

    Bits 12 to 15 exist in both; only the correctable register masks bit 13 by default. Where that
    leaves a doubt we take the harmless reading.
    """
    found = _BITS.search(text)
    if found is None:
        return None
    bits, mask = int(found["bits"], 16), int(found["mask"] or "0", 16)
    impossible = bits & ~_CORRECTABLE_BITS
    doubtful = bits & _SHARED_BITS and mask and not mask & _ADVISORY_MASK
    kind = "uncorrected" if impossible or doubtful else "corrected"
    return _graded(text, kind, None, echo=True)


def _bit_line(text: str, context: LineContext) -> Finding | None:
    found = _BIT_LINE.search(text)
    if found is None:
        return None
    if _CORRECTABLE_NAMES.match(found["name"]):
        return _graded(text, "corrected", None, echo=True)
    if _UNCORRECTABLE_NAMES.match(found["name"]):
        return _graded(text, "uncorrected", None, echo=True)
    return None


def _recovery(text: str, context: LineContext) -> Finding | None:
    """Recovery is only ever tried after an uncorrectable error."""
    if _DPC.search(text):
        return _graded(text, "uncorrected", "fatal")
    found = _RECOVERY.search(text)
    if found is None:
        return None
    done = "success" in text
    return Finding(
        family=Family.AER_UNCORRECTABLE,
        severity=Severity.INFO if done else Severity.ERROR,
        fault_class=FaultClass.BUS,
        pci_bus_id=find_pci(text),
        echo=True,
    )


def _side_lines(text: str, context: LineContext) -> Finding | None:
    if _HEADER.search(text):  # only the uncorrectable register captures a header
        return _graded(text, "uncorrected", None, echo=True)
    if _FIRST_AGENT.search(text):
        return _graded(text, "corrected", None, echo=True)
    return None


BUS_RULES = RuleSet(
    tokens=(
        "aer: ",
        "pcie bus error",
        "error status/mask",
        "aer_status",
        "dpc: ",
        "pcieport",
        "broadcast ",
        "aer-aware",
        "error of this agent",
        "tlp",
        "rxerr",
        "receiver error",
        "baddllp",
        "bad dllp",
        "rollover",
        "replay timer",
        "nonfatalerr",
        "advisory non",
        "corrinterr",
        "cmplt",
        "sdes",
        "surprise down",
        "data link protocol",
        "flow control protocol",
        "completion timeout",
        "completer abort",
        "unexpected completion",
        "receiver overflow",
        "ecrc",
        "unsupreq",
        "unsupported request",
        "acsviol",
        "] timeout",
    ),
    rules=(_stated, _bits, _bit_line, _recovery, _side_lines),
)
