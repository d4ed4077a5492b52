from __future__ import annotations

import pytest

from gpuwarden_kernel_log import Family, FaultClass, Severity, parse_line

# Lines of our own making, in the forms that kernels and drivers print.
TROUBLE = [
    ("gpu_lost", "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus."),
    ("gpu_lost", "NVRM: fallen off the bus and is not responding to commands."),
    ("gpu_lost", "Unable to determine the device handle for GPU0000:3b:00.0: Unknown Error"),
    (
        "gpu_lost",
        "nvidia 0000:3b:00.0: Unable to change power state, device inaccessible",
    ),
    ("rm_init_failed", "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x62:0x40:1000)"),
    ("rm_init_failed", "NVRM: GPU 0000:3b:00.0: rm_init_adapter failed, device minor number 3"),
    ("rm_init_failed", "NVRM: The NVIDIA probe routine failed for 1 device(s)."),
    ("rm_init_failed", "NVRM: GPU2 RmInitAdapter: Cannot initialize GSP firmware RM"),
    ("rm_init_failed", "nvidia: probe of 0000:3b:00.0 failed with error -1"),
    (
        "aer_correctable",
        "pcieport 0000:00:03.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer",
    ),
    (
        "aer_correctable",
        "nvidia 0000:3b:00.0: AER: PCIe Bus Error: severity=Correctable, type=Physical Layer",
    ),
    (
        "aer_correctable",
        "pcieport 0000:00:03.0: AER: Multiple Corrected error received: 0000:00:03.0",
    ),
    (
        "aer_correctable",
        "pcieport 0000:00:03.0: AER: Correctable error message received from 0000:3b:00.0",
    ),
    (
        "aer_correctable",
        "pcieport 0000:00:03.0:   device [8086:6f08] error status/mask=00001000/00002000",
    ),
    ("aer_correctable", "pcieport 0000:00:03.0:    [12] Timeout"),
    ("aer_correctable", "nvme 0000:03:00.0: AER:    [ 0] RxErr"),
    ("aer_correctable", "pcieport 0000:00:03.0:    [ 8] Rollover"),
    (
        "aer_uncorrectable",
        "pcieport 0000:00:03.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=x",
    ),
    (
        "aer_uncorrectable",
        "pcieport 0000:00:03.0: AER: Uncorrectable (Fatal) error message received from 0000:3b",
    ),
    (
        "aer_uncorrectable",
        "pcieport 0000:00:03.0:   device [8086:6f08] error status/mask=00004020/00000000",
    ),
    ("aer_uncorrectable", "pcieport 0000:00:03.0:    [14] CmpltTO                (First)"),
    ("aer_uncorrectable", "pcieport 0000:00:03.0:    [ 5] SDES"),
    ("aer_uncorrectable", "nvidia 0000:3b:00.0: AER: can't recover (no error_detected callback)"),
    ("aer_uncorrectable", "pcieport 0000:00:03.0: AER: device recovery failed"),
    (
        "aer_uncorrectable",
        "pcieport 0000:64:00.0: DPC: containment event, status:0x1f01 source:0x0000",
    ),
    (
        "aer_uncorrectable",
        "nvidia 0000:3b:00.0: AER:   TLP Header: 34000000 01000010 00000000 88978897",
    ),
    ("mce", "mce: [Hardware Error]: Machine check events logged"),
    ("mce", "{1}[Hardware Error]: event severity: recoverable"),
    ("mce", "[Hardware Error]: CPU:1 (19:1:2) MC17_STATUS[Over|CE|MiscV|AddrV]: 0xdc20"),
    ("mce", "EDAC sbridge MC1: HANDLING MCE MEMORY ERROR"),
    ("mce", "EDAC skx MC3: CPU 0: Machine Check Event: 0x0 Bank 7: 0xcc00418000010091"),
    ("mce", "Memory failure: 0x1234567: recovery action for dirty LRU page: Recovered"),
    (
        "mce",
        "mce: CPU12: Package temperature above threshold, cpu clock throttled",
    ),
    ("edac_ce", "EDAC MC1: 7 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1)"),
    ("edac_ce", "EDAC MC0: 4 CE error on CPU#0Channel#2_DIMM#0 (channel:2 slot:0)"),
    ("edac_ue", "EDAC MC3: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#2_DIMM#0 (channel:2)"),
    ("edac_ue", "EDAC MC0: UE page 0x0, offset 0x0, grain 0, labels"),
    ("nic_link", "mlx5_core 0000:41:00.0 enp65s0f0np0: Link down"),
    ("nic_link", "mlx5_core 0000:41:00.0 mlx5_5: Port: 1 Link DOWN"),
    ("nic_link", "ixgbe 0000:01:00.0 eth2: NIC Link is Down"),
    ("nic_link", "bond0: (slave eth0): link status definitely down, disabling slave"),
    ("nic_link", "bond0: link status definitely down for interface eth1, disabling it"),
    (
        "nic_error",
        "mlx5_core 0000:41:00.0: poll_health:825:(pid 0): device's health compromised",
    ),
    ("nic_error", "mlx5_core 0000:41:00.0: assert_var[0] 0x00000000"),
    (
        "nic_error",
        "mlx5_core 0000:41:00.0: wait_func:1033:(pid 8): QUERY_VPORT_COUNTER(0x770) timeout.",
    ),
    ("nic_error", "mlx5_core 0000:41:00.0 ens15np0: TX timeout detected"),
    ("nic_error", "NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 0 timed out"),
    (
        "nic_error",
        "mlx5_cmd_out_err:838:(pid 8): ACCESS_REG(0x805) op_mod(0x1) failed",
    ),
    (
        "nic_error",
        "mlx5_core 0000:41:00.0: Port module event[error]: module 0, Cable error, High Temperature",
    ),
    (
        "nic_error",
        "mlx5_core 0000:41:00.0: mlx5_pcie_event:299: Detected insufficient power on the PCIe slot",
    ),
    (
        "nic_error",
        "infiniband mlx5_0: dump_cqe:272:(pid 0): WC error: 4, Message: local protection error",
    ),
    ("nvme_error", "nvme nvme2: I/O 0 QID 0 timeout, reset controller"),
    ("nvme_error", "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10"),
    ("nvme_error", "nvme nvme2: Removing after probe failure status: -19"),
    ("nvme_error", "nvme0n1: I/O Cmd(0x2) @ LBA 3254587, 8 blocks, I/O Error (sct 0x3 / sc 0x71)"),
    ("nvme_error", "nvme2n1: detected capacity change from 800166076416 to 0"),
    ("nvme_error", "block nvme0n1: no available path - failing I/O"),
    ("block_error", "blk_update_request: I/O error, dev nvme0n1, sector 0 op 0x0:(READ) flags 0x0"),
    ("block_error", "critical medium error, dev sda, sector 123 op 0x0:(READ) flags 0x0"),
    ("block_error", "Buffer I/O error on dev dm-0, logical block 13, lost async page write"),
    ("block_error", "kworker/u203:1: attempt to access beyond end of device"),
    ("block_error", "EXT4-fs (dm-0): I/O error while writing superblock"),
    ("block_error", "md/raid0md0: Disk failure on nvme0n1p1 detected, failing array."),
    ("fs_readonly", "EXT4-fs (md0): Remounting filesystem read-only"),
    (
        "fs_readonly",
        "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm ls: reading directory",
    ),
    ("fs_readonly", "XFS (dm-3): Filesystem has been shut down due to log error (0x2)."),
    ("fs_readonly", "XFS (nvme0n1p1): Log I/O Error Detected. Shutting down filesystem"),
    (
        "fs_readonly",
        "BTRFS: error (device sda1) in btrfs_commit_transaction:2279: errno=-5 IO failure",
    ),
    ("nfs_timeout", "nfs: server fs01 not responding, still trying"),
    ("nfs_timeout", "nfs: server 10.0.0.2 not responding, timed out"),
    ("nfs_timeout", "nfs4_reclaim_open_state: Lock reclaim failed!"),
    ("nfs_timeout", " nfs_wb_all+0x2c/0x190 [nfs]"),
    ("lockup", "watchdog: BUG: soft lockup - CPU#4 stuck for 23s! [python3:2254956]"),
    ("lockup", "NMI watchdog: Watchdog detected hard LOCKUP on cpu 3"),
    ("lockup", "rcu: INFO: rcu_sched self-detected stall on CPU"),
    ("lockup", "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:"),
    ("lockup", "Kernel panic - not syncing: Fatal exception"),
    ("hung_task", "INFO: task kworker/3:1:1177 blocked for more than 120 seconds."),
    ("oom", "Out of memory: Killed process 812 (trainer) total-vm:5kB, anon-rss:1kB"),
    ("oom", "Memory cgroup out of memory: Killed process 812 (trainer) total-vm:5kB"),
    ("oom", "trainer invoked oom-killer: gfp_mask=0x201da, order=0, oom_score_adj=0"),
    (
        "oom",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,task=trainer,pid=812,uid=0",
    ),
    (
        "nvlink",
        "NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!",
    ),
    ("nvlink", "nvidia-nvlink: Failed to initialize link 3"),
    (
        "peermem",
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping",
    ),
    ("other_nvrm", "NVRM: GPU0 nvAssertFailedNoLog: Assertion failed: 0 @ kern_fsp.c:123"),
    (
        "other_nvrm",
        "NVRM kgspExecuteBooterUnloadIfNeeded_TU102: failed to execute Booter Unload: 0xffff",
    ),
    ("other_nvrm", "NVRM: GPU6 _kgspLogRpcTimeout: ************ GSP Timeout ************"),
    ("other_nvrm", "nvidia-modeset: ERROR: GPU:0: Failed detecting connected display devices"),
    (
        "sxid",
        "detected NVSwitch fatal error 12028 on NVSwitch pci bus id 00000000:86:00.0",
    ),
]

