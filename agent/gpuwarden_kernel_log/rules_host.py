"""The machine itself: memory and CPU errors, lock-ups, hung tasks, out of memory."""

from __future__ import annotations

import re

from gpuwarden_kernel_log.event import LineContext
from gpuwarden_kernel_log.finding import Finding, RuleSet, plain_name, to_pid
from gpuwarden_kernel_log.pci import find_pci
from gpuwarden_kernel_log.vocabulary import Family, FaultClass, Severity

__all__ = ["HOST_RULES"]

# EDAC MC1: 262 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (...)
# EDAC MC0: UE page 0x1, ...
_EDAC = re.compile(r"EDAC (?:\w{1,24} )?(?:MC|DEVICE)\d{1,3}: (?:\d{1,9} )?(?P<kind>CE|UE)\b")
# EDAC sbridge MC1: HANDLING MCE MEMORY ERROR
# EDAC sbridge MC1: CPU 0: Machine Check Event: 0 Bank 7: c0
_EDAC_MCE = re.compile(
    r"EDAC \w{1,24} MC\d{1,3}: (?:HANDLING \w{1,8} (?:MEMORY )?ERROR|CPU \d|TSC |ADDR |MISC "
    r"|PROCESSOR |SOCKET )"
)
# mce: [Hardware Error]: Machine check events logged
# {1}[Hardware Error]: event severity: recoverable
_HARDWARE_ERROR = re.compile(r"(?:mce: |\{\d{1,9}\})?\[Hardware Error\]: ?")
# CPU 3: Machine Check Exception: 4 Bank 5: be00000000800400
# mce: Uncorrected hardware memory error in
_MACHINE_CHECK = re.compile(
    r"CPU:? ?\d{1,5}: Machine Check(?: Exception| Event)?: {1,16}[0-9A-Fa-f]{1,16} Bank"
    r"|mce: Uncorrected|Machine check events logged|Memory failure: 0x[0-9A-Fa-f]{1,16}: "
)
# mce: CPU12: Package temperature above threshold, cpu clock throttled (total events = 1)
_CPU_HOT = re.compile(r"CPU\d{1,5}: (?:Core|Package) temperature above threshold")
_MCE_GRAVE = re.compile(r"\bfatal\b|uncorrected|uncorrectable|\bpanic\b|Killing", re.IGNORECASE)
_MCE_MEDIUM = re.compile(
    r"severity: recoverable|Machine Check(?: Exception)?: [0-9a-f]", re.IGNORECASE
)
_MCE_HEAD = re.compile(
    r"Machine check|event severity|from APEI|HANDLING|[Cc]orrected|Deferred|Memory failure",
    re.IGNORECASE,
)

# watchdog: BUG: soft lockup - CPU#4 stuck for 23s! [python3:2254956]
_SOFT_LOCKUP = re.compile(
    r"(?:watchdog: "
    r"|NMI watchdog: )?BUG: soft lockup.{0,60}?(?:\[(?P<process>[^\]]{1,32}):(?P<pid>\d{1,10})\])?$"
)
# NMI watchdog: Watchdog detected hard LOCKUP on cpu 3
# rcu: INFO: rcu_sched self-detected stall on CPU
# BUG: workqueue lockup - pool cpus=3 ...                Kernel panic - not syncing: Fatal exception
_LOCKUP = re.compile(
    r"(?P<hard>(?:NMI )?[Ww]atchdog.{0,24}hard LOCKUP|Kernel panic - not syncing)"
    r"|(?:rcu: )?(?:INFO: )?rcu\w{0,24}:? ?(?:self-)?detected (?:expedited )?stalls?"
    r"|BUG: workqueue lockup"
    r"|rcu: rcu_\w{1,16} kthread starved"
)
# INFO: task kworker/3:1:1177 blocked for more than 120 seconds.
_HUNG = re.compile(
    r"(?:INFO: )?task (?P<process>[^\n]{1,32}?):(?P<pid>\d{1,10})(?: is)? blocked "
    r"(?:on [^\n]{1,64} )?for more than \d"
)
# Out of memory: Killed process 812 (trainer) total-vm:5kB
# Memory cgroup out of memory: Kill process 8 (x)
_OOM_KILLED = re.compile(
    r"(?:(?:Memory cgroup o"
    r"|O)ut of memory(?: \(oom_kill_allocating_task\))?: ?)?Kill(?:ed)? process (?P<pid>\d{1,10})"
    r"(?:,? ?\(?UID:? ?\d{1,10}\)?,?)? ?,? ?\((?P<process>.{1,64}?)\)"
)
# trainer invoked oom-killer: gfp_mask=0x201da, order=0, oom_score_adj=0
_OOM_INVOKED = re.compile(r"(?P<process>\S.{0,63}?) invoked oom-killer: ")
# oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),...,task=trainer,pid=812,uid=0
_OOM_RECORD = re.compile(r"oom-kill:constraint=")
_OOM_TASK = re.compile(r",task=(?P<process>[^,]{1,64}),pid=(?P<pid>\d{1,10})")
# oom_reaper: reaped process 812 (trainer), now anon-rss:0kB
_OOM_REAPED = re.compile(
    r"oom_reaper: reaped process (?P<pid>\d{1,10}) \((?P<process>[^)]{1,64})\)"
)


