"""A procfs and a sysfs of a healthy node, whole enough for node_exporter and for us alike."""

from __future__ import annotations

import time
from pathlib import Path

from tests.builders.sysfs import Sysfs

UPTIME_S = 86_400

_STAT = """\
cpu  74608 2520 24433 1117073 6176 4054 0 0 0 0
cpu0 37784 1260 12111 558330 3091 2023 0 0 0 0
intr 3600123456 33 9 0 0 0
ctxt 9876543210
btime {booted_at}
processes 26442
procs_running 7
procs_blocked 2
softirq 140434 0 17118 9 10803 33 9 7 5 3 1
"""
_MEMINFO = """\
MemTotal:       2113527168 kB
MemFree:        1013527168 kB
MemAvailable:   1900000000 kB
SwapTotal:         8388604 kB
SwapFree:          8126460 kB
"""
_PRESSURE = """\
some avg10=2.48 avg60=1.50 avg300=0.42 total={some}
full avg10=0.00 avg60=0.00 avg300=0.00 total={full}
"""
_DISKSTATS = """\
   7       0 loop0 10 0 20 1 0 0 0 0 0 1 1 0 0 0 0 0 0
 259       0 nvme0n1 8512 10 1048576 931 7700 20 61600 1204 3 943 2135 0 0 0 0 15 40
 259       1 nvme0n1p1 8000 10 1000000 900 7700 20 61600 1204 0 900 2104 0 0 0 0 0 0
   8       0 sda 100 0 800 50 10 0 80 5 0 55 60 0 0 0 0 2 7
 253       0 dm-0 5 0 40 1 5 0 40 1 0 2 2 0 0 0 0 0 0
"""
_NET_DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo \
colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0 \
    0       0          0
  eth0: 412991106   300    4    0    0     0          0         0   730575     200    0    7    0 \
    0       0          0
  eth1:     500       5    0    0    0     0          0         0      600       6    0    0    0 \
    0       0          0
"""

MOUNT_POINT, EXPORT = "/mnt/shared", "10.1.0.10:/export/shared"
_MOUNTSTATS = """\
device proc mounted on /proc with fstype proc
device {export} mounted on {point} with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.1,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,timeo=600,retrans=2
\tage:\t86400
\tcaps:\tcaps=0x3ffbffff,wtmult=512,dtsize=1048576,bsize=0,namlen=255
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t10 20 0 0 1 13 398 0 0 331 0 47 0 0 77 0 0 77 0 0 0 0 0 0 0 0 0
\tbytes:\t5000 6000 0 0 4096000 8192000 1000 2000
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 871 0 1 0 3 100 99 0 500 40 32 10 20
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 100 103 1 20000 4100000 50 900 1000 0
\t       WRITE: 200 202 0 8200000 30000 9000 1000 10100 2
\t     GETATTR: 50 49 0 9000 12000 5 40 46 0