QUIET = [
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Dec 30 17:44:08 UTC 2024",
    "NVRM: GPU at PCI:0000:3b:00: GPU-00000000-1111-2222-3333-444444444444",
    "NVRM: GPU Board Serial Number: 1650000000000",
    "NVRM:     -2    103  GSP_RM_ALLOC          0x0000000000000080 0x0000000000000038",
    "nvidia-nvlink: Nvlink Core is being initialized, major device number 507",
    "nvidia-nvswitch3: open (major=510)",
    "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
    "nvidia-uvm: Loaded the UVM driver, major device number 505.",
    "nvidia 0000:3b:00.0: enabling device (0000 -> 0002)",
    "EDAC amd64: MC: 0: 16384MB 1: 16384MB",
    "EDAC MC0: Giving out device to module amd64_edac controller F19h_M10h: DEV 0000:00:18.3",
    "mce: CPU supports 7 MCE banks",
    "mce: CPU12: Package temperature/speed normal",
    "mlx5_core 0000:41:00.0 enp65s0f0np0: Link up",
    "mlx5_core 0000:41:00.1: E-Switch: Total vports 10, per vport: max uc(128) max mc(2048)",
    "mlx5_core 0000:41:00.1: 63.008 Gb/s available PCIe bandwidth (8.0 GT/s PCIe x8 link)",
    "mlx5_core 0000:41:00.0: Port module event: module 0, Cable plugged",
    "mlx5_core 0000:41:00.0: mlx5_pcie_event:301:(pid 8): PCIe slot advertised sufficient power.",
    "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
    "ata1: SATA link down (SStatus 0 SControl 300)",
    "pcieport 0000:00:1c.0: AER: enabled with IRQ 122",
    "nvme nvme0: 4/0/0 default/read/poll queues",
    "nvme nvme0: Shutdown timeout set to 10 seconds",
    "EXT4-fs (vdb): mounted filesystem with ordered data mode. Opts: errors=remount-ro",
    "EXT4-fs (nvme0n1p2): re-mounted. Opts: (null). Quota mode: none.",
    "nfs: server fs01 OK",
    "loop3: detected capacity change from 0 to 100952",
    '      "echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.',
    'The "invoked oom-killer" line itself names no victim.',
    "python3[812]: segfault at 7f79 ip 00007f sp 00007f error 4 in libnccl.so.2[7f7c+d3d]",
    "sshd(pam_unix)[19939]: authentication failure; logname= uid=0 euid=0 tty=NODEVssh",
    " SUBSYSTEM=pci",
]