def _edac(text: str, context: LineContext) -> Finding | None:
    found = _EDAC.search(text)
    if found is None:
        return None
    lost = found["kind"] == "UE"
    return Finding(
        family=Family.EDAC_UE if lost else Family.EDAC_CE,
        severity=Severity.CRITICAL if lost else Severity.WARNING,
        fault_class=FaultClass.HOST,
        start=found.start(),
    )


def _mce(text: str, context: LineContext) -> Finding | None:
    found = _HARDWARE_ERROR.search(text) or _EDAC_MCE.search(text) or _MACHINE_CHECK.search(text)
    if found is None:
        return None
    if _MCE_GRAVE.search(text):
        severity = Severity.CRITICAL
    elif _MCE_MEDIUM.search(text):
        severity = Severity.ERROR
    else:
        severity = Severity.WARNING
    return Finding(
        family=Family.MCE,
        severity=severity,
        fault_class=FaultClass.HOST,
        start=found.start(),
        pci_bus_id=find_pci(text),
        echo=_MCE_HEAD.search(text) is None,
    )


def _cpu_hot(text: str, context: LineContext) -> Finding | None:
    if _CPU_HOT.search(text) is None:
        return None
    return Finding(Family.MCE, Severity.WARNING, FaultClass.THERMAL)


def _lockup(text: str, context: LineContext) -> Finding | None:
    soft = _SOFT_LOCKUP.search(text)
    if soft is not None:
        return Finding(
            family=Family.LOCKUP,
            severity=Severity.ERROR,
            fault_class=FaultClass.HOST,
            start=soft.start(),
            pid=to_pid(soft["pid"]),
            process=plain_name(soft["process"]),
        )
    found = _LOCKUP.search(text)
    if found is None:
        return None
    severity = Severity.CRITICAL if found["hard"] else Severity.ERROR
    return Finding(Family.LOCKUP, severity, FaultClass.HOST, start=found.start())


def _hung_task(text: str, context: LineContext) -> Finding | None:
    found = _HUNG.search(text)
    if found is None:
        return None
    return Finding(
        family=Family.HUNG_TASK,
        severity=Severity.ERROR,
        fault_class=FaultClass.HOST,
        start=found.start(),
        pid=to_pid(found["pid"]),
        process=plain_name(found["process"]),
    )


def _oom(text: str, context: LineContext) -> Finding | None:
    killed = _OOM_KILLED.search(text)
    invoked = None if killed else _OOM_INVOKED.match(text)
    record = None if killed or invoked else _OOM_RECORD.search(text)
    reaped = None if killed or invoked or record else _OOM_REAPED.search(text)
    found = killed or invoked or record or reaped
    if found is None:
        return None
    named = (_OOM_TASK.search(text) if record else found) or found
    groups = named.groupdict()
    in_cgroup = "MEMCG" in text or "cgroup" in text
    return Finding(
        family=Family.OOM,
        severity=_oom_severity(in_cgroup=in_cgroup, reaped=reaped is not None),
        # A job over its own limit is the job's doing; a whole machine out of memory is the host's.
        fault_class=FaultClass.APPLICATION if in_cgroup else FaultClass.HOST,
        start=found.start(),
        pid=to_pid(groups.get("pid")),
        process=plain_name(groups.get("process")),
        application_possible=True,
        echo=reaped is not None,
    )


def _oom_severity(*, in_cgroup: bool, reaped: bool) -> Severity:
    if reaped:
        return Severity.INFO
    return Severity.WARNING if in_cgroup else Severity.ERROR


HOST_RULES = RuleSet(
    tokens=(
        "edac ",
        "hardware error]",
        "machine check",
        "mce: ",
        "memory failure: 0x",
        "temperature above",
        "soft lockup",
        "hard lockup",
        "kernel panic",
        "rcu",
        "workqueue lockup",
        "blocked ",
        "oom",
        "kill process",
        "killed process",
    ),
    rules=(_edac, _mce, _cpu_hot, _lockup, _hung_task, _oom),
)
