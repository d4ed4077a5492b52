"""Network and storage: NIC, NVMe, block devices, file systems, NFS."""

from __future__ import annotations

import re

from gpuwarden_kernel_log.event import LineContext
from gpuwarden_kernel_log.finding import TROUBLE, Finding, RuleSet
from gpuwarden_kernel_log.pci import find_pci
from gpuwarden_kernel_log.vocabulary import Family, FaultClass, Severity

__all__ = ["IO_RULES"]

# mlx5_core 0000:41:00.0 enp65s0f0np0: Link down     e1000e: eth0 NIC Link is Up 1000 Mbps
# bond0: (slave eth0): link status definitely down
# mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN
_LINK = re.compile(
    r"(?:\b(?P<dev>[\w.-]{1,32}): (?:NIC )?Link (?:is )?"
    r"|\b(?P<nic>[\w.-]{1,32}) NIC Link (?:is )?"
    r"|slave (?P<slave>[\w.-]{1,32})\)?:? link status (?:is )?definitely "
    r"|\b(?P<bond>[\w.-]{1,32}): link status definitely "
    r"|\b(?P<ib>mlx\d_\d{1,3}): Port:? \d{1,2} Link )(?P<word>down|up|init|armed|active)\b"
    r"(?: for interface (?P<member>[\w.-]{1,32}))?",
    re.IGNORECASE,
)
_NIC_DRIVER = re.compile(
    r"\b(?:mlx[45](?:_core|_ib|_en|e)?\b|mlx5\w{1,40}|bnxt_(?:en|re)|i40e|ice|ixgbe|igb|ena|efa"
    r"|irdma|hfi1|tg3|qede"
    r"|be2net|ib_core|ib_ipoib|infiniband \w{1,16})(?=[: ])|NETDEV WATCHDOG"
    r"|\w{1,16} \(\w{1,16}\): transmit queue"
)
_NIC_TROUBLE = re.compile(
    r"health|\bsynd|hw_id 0x|irisc_index|ext_synd|reporter_err|assert_|insufficient power"
    r"|unrecoverable|miss(?:ed)? count|unavailable"
    r"|temperature|cable"
    r"|module event|wasn't completed|transmit queue|event\[error\]|inaccessible"
    r"|Refused to change power",
    re.IGNORECASE,
)
# mlx5_core 0000:41:00.0: assert_var[0] 0x00000000      ... hw_id 0x0000020d
# (details of a health report)
_NIC_DETAIL = re.compile(r"assert_(?:var|exit_ptr|callra)|hw_id 0x|irisc_index|ext_synd|fw_ver ")
_NIC_GRAVE = re.compile(
    r"unrecoverable|compromised|fatal|slot is unavailable|inaccessible|device removed",
    re.IGNORECASE,
)
# mlx5_core 0000:41:00.0: Port module event: module 1, Cable unplugged
# ... available PCIe bandwidth, limited by
_NIC_STATE = re.compile(
    r"Cable (?:un)?plugged|available PCIe bandwidth, limited|(?<!in)sufficient power"
    r"|recover\w* succe|health recovery flow",
    re.IGNORECASE,
)
_NIC_BENIGN = re.compile(
    r"error correction|changing it to|Error: (?:0|none)\b|\bFEC\b", re.IGNORECASE
)
# mlx5_cmd_out_err:838:(pid 812): ACCESS_REG(0x805) op_mod(0x1) failed, status bad operation(0x2),
# ...
_NIC_COMMAND = re.compile(r"mlx5_cmd_(?:out_err|check)|dump error cqe|op_mod\(")
_NETDEV = re.compile(
    r"[0-9A-Fa-f:.]{7,20} (?P<dev>[A-Za-z][\w.-]{1,31}): |WATCHDOG: (?P<watch>[\w.-]{1,32}) \("
    r"|\b(?P<ib>mlx[45]_\d{1,3})\b"
)

# nvme nvme2: I/O 0 QID 0 timeout, reset controller
# nvme0n1: I/O Cmd(0x2) @ LBA 3, 8 blocks, I/O Error
_NVME = re.compile(
    r"\b(?P<dev>nvme\d{1,3}(?:c\d{1,3})?(?:n\d{1,3}(?:p\d{1,3})?)?)\b|\bnvme [0-9A-Fa-f:.]{7,20}: "
)
_NVME_START = re.compile(r"(?:block |nvme )?nvme\d|nvme [0-9A-Fa-f:.]{7,20}: ")
_NVME_TROUBLE = re.compile(
    r"controller is down|not ready|Removing after|Disabling (?:device|controller)"
    r"|no available path|power saving mode enabled"
    r"|capacity change from [1-9]\d{0,20} to 0\b|resetting controller|Abort status|media error"
    r"|critical warning"
    r"|inaccessible|Refused to change power|I/O (?:Cmd|Error)|fail(?:ed|ing|ure)|time(?:d )?out"
    r"|\berror\b",
    re.IGNORECASE,
)
_NVME_GRAVE = re.compile(
    r"Removing after|Disabling (?:device|controller)|to 0\b|inaccessible|no available path",
    re.IGNORECASE,
)
_NVME_BENIGN = re.compile(
    r"error log page|error recovery timeout|timeout set to|Try \"nvme_core|failed to set APST",
    re.IGNORECASE,
)