@pytest.mark.parametrize(("family", "line"), TROUBLE)
def test_trouble_is_recognised(family: str, line: str) -> None:
    event = parse_line(f"Jan 21 04:41:44 node7 kernel: [   12.345678] {line}")
    assert event is not None and event.family.value == family


@pytest.mark.parametrize("line", QUIET)
def test_ordinary_lines_raise_no_alarm(line: str) -> None:
    event = parse_line(f"[   12.345678] {line}")
    assert event is None or event.severity is Severity.INFO


def test_every_family_has_a_line_here() -> None:
    assert {family for family, _ in TROUBLE} | {"xid"} == {family.value for family in Family}


@pytest.mark.parametrize(
    ("line", "device", "address"),
    [
        ("mlx5_core 0000:41:00.0 ens15np0: TX timeout detected", "ens15np0", "0000:41:00.0"),
        ("mlx5_core 0000:41:00.0 enp65s0: Link down", "enp65s0", "0000:41:00.0"),
        ("mlx5_core 0000:41:00.0 mlx5_5: Port: 1 Link DOWN", "mlx5_5", "0000:41:00.0"),
        ("NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 0 timed out", "eth0", None),
        ("bond0: (slave eth1): link status definitely down, disabling slave", "eth1", None),
        ("igb 0000:02:00.0 enp2s0: igb: enp2s0 NIC Link is Down", "enp2s0", "0000:02:00.0"),
        ("nvme nvme2: Device not ready; aborting reset", "nvme2", None),
        ("I/O error, dev nvme0n1, sector 3 op 0x0:(READ) flags 0x80700", "nvme0n1", None),
        ("EXT4-fs (md0): Remounting filesystem read-only", "md0", None),
        ("nfs: server fs01 not responding, timed out", "fs01", None),
        ("mlx5_core 0000:AB:CD.E: health compromised", None, None),
    ],
)
def test_the_device_is_named(line: str, device: str | None, address: str | None) -> None:
    event = parse_line(line)
    assert event is not None and (event.device, event.pci_bus_id) == (device, address)