"""
_MOUNTINFO = """\
20 25 0:5 / /proc rw shared:14 - proc proc rw
40 25 0:43 / {point} rw shared:20 - nfs4 {export} rw,vers=4.1,addr=10.1.0.10
"""

# Of one InfiniBand port: counters/ as port_rcv_data counts them, in words of four bytes.
PORT_COUNTERS = {
    "port_rcv_data": 576349687,
    "port_xmit_data": 100,
    "link_downed": 1,
    "link_error_recovery": 2,
    "symbol_error": 3,
    "port_rcv_errors": 4,
    "port_xmit_discards": 5,
    "port_xmit_wait": 42949672,
    "port_rcv_constraint_errors": 6,
    "port_xmit_constraint_errors": 7,
}


def host_tree(folder: Path) -> tuple[Path, Path]:
    """Write both trees; returns the roots of procfs and sysfs."""
    proc, sysfs = folder / "proc", Sysfs(folder / "sys")
    _write_proc(proc)
    _write_interfaces(sysfs)
    _write_ports(sysfs)
    for disk, part in (("nvme0n1", ""), ("nvme0n1p1", "partition"), ("sda", ""), ("loop0", "")):
        sysfs.write({f"class/block/{disk}/{part or 'size'}": 1})
    for disk in ("nvme0n1", "sda"):
        sysfs.write({f"class/block/{disk}/device/model": "a model"})
    for controller, corrected, uncorrected in (("mc0", 12, 1), ("mc1", 30, 0)):
        at = f"devices/system/edac/mc/{controller}"
        sysfs.write({f"{at}/ce_count": corrected, f"{at}/ue_count": uncorrected})
        sysfs.write({f"{at}/ce_noinfo_count": 0, f"{at}/ue_noinfo_count": 0})
    return proc, sysfs.root


def _write_proc(proc: Path) -> None:
    files = {
        "stat": _STAT.format(booted_at=int(time.time()) - UPTIME_S),
        "vmstat": "nr_free_pages 12345\npgpgin 777\npgpgout 2048\n",
        "meminfo": _MEMINFO,
        "loadavg": "12.34 10.01 8.00 7/1234 26442\n",
        "uptime": f"{UPTIME_S}.50 1234567.89\n",
        "diskstats": _DISKSTATS,
        "net/dev": _NET_DEV,
        "pressure/cpu": _PRESSURE.format(some=4623501, full=0),
        "pressure/io": _PRESSURE.format(some=5307014, full=5160217),
        "pressure/memory": _PRESSURE.format(some=11, full=7),
        "4242/mountstats": _MOUNTSTATS.format(export=EXPORT, point=MOUNT_POINT),
        "4242/mountinfo": _MOUNTINFO.format(export=EXPORT, point=MOUNT_POINT),
        "sys/kernel/random/boot_id": "6f2d1c9a-7a51-4f0e-9a9e-2d0b7c1f5e11\n",
    }
    for name, text in files.items():
        (proc / name).parent.mkdir(parents=True, exist_ok=True)
        (proc / name).write_text(text)
    (proc / "self").symlink_to("4242")


def _write_interfaces(sysfs: Sysfs) -> None:
    # Name, flags (0x1 is IFF_UP), operstate, speed in Mb/s, carrier changes.
    for name, flags, state, speed, changes in (
        ("eth0", "0x1003", "up", 100_000, 2),
        ("eth1", "0x1003", "down", -1, 5),
        ("eth2", "0x1002", "down", -1, 0),
        ("lo", "0x9", "unknown", -1, 0),
    ):
        at = f"class/net/{name}"
        sysfs.write(
            {
                f"{at}/flags": flags,
                f"{at}/operstate": state,
                f"{at}/speed": speed,
                f"{at}/carrier_changes": changes,
            }
        )
    received, sent = {"eth0": 412991106, "eth1": 500}, {"eth0": 730575, "eth1": 600}
    for name in received:
        sysfs.write(
            {
                f"class/net/{name}/statistics/rx_bytes": received[name],
                f"class/net/{name}/statistics/tx_bytes": sent[name],
                f"class/net/{name}/statistics/rx_errors": 4 if name == "eth0" else 0,
                f"class/net/{name}/statistics/tx_dropped": 7 if name == "eth0" else 0,
            }
        )
    for name in ("eth0", "eth1", "eth2"):
        sysfs.write({f"class/net/{name}/device/vendor": "0x15b3"})


def _write_ports(sysfs: Sysfs) -> None:
    for device, state, physical, rate in (
        ("mlx5_0", "4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)"),
        ("mlx5_1", "1: DOWN", "2: Polling", "10 Gb/sec (4X SDR)"),
    ):
        at = f"class/infiniband/{device}"
        sysfs.write({f"{at}/fw_ver": "28.39.1002", f"{at}/board_id": "MT_0000000838"})
        sysfs.write({f"{at}/hca_type": "MT4129"})
        port = f"{at}/ports/1"
        sysfs.write({f"{port}/state": state, f"{port}/phys_state": physical, f"{port}/rate": rate})
        sysfs.write({f"{port}/counters/{name}": n for name, n in PORT_COUNTERS.items()})