# blk_update_request: I/O error, dev nvme0n1, sector 0 op 0x0:(READ)
# critical medium error, dev sda
_BLOCK = re.compile(
    r"(?:\w{1,32}: )?(?:I/O error|critical \w{1,16}(?: \w{1,16})? error), dev (?P<dev>[\w.-]{1,64})"
    r"|Buffer I/O error on dev(?:ice)? (?P<buf>[\w.-]{0,64})"
    r"|(?:[\w/:.-]{1,48}: )?attempt to access beyond end of device"
    r"|EXT[234]-fs \((?P<ext>[\w.-]{1,64})\): (?:I/O error|previous I/O error)"
    r"|XFS \((?P<xfs>[\w.-]{1,64})\): (?:metadata I/O error|log I/O error)"
    r"|md/raid\S{0,32}: Disk failure on (?P<md>[\w.-]{1,64})"
    r"|sd [\d:]{7,16} ?: \[(?P<sd>sd\w{1,8})\] .{0,40}(?:FAILED Result|Medium Error"
    r"|Unrecovered read)"
    r"|sd [\d:]{7,16} ?: rejecting I/O to (?:offline|dead) device"
    r"|ata\d{1,3}(?:\.\d\d)?: (?:failed command|exception Emask|error: \{|COMRESET failed)"
)
# EXT4-fs (md0): Remounting filesystem read-only
# EXT4-fs error (device sda1): ext4_find_entry:1455: ...
# XFS (dm-3): Filesystem has been shut down due to log error
_FS = re.compile(
    r"(?:(?:EXT[234]-fs|XFS"
    r"|F2FS-fs) \((?P<dev>[\w.-]{1,64})\): )?(?:Remounting filesystem read-only"
    r"|(?:Filesystem has been shut down|[Ss]hutting down filesystem|xfs_do_force_shutdown"
    r"|log mount/recovery failed"
    r"|Corruption of in-memory data|Metadata corruption detected))"
    r"|EXT[234]-fs error \(device (?P<err>[\w.-]{1,64})\)"
    r"|Aborting journal on device (?P<jbd>[\w.-]{1,64})"
    r"|JBD2: .{0,80}(?:[Ee]rror|abort)"
    r"|BTRFS(?: error|: error|.{0,80}(?:forced readonly|Transaction aborted))"
)
# nfs: server fs01 not responding, still trying     nfs4_reclaim_open_state: Lock reclaim failed!
_NFS = re.compile(
    r"(?:nfs|lockd|NFS4?|RPC): {1,2}server (?P<dev>[^\n]{1,255}?) (?P<word>not responding"
    r"|OK\b)(?P<how>, timed out)?"
)
_NFS_STATE = re.compile(
    r"nfs4_reclaim_\w{1,32}: .{0,80}fail|NFS: (?:state manager|nfs4_\w{1,40}).{0,120}(?:fail|error)"
    r"|RPC: .{0,60}(?:timed out|connect error)|nfs: RPC call returned error"
)
#  nfs_wb_all+0x2c/0x190 [nfs]    rpc_wait_bit_killable+0x1e/0xa0 [sunrpc]
# (frames of a hung task)
_NFS_FRAME = re.compile(
    r"(?:\[<[0-9a-f]{8,16}>\] )?\??\s{0,4}(?:nfs\w{1,60}|rpc_wait\w{1,40})"
    r"\+0x[0-9a-f]{1,6}/0x[0-9a-f]{1,6} \[(?:nfs\w{0,8}|sunrpc)\]"
)


_FS_GRAVE = re.compile(r"read-?only|shut(?:ting)? ?down|abort", re.IGNORECASE)


def _nic_link(text: str, context: LineContext) -> Finding | None:
    found = _LINK.search(text)
    if found is None:
        return None
    down = found["word"].lower() == "down"
    return Finding(
        family=Family.NIC_LINK,
        severity=Severity.ERROR if down else Severity.INFO,
        fault_class=FaultClass.NIC,
        pci_bus_id=find_pci(text),
        device=_first(found, "member", "dev", "nic", "slave", "ib", "bond"),
    )