@pytest.mark.parametrize(
    ("line", "pid", "process"),
    [
        (
            "watchdog: BUG: soft lockup - CPU#4 stuck for 23s! [Plex Media Serv:22]",
            22,
            "Plex Media Serv",
        ),
        ("INFO: task kworker/3:1:1177 blocked for more than 120 seconds.", 1177, "kworker/3:1"),
        ("Out of memory: Killed process 812, UID 48, (httpd).", 812, "httpd"),
        ("Memory cgroup out of memory: Kill process 9 (a b) score 5 or sacrifice child", 9, "a b"),
        ("oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task=node,pid=86,uid=0", 86, "node"),
        ("postgres invoked oom-killer: gfp_mask=0x201d2, order=0", None, "postgres"),
    ],
)
def test_the_process_is_named(line: str, pid: int | None, process: str) -> None:
    event = parse_line(line)
    assert event is not None and (event.pid, event.process) == (pid, process)


def test_out_of_memory_is_the_job_or_the_host() -> None:
    job = parse_line("Memory cgroup out of memory: Killed process 9 (a) total-vm:1kB")
    host = parse_line("Out of memory: Killed process 9 (a) total-vm:1kB")
    assert job is not None and job.fault_class is FaultClass.APPLICATION
    assert host is not None and host.fault_class is FaultClass.HOST
    assert job.application_possible and host.application_possible


def test_a_lost_gpu_without_xid_never_acts_alone() -> None:
    event = parse_line("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.")
    assert event is not None and event.pci_bus_id == "0000:3b:00.0"
    assert event.severity is Severity.CRITICAL and not event.acts_alone


def test_only_xids_and_sxids_carry_an_action_or_act_alone() -> None:
    for family, line in TROUBLE:
        event = parse_line(line)
        assert event is not None, line
        assert event.action is None and not event.acts_alone, family
