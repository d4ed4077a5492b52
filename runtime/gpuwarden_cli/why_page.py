"""The answer to "why", as people read it: verdict, evidence, decisions, score, gate."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from gpuwarden_cli.cost_words import cost_words
from gpuwarden_cli.output import console, moment, number, styled
from gpuwarden_runtime.explained import ExplanationRecord
from gpuwarden_runtime.plan_records import PinRecord
from gpuwarden_runtime.records import DecisionRecord, GateRecord, IncidentRecord, RiskRecord, Why


def print_why(answer: Why) -> None:
    """Print everything behind a verdict."""
    _print_verdict(answer)
    for incident in answer.incidents:
        _print_incident(incident)
    _print_decisions(answer.decisions)
    _print_pins(answer.pins)
    if answer.risk is not None:
        _print_score(answer.risk)
        if answer.explanation is None:
            _print_contributions(answer.risk)
        else:
            _print_explanation(answer.explanation)
    elif answer.verdict.entity_kind == "gpu":
        reason = answer.risk_missing or "the server does not say why"
        console().print(f"\nNo learnt score: {reason}.", markup=False)
    if answer.gate is not None:
        _print_gate(answer.gate)


def _print_verdict(answer: Why) -> None:
    verdict = answer.verdict
    line = Text(f"{answer.entity}: usable ")
    line.append_text(styled(verdict.usable)).append(", state ")
    line.append_text(styled(verdict.state))
    if verdict.since is not None:
        line.append(f" since {moment(verdict.since)}")
    console().print(line)
    facts = [
        ("why", verdict.why),
        ("confidence", number(verdict.confidence) if verdict.confidence is not None else ""),
        ("decided by", verdict.decided_by),
        ("action", verdict.action if verdict.action != "none" else ""),
        ("act mode would", verdict.would),
        ("standby", answer.standby),
    ]
    for name, value in facts:
        if value:
            console().print(f"  {name}: {value}", markup=False)


def _print_incident(incident: IncidentRecord) -> None:
    line = Text(f"\nIncident {incident.id} ({incident.fault_class}) ")
    line.append_text(styled(incident.phase)).append(" since ").append(moment(incident.opened_at))
    console().print(line)
    table = _table(("EVIDENCE", "SEVERITY", "SCORE", "TIMES", "LAST", "SENTENCE"))
    for item in incident.evidence:
        table.add_row(
            item.detector,
            styled(item.severity),
            number(item.score),
            str(item.count),
            moment(item.last_at),
            Text(item.sentence),
        )
    console().print(table if table.row_count else "  no evidence is kept")


def _print_decisions(decisions: Sequence[DecisionRecord]) -> None:
    table = _table(("DECISION", "PHASE", "BY", "MODE", "AT", "REASON", "LEDGER"))
    for decision in decisions:
        said = (*decision.reasons, decision.held_back_by, decision.waits_for)
        table.add_row(
            decision.id,
            styled(decision.phase),
            decision.decided_by,
            decision.mode,
            moment(decision.decided_at),
            Text("; ".join(text for text in said if text)),
            cost_words(decision.ledger),
        )
    if table.row_count:
        console().print(Text("\nDecisions"), table)
    for decision in decisions:
        if (held := decision.held) is not None:
            told = f"{decision.id} held until {moment(held.until)} by {held.by}: {held.reason}"
            console().print(told, markup=False, soft_wrap=True)
        if decision.phase == "in_force":
            undo = f"gpuwarden decisions revoke {decision.id} --reason TEXT"
            console().print(f"to take it back: {undo}", markup=False, soft_wrap=True)


def _print_pins(pins: Sequence[PinRecord]) -> None:
    for pin in pins:
        kind = "planned leave" if pin.leave else f"pinned: {pin.kind}"
        begins = f" from {moment(pin.starts_at)}" if pin.starts_at is not None else ""
        ends = f" until {moment(pin.expires_at)}" if pin.expires_at is not None else ""
        text = f"\n{pin.entity} {kind}{begins}{ends}, by {pin.by}: {pin.reason}"
        console().print(text, markup=False, soft_wrap=True)
        undo = f"to end it: gpuwarden unpin {pin.entity} --reason TEXT"
        console().print(undo, markup=False, soft_wrap=True)


def _print_score(risk: RiskRecord) -> None:
    console().print(
        f"\nLearnt score: {risk.probability:.1%} that action is needed"
        f" ({risk.fault_class}; model {risk.model_version})",
        markup=False,
    )


def _print_explanation(explanation: ExplanationRecord) -> None:
    table = _table(("LINE", "LOG-ODDS", "WHAT SPEAKS"))
    for line in explanation.lines:
        table.add_row(line.name, f"{line.log_odds:+.3f}", Text(line.sentence))
    table.add_row("sum", f"{explanation.log_odds:+.3f}", "", style="bold")
    console().print(table)
    for title, sentences in (
        ("What moves it most:", [f"{o.sentence} ({o.said})" for o in explanation.leading]),
        ("What it would be:", [one.sentence for one in explanation.without]),
    ):
        if sentences:
            console().print(f"\n{title}")
        for sentence in sentences:
            console().print(f"  - {sentence}", markup=False)


def _print_contributions(risk: RiskRecord) -> None:
    table = _table(("CONTRIBUTION", "PLANE", "VALUE", "LOG-ODDS"))
    for term in sorted(risk.contributions, key=lambda term: -abs(term.log_odds)):
        table.add_row(term.name, term.plane or "-", number(term.value, 4), f"{term.log_odds:+.3f}")
    total = sum(term.log_odds for term in risk.contributions)
    table.add_row("sum", "", "", f"{total:+.3f}", style="bold")
    console().print(table)


def _print_gate(gate: GateRecord) -> None:
    if gate.open:
        console().print("\nThe score may act alone.")
        return
    console().print("\nThe score may not act alone; missing:")
    for reason in gate.missing:
        console().print(f"  - {reason}", markup=False)


def _table(columns: tuple[str, ...]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 2))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
