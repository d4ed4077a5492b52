"""Writes the reference tables of docs/ from the registries: `make docs`. A test compares them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from gpuwarden_agent.config import setting_docs
from gpuwarden_exporters.dcgm import XID_NAMES
from gpuwarden_exporters.dcgm_fields import FIELDS
from gpuwarden_exporters.mounts import MOUNT_RULES, MOUNTSTATS
from gpuwarden_exporters.node import NODE_COLLECTORS
from gpuwarden_exporters.smi import (
    ALL_SMI,
    ALL_SMI_RULES,
    NVIDIA_SMI,
    NVIDIA_SMI_RULES,
)
from gpuwarden_kernel_log import Family, xid_codes, xid_entry
from gpuwarden_server.config import Settings
from gpuwarden_verdict.detectors import EVENT_DETECTORS, SWEEP_DETECTORS
from gpuwarden_verdict.detectors.about import Described
from gpuwarden_verdict.detectors.xid_rules import XID_RULES, Same
from gpuwarden_verdict.features import FEATURE_COLUMNS, FEATURE_SETS
from gpuwarden_wire.registry import METRICS

DOCS = Path(__file__).resolve().parent


def pages() -> Mapping[str, str]:
    """Text of every generated page by file name."""
    return {
        "metrics.md": _metrics(),
        "kernel-log.md": _kernel_log(),
        "settings.md": _settings(),
        "exporter-series.md": _exporter_series(),
        "detectors.md": _detectors(),
        "features.md": _features(),
    }


def _metrics() -> str:
    rows = (
        (f"`{m.name}`", m.entity_kind, m.kind, m.unit or "1", m.source, m.dcgm_name, m.speaks_to)
        for m in METRICS
    )
    return _page(
        "Metrics",
        "Every series that the agent collects. The agent's own `/metrics` shows them with the "
        "prefix `gpuwarden_` and the labels `node` and `gpu_uuid`, `device`, `mount` or none. "
        "It is off until `GPUWARDEN_AGENT_METRICS_PORT` gives it a port.",
        ("metric", "of", "kind", "unit", "source", "dcgm-exporter's name", "speaks to"),
        rows,
    )


def _kernel_log() -> str:
    entries = [entry for code in xid_codes() if (entry := xid_entry(code))]
    rows = (
        (
            str(entry.code),
            entry.name,
            entry.severity,
            entry.action or "",
            entry.fault_class or "",
            "yes" if entry.application_possible else "",
            "yes" if entry.echo else "",
            "yes" if entry.acts_alone else "",
        )
        for entry in entries
    )
    families = ", ".join(f"`{family}`" for family in Family)
    return _page(
        "Kernel log",
        "`gpuwarden kernel-log scan FILE` reads any wrapper (dmesg, syslog, journald, kmsg, "
        f"containers) and knows these families: {families}.\n\n"
        "The XID catalogue: the action is the immediate one of NVIDIA's XID catalogue; a code that "
        "*acts alone* may exclude a GPU without settling or corroboration, an *echo* never opens "
        "an incident by itself, and what a *program* can cause is judged with the rest of its job. "
        "What an XID means when it comes again stands in [detectors.md](detectors.md). "
        "XID 48 with a 63 or 64 within 30 s asks for a drain of the GPU; a fatal driver code "
        "that does not act alone (46, 62, 119 and others), told by more than half of a node's "
        "GPUs within 30 s, is advice about the node and excludes none of them. "
        "A line that a program may have written acts never (see [wire.md](wire.md#event)).",
        ("XID", "what", "severity", "action", "class", "program", "echo", "acts alone"),
        rows,
    )


def _settings() -> str:
    server = (
        (f"`GPUWARDEN_{name.upper()}`", _default(field.default), field.description or "")
        for name, field in Settings.model_fields.items()
    )
    agent = (
        (f"`{doc.variable}`", doc.default and f"`{doc.default}`", doc.doc) for doc in setting_docs()
    )
    head = ("setting", "default", "what")
    return (
        _page("Settings", "Environment variables. The server's:", head, server)
        + "\nThe agent's; each is also a flag, `GPUWARDEN_AGENT_INTERVAL_S` is `--interval-s`:\n\n"
        + _table(head, agent)
    )


def _exporter_series() -> str:
    """Which series of which exporter becomes which metric."""
    rows = [
        (
            f"`{one.rule.metric}`",
            "dcgm-exporter",
            ", ".join(f"`{name}`" for name in one.names),
            f"field {one.number}",
        )
        for one in FIELDS
    ]
    rows += [
        ("XID events", "dcgm-exporter", f"`{name}`", form.replace("_", " "))
        for name, form in XID_NAMES.items()
    ]
    for exporter, prefix, rules in (
        ("nvidia_gpu_exporter", NVIDIA_SMI, NVIDIA_SMI_RULES),
        ("all-smi", ALL_SMI, ALL_SMI_RULES),
    ):
        rows += [(f"`{r.metric}`", exporter, f"`{prefix}{n}`", "") for n, r in rules.items()]
    for collector, (prefix, rules) in NODE_COLLECTORS.items():
        rows += [
            (f"`{r.metric}`", "node_exporter", f"`{prefix}{n}`", f"collector {collector}")
            for n, r in rules.items()
        ]
    rows += [
        (f"`{r.metric}`", "node_exporter", f"`{MOUNTSTATS}{n}`", "collector mountstats")
        for n, rules in MOUNT_RULES.items()
        for r in rules
    ]
    return _page(
        "Series of exporters",
        "What gpuwarden takes from other exporters; [exporters.md](exporters.md) says how. All "
        "names of a DCGM field count, the newest last.",
        ("metric", "exporter", "series", "from"),
        rows,
    )


def _features() -> str:
    """What the learnt scores look at."""
    head = ("feature", "plane", "unit", "sign", "points at", "first stage", "what", "missing when")
    parts = []
    for kind, columns in FEATURE_COLUMNS.items():
        rows = (
            (
                f"`{one.feature.name}`",
                one.feature.plane,
                one.feature.unit,
                _SIGNS[one.feature.monotone],
                one.feature.fault_class,
                "yes" if one.feature.cheap else "",
                one.make.said,
                one.make.missing,
            )
            for one in columns
        )
        known = FEATURE_SETS[kind]
        title = f"## {kind}: {len(known)} features, schema `{known.schema_hash}`"
        parts.append(f"\n{title}\n\n{_table(head, rows)}")
    return (
        "# Features\n\n"
        "<!-- Written by docs/generate.py; edit the registry, not this page. -->\n\n"
        "What the learnt scores of GPUs, nodes and ports (`nic`) look at: one path makes them, "
        "from the same windows, for training and for serving. A feature that is *missing* is so "
        "in the model too, never 0: of a node that is not heard of nothing is concluded. Sign + "
        "says that more of it never lowers the risk. Peers are of the same job in the same "
        "phase, else of the same model under the same load. What is *on record of the part* is "
        "the ledger: it follows a board by its serial number, starts anew with another board, "
        "and is looked at only once it is a day old, so that the present case does not count "
        "twice. The first stage looks at a few features that cost next to nothing; only what it "
        "lets through is scored. A model names its schema; one of another schema is refused.\n"
        + "".join(parts)
    )


_SIGNS = {1: "+", -1: "−", 0: "free"}


def _detectors() -> str:
    """What every detector reads, says and asks for."""
    rows = []
    for detector in (*EVENT_DETECTORS, *SWEEP_DETECTORS):
        if not isinstance(detector, Described):
            raise TypeError(f"detector {detector.name} has no `about`: detectors/about.py")
        about = detector.about
        rows.append(
            (
                f"`{detector.name}`",
                about.plane,
                ", ".join(f"`{name}`" for name in about.reads),
                about.says,
                about.limit,
                about.max_rung.name.lower(),
                about.clears,
            )
        )
    page = _page(
        "Detectors",
        "All that may speak about a GPU, node, port, disk or mount. A detector reads events as "
        "they arrive, or the state of the whole fleet every few seconds. What it says is evidence "
        "of an incident; the highest rung is what that evidence may support, however sure it is. "
        "A reading that is missing, not supported or old says nothing, and so does a node that is "
        "not heard of. What a limit rests on stands beside it in the source: NVIDIA's own number "
        "where there is one, else it is marked as assumed.",
        ("detector", "plane", "reads", "says", "limit", "highest rung", "what clears it"),
        rows,
    )

    return page + _REPEATS_LEAD + _table(_REPEATS_HEAD, _repeats())


_REPEATS_LEAD = """
## XIDs that come again

The rules of `xid_repeat`. Lines near together are one occurrence; a passed check starts the count
anew; codes that only echo another fault are in no rule. *Alone*: only where no other GPU of the
node tells the code within the window, since what strikes several is a program's doing.

"""
_REPEATS_HEAD = ("codes", "the same", "times", "within", "alone", "highest rung", "means")


def _repeats() -> Iterable[tuple[str, ...]]:
    for rule in XID_RULES:
        yield (
            ", ".join(str(code) for code in sorted(rule.codes)),
            {Same.GPU: "GPU", Same.CLUSTER: "GPC and TPC", Same.LINK: "NVLink"}[rule.same],
            str(rule.count),
            f"{rule.window_s / 3600:g} h",
            "yes" if rule.alone else "",
            rule.weight.max_rung.name.lower(),
            rule.says,
        )


def _default(value: object) -> str:
    return f"`{value}`" if value not in (None, "", ()) else ""


def _page(title: str, lead: str, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    note = "<!-- Written by docs/generate.py; edit the registry, not this page. -->"
    return f"# {title}\n\n{note}\n\n{lead}\n\n{_table(head, rows)}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in lines
    )


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text, encoding="utf-8")
