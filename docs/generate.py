"""Writes the reference tables of docs/ from the registries: `make docs`. A test compares them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from gpuwarden_agent.config import setting_docs
from gpuwarden_kernel_log import Family, xid_codes, xid_entry
from gpuwarden_server.config import Settings
from gpuwarden_wire.registry import METRICS

DOCS = Path(__file__).resolve().parent


def pages() -> Mapping[str, str]:
    """Text of every generated page by file name."""
    return {
        "metrics.md": _metrics(),
        "kernel-log.md": _kernel_log(),
        "settings.md": _settings(),
    }


def _metrics() -> str:
    rows = (
        (f"`{m.name}`", m.entity_kind, m.kind, m.unit or "1", m.source, m.dcgm_name, m.speaks_to)
        for m in METRICS
    )
    return _page(
        "Metrics",
        "Every series that the agent collects. The agent's own `/metrics` shows them with the "
        "prefix `gpuwarden_` and the labels `node` and `gpu_uuid`, `device`, `mount` or none.",
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
