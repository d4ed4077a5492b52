"""How well the kernel-log parser reads public lines: the table that the contract test prints.

Labels come with the lines. Where one is wrong it is corrected here, by id, with the reason.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gpuwarden_kernel_log import Family, KernelEvent, Severity, parse_line, scan_lines

_Z = 1.959964  # two-sided 95 % of the normal distribution

# A label of the lines' owner, in our families; SILENT stands for no event, or one of severity info.
SILENT = "silent"
_LABELS: dict[str, frozenset[str]] = {
    "gpu_lost_no_xid": frozenset({"gpu_lost"}),
    "gpu_handle_error": frozenset({"gpu_lost"}),
    "nvrm_other": frozenset({"other_nvrm"}),
    "aer_corrected": frozenset({"aer_correctable"}),
    "aer_fatal": frozenset({"aer_uncorrectable"}),
    "blk_error": frozenset({"block_error"}),
    "nfs_down": frozenset({"nfs_timeout"}),
    "nfs_hang": frozenset({"nfs_timeout"}),
    "nic_health": frozenset({"nic_error", SILENT}),
    "nic_other": frozenset({"nic_error", SILENT}),
    "nic_pcie_bw": frozenset({"nic_error", SILENT}),
    "nvrm_info": frozenset({SILENT}),
    "nfs_ok": frozenset({SILENT}),
    "benign_other": frozenset({SILENT}),
    "segfault": frozenset({SILENT}),
}

_INVENTORY = "inventory of memory controllers at boot: no error in it"
_INVENTORY_LINES = (
    "L02cc4891a4",
    "L179ed7308d",
    "L17f2c865fa",
    "L325c1affac",
    "L54d8d0d1c3",
    "L5b5e191220",
    "L6059e30e46",
    "L6fc6c24bf8",
    "L7143bc85a2",
    "L7347b8144d",
    "L76dd788953",
    "L98bd74e160",
    "La6558a7fe5",
    "Lac6185a8c5",
    "Lacef76b13e",
    "Lbd9a2f7011",
    "Lbe28568504",
    "Ld9cf5feb65",
    "Ldcaf2b0533",
    "Le5ef160d5f",
    "Lf346da227d",
    "Lfaff8cd3b1",
)
_HUNG = "a hung task, for which there is a family of its own"
CORRECTIONS: dict[str, tuple[str, str]] = {
    "L6c8a39cfd2": (SILENT, "header of a stack dump of any driver: names no fault"),
    "L54d70d6ad4": (SILENT, "counts the MCE banks at boot"),
    "L68e08064e4": (SILENT, "a sentence of a manual about XID 79, not a log line"),
    "L73eabd86c0": (SILENT, "a sentence that quotes the prefix, not a log line"),
    "Lac6aaa02f6": (SILENT, "a sentence about oom-killer lines, not a log line"),
    "L35954e5321": ("hung_task", _HUNG),
    "Lb4375b21b2": ("hung_task", _HUNG),
    "Lfe63fefc8d": ("hung_task", _HUNG),
    "L633bd63761": ("block_error", "a disk failed in an array: nothing became read-only"),
    "Lb5ce3ed052": ("aer_uncorrectable", "CmpltTO is a bit of the uncorrectable register"),
    "L3572cd0b9d": ("aer_uncorrectable", "printed only while recovering an uncorrectable error"),
    **dict.fromkeys(_INVENTORY_LINES, (SILENT, _INVENTORY)),
}


@dataclass(frozen=True, slots=True)
class LabelledLine:
    """One public line with its owner's label."""

    line_id: str
    line: str
    label: str
    code: str
    address: str
    provenance: str

    @property
    def group(self) -> str:
        """Whether the line was captured (real) or written for a test (vendor)."""
        return "real" if self.provenance.startswith("real-") else "vendor"