def _nic_error(text: str, context: LineContext) -> Finding | None:
    found = _NIC_DRIVER.search(text)
    if found is None:
        return None
    state = _NIC_STATE.search(text)
    if not state and (_NIC_BENIGN.search(text) or not _nic_in_trouble(text)):
        return None
    netdev = _NETDEV.search(text)
    return Finding(
        family=Family.NIC_ERROR,
        severity=Severity.INFO if state else _nic_severity(text),
        fault_class=FaultClass.THERMAL if "emperature" in text else FaultClass.NIC,
        start=found.start(),
        pci_bus_id=find_pci(text),
        device=_first(netdev, "dev", "watch", "ib") if netdev else None,
        echo=_NIC_DETAIL.search(text) is not None,
    )


def _nic_in_trouble(text: str) -> bool:
    return bool(_NIC_TROUBLE.search(text) or TROUBLE.search(text))


def _nic_severity(text: str) -> Severity:
    if _NIC_GRAVE.search(text):
        return Severity.CRITICAL
    # A refused command is as often a tool asking for what the firmware lacks as it is a fault.
    return Severity.WARNING if _NIC_COMMAND.search(text) else Severity.ERROR


def _nvme(text: str, context: LineContext) -> Finding | None:
    found = _NVME_START.match(text)
    if found is None or _NVME_BENIGN.search(text) or not _NVME_TROUBLE.search(text):
        return None
    name = _NVME.search(text)
    hint = "power saving mode" in text
    severity = Severity.CRITICAL if _NVME_GRAVE.search(text) else Severity.ERROR
    return Finding(
        family=Family.NVME_ERROR,
        severity=Severity.WARNING if hint else severity,
        fault_class=FaultClass.STORAGE,
        pci_bus_id=find_pci(text),
        device=name["dev"] if name else None,
        echo=hint,
    )


def _filesystem(text: str, context: LineContext) -> Finding | None:
    found = _FS.search(text)
    if found is None:
        return None
    return Finding(
        family=Family.FS_READONLY,
        severity=Severity.CRITICAL if _FS_GRAVE.search(text) else Severity.ERROR,
        fault_class=FaultClass.STORAGE,
        start=found.start(),
        device=_first(found, "dev", "err", "jbd"),
    )


def _block(text: str, context: LineContext) -> Finding | None:
    found = _BLOCK.search(text)
    if found is None:
        return None
    return Finding(
        family=Family.BLOCK_ERROR,
        severity=Severity.ERROR,
        fault_class=FaultClass.STORAGE,
        start=found.start(),
        device=_first(found, "dev", "buf", "ext", "xfs", "md", "sd"),
    )


def _nfs(text: str, context: LineContext) -> Finding | None:
    found = _NFS.search(text)
    if found is not None:
        server = found["dev"]
        return Finding(
            family=Family.NFS_TIMEOUT,
            severity=_nfs_severity(answers=found["word"] == "OK", gave_up=found["how"] is not None),
            fault_class=FaultClass.STORAGE,
            start=found.start(),
            device=None if " " in server else server,
        )
    state = _NFS_STATE.search(text)
    frame = None if state else _NFS_FRAME.match(text)
    if state is None and frame is None:
        return None
    return Finding(
        family=Family.NFS_TIMEOUT,
        severity=Severity.ERROR if state else Severity.WARNING,
        fault_class=FaultClass.STORAGE,
        start=state.start() if state else 0,
        echo=frame is not None,
    )


def _nfs_severity(*, answers: bool, gave_up: bool) -> Severity:
    if answers:
        return Severity.INFO
    return Severity.ERROR if gave_up else Severity.WARNING


def _first(found: re.Match[str], *names: str) -> str | None:
    return next((found[name] for name in names if found[name]), None)


IO_RULES = RuleSet(
    tokens=(
        "link ",
        "mlx",
        "bnxt",
        "infiniband",
        "watchdog",
        "transmit queue",
        "i40e",
        "ice 0",
        "ixgbe",
        "igb",
        "ena 0",
        "efa 0",
        "irdma",
        "hfi1",
        "tg3",
        "qede",
        "be2net",
        "ib_",
        "nvme",
        "i/o error",
        " error, dev ",
        "beyond end of device",
        "disk failure",
        "failed result",
        "medium error",
        "rejecting i/o",
        "ata",
        "filesystem",
        "-fs error",
        "aborting journal",
        "jbd2",
        "btrfs",
        "xfs ",
        "not responding",
        "nfs",
        "rpc",
        "lockd",
    ),
    rules=(_nic_link, _nvme, _nic_error, _filesystem, _block, _nfs),
)