@dataclass(slots=True)
class Score:
    """Right answers out of all, for a group and a label."""

    right: int = 0
    total: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Share of right answers, 0 to 1; NaN without lines."""
        return self.right / self.total if self.total else math.nan


def wilson(right: float, total: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, as a pair of 0 to 1.

    Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    if total == 0:
        return 0.0, 1.0
    share = right / total
    spread = _Z * math.sqrt(share * (1 - share) / total + _Z**2 / (4 * total**2))
    middle = share + _Z**2 / (2 * total)
    scale = 1 + _Z**2 / total
    return (middle - spread) / scale, (middle + spread) / scale


def read_lines(folder: Path) -> Iterator[LabelledLine]:
    """The labelled lines of the public folder."""
    with (folder / "klog" / "klog_lines.jsonl").open(encoding="utf-8") as rows:
        for row in map(json.loads, rows):
            yield LabelledLine(
                line_id=row["id"],
                line=row["line"],
                label=row["family"],
                code=row["code"],
                address=row["pci"],
                provenance=row["provenance"],
            )


def expected(line: LabelledLine, *, corrected: bool = True) -> frozenset[str]:
    """The answers that count as right for a line."""
    if corrected and line.line_id in CORRECTIONS:
        return frozenset({CORRECTIONS[line.line_id][0]})
    if line.label == "gsp":
        starts = "RmInitAdapter" in line.line or "rm_init_adapter" in line.line
        return frozenset({"rm_init_failed" if starts else "other_nvrm"})
    return _LABELS.get(line.label, frozenset({line.label}))


def is_right(event: KernelEvent | None, answers: frozenset[str]) -> bool:
    """Whether an event is among the right answers."""
    if SILENT in answers and (event is None or event.severity is Severity.INFO):
        return True
    return event is not None and event.family.value in answers


def score_families(folder: Path, *, corrected: bool = True) -> dict[tuple[str, str], Score]:
    """Family scores by (group, label); the label "all" sums a group."""
    scores: dict[tuple[str, str], Score] = {}
    for line in read_lines(folder):
        event = parse_line(line.line)
        right = is_right(event, expected(line, corrected=corrected))
        for label in ("all", line.label):
            score = scores.setdefault((line.group, label), Score())
            score.total += 1
            score.right += right
            if not right:
                score.wrong.append(f"{line.line_id} {line.label} -> {event and event.family.value}")
    return scores


def score_codes(folder: Path) -> dict[tuple[str, str], Score]:
    """Scores of exact code and PCI address by (group, xid or sxid)."""
    scores: dict[tuple[str, str], Score] = {}
    for line in read_lines(folder):
        if line.label not in ("xid", "sxid"):
            continue
        event = parse_line(line.line)
        address = line.address.lower()
        wanted = address if "." in address else f"{address}.0"
        code = event and (event.xid if line.label == "xid" else event.sxid)
        score = scores.setdefault((line.group, line.label), Score())
        right = event is not None and str(code) == line.code and event.pci_bus_id == wanted
        score.total += 1
        score.right += right
        if not right:
            score.wrong.append(f"{line.line_id} {line.code} {wanted} -> {event}")
    return scores


def benign_hits(folder: Path) -> dict[str, tuple[int, list[str]]]:
    """Lines of each benign log, and the ones taken for an error.

    BGL and Thunderbird: the lines that their owners marked as no alert. Linux: all of them, whose
    own faults, if any, the caller judges.
    """
    found = {}
    for name in ("BGL", "Thunderbird", "Linux"):
        raw = (folder / "loghub" / f"{name}_2k.log").read_bytes().splitlines()
        lines = [line for line in raw if name == "Linux" or line.startswith(b"-")]
        hits = [
            f"{event.family.value}: {event.text[:100]}"
            for _, event in scan_lines(lines)
            if event.severity is not Severity.INFO
        ]
        found[name] = (len(lines), hits)
    return found


def render(folder: Path) -> str:
    """The whole table as text. Marked public data: no line of it is ours."""
    out = ["kernel-log lines (public data)", ""]
    out.append(f"{'group':8}{'what':28}{'right':>7}{'of':>6}{'share':>9}   95 % Wilson")
    for (group, kind), score in sorted(score_codes(folder).items()):
        out.append(_row(group, f"{kind} code + address", score))
    families = score_families(folder)
    as_given = score_families(folder, corrected=False)
    for group in ("real", "vendor"):
        out.append(_row(group, "family, all", families[group, "all"]))
        out.append(_row(group, "family, labels as given", as_given[group, "all"]))
    for (group, label), score in sorted(families.items()):
        if label != "all":
            out.append(_row(group, f"  {label}", score))
    hits = benign_hits(folder)
    total, false = 0, 0
    for name, (lines, wrong) in hits.items():
        total, false = total + lines, false + len(wrong)
        out.append(f"benign  {name:28}{len(wrong):>7}{lines:>6}   false error hits")
    low, high = wilson(false, total)
    out.append(
        f"benign  {'all':28}{false:>7}{total:>6}{1000 * false / total:>8.2f} per 1,000 lines"
        f"   {1000 * low:.2f} to {1000 * high:.2f}"
    )
    return "\n".join(out)


def _row(group: str, what: str, score: Score) -> str:
    low, high = wilson(score.right, score.total)
    share = f"{score.share:.1%}"
    return f"{group:8}{what:28}{score.right:>7}{score.total:>6}{share:>9}   {low:.1%} to {high:.1%}"


def families_seen(folder: Path) -> Counter[Family]:
    """How often each family was answered, over all labelled lines."""
    events = (parse_line(line.line) for line in read_lines(folder))
    return Counter(event.family for event in events if event is not None)
