"""Cases for people: what has one cause is one notification that is kept up to date."""

from __future__ import annotations

from dataclasses import replace

from gpuwarden_server.notifications.document import UNEDITED_KINDS
from gpuwarden_server.notifications.domain import MessageKind
from gpuwarden_server.notifications.planning.cases import (
    Case,
    CaseView,
    Member,
    Standing,
    case_key_of,
    joins,
    labels_of,
    line_of,
    place_of,
)
from gpuwarden_server.notifications.planning.desk import PlanDesk
from gpuwarden_server.notifications.planning.plans import Plan, Source

UPDATE_WAIT_S = 5.0
"""What joins a case within this time is told with one update."""
CAP_WINDOW_S = 600.0
_NEWS = ("severity", "fault_class", "decision", "node_id")


class CasePlan(Plan):
    """One message a cause: begun, kept up to date, ended."""

    def _open(self, desk: PlanDesk, member: Member, source: Source) -> None:
        home = self._home(desk, member)
        if home is None:
            home = self._new_case(desk, member)
            desk.save(replace(member, case_key=home.key))
            self._post(desk, home, MessageKind.TRIGGER, source)
            return
        desk.save(replace(member, case_key=home.key))
        home = replace(home, joined_at=desk.now).risen(member.severity)
        desk.save_case(home.noted(source.at, f"joined: {line_of(member.body)}"))
        self._post(desk, home, MessageKind.UPDATE, source)

    def _update(self, desk: PlanDesk, before: Member, after: Member, source: Source) -> None:
        if self._fold(desk, before, after, source):
            return
        desk.save(after)
        case = desk.case(self.endpoint, after.case_key)
        acknowledged = _phase(after) == "acknowledged" != _phase(before)
        news = any(before.body.get(name) != after.body.get(name) for name in _NEWS)
        if case is None or not (news or acknowledged):
            return  # it wiggles: cleared for a moment, back again
        case = case.risen(after.severity).noted(source.at, _told(after, source))
        if case.place == place_of(labels_of(before.body)):
            case = replace(case, place=place_of(labels_of(after.body)))
        desk.save_case(case)
        whole = acknowledged and CaseView(case, tuple(desk.members_of(case))).acknowledged
        kind = MessageKind.ACKNOWLEDGE if whole else MessageKind.UPDATE
        self._post(desk, case, kind, source)

    def _fold(self, desk: PlanDesk, before: Member, after: Member, source: Source) -> bool:
        """Whether its cause was found, told already, and it is told with that from now on."""
        if after.body.get("parent_id") in (None, before.body.get("parent_id")):
            return False
        home, former = self._case_of_parent(desk, after), desk.case(self.endpoint, after.case_key)
        if home is None or (former is not None and former.key == home.key):
            return False
        desk.save(replace(after, case_key=home.key))
        desk.save_case(home.noted(source.at, f"behind it: {line_of(after.body)}"))
        self._post(desk, home, MessageKind.UPDATE, source)
        if former is None or former.closed:
            return True
        desk.save(_left(after, source.at))
        told = former.noted(source.at, f"told with its cause: {line_of(after.body)}")
        closed = not desk.has_standing(former)
        desk.save_case(replace(told, closed=closed))
        self._post(desk, told, MessageKind.RESOLVE if closed else MessageKind.UPDATE, source)
        return True

    def _case_of_parent(self, desk: PlanDesk, member: Member) -> Case | None:
        parent = member.body.get("parent_id")
        cause = desk.member(self.endpoint, str(parent)) if parent else None
        case = desk.case(self.endpoint, cause.case_key) if cause is not None else None
        return case if case is not None and not case.closed else None

    def _close(self, desk: PlanDesk, member: Member, source: Source) -> None:
        desk.save(member)
        case = desk.case(self.endpoint, member.case_key)
        if case is None:
            return
        case = case.noted(source.at, _told(member, source))
        closed = not desk.has_standing(case)
        desk.save_case(replace(case, closed=closed))
        kind = MessageKind.RESOLVE if closed else MessageKind.UPDATE
        self._post(desk, case, kind, source)

    def _home(self, desk: PlanDesk, member: Member) -> Case | None:
        """The open case that an incident belongs to, None for one of its own."""
        if (of_parent := self._case_of_parent(desk, member)) is not None:
            return of_parent
        same = desk.case(self.endpoint, case_key_of(member.body))
        if same is not None and not same.closed:
            return same
        labels = labels_of(member.body)
        for case in desk.recent_cases(self.endpoint):
            if joins(case, labels, desk.now, self.endpoint.group_s):
                return case
        cap = self.endpoint.cases_per_10min
        if not cap or desk.cases_within(self.endpoint, CAP_WINDOW_S) < cap:
            return None
        desk.hold_back(self.endpoint, "capped")
        return desk.open_overflow(self.endpoint)

    def _new_case(self, desk: PlanDesk, member: Member) -> Case:
        labels = labels_of(member.body)
        cap = self.endpoint.cases_per_10min
        overflow = bool(cap) and desk.cases_within(self.endpoint, CAP_WINDOW_S) >= cap
        key = case_key_of(member.body)
        if overflow:
            key = f"gpuwarden:overflow:{member.subject}"
        case = Case(
            endpoint=self.endpoint.name,
            key=key,
            opened_at=desk.now,
            joined_at=desk.now,
            overflow=overflow,
            fault_class=labels.get("fault_class", ""),
            severity=member.severity,
            place=place_of(labels),
        )
        desk.begin_case(case)
        return case

    def _post(self, desk: PlanDesk, case: Case, kind: MessageKind, source: Source) -> None:
        due_at = desk.now
        if kind is MessageKind.UPDATE:
            if desk.waits_untried(self.endpoint, case.key):
                return
            stateless = self.endpoint.kind in UNEDITED_KINDS
            due_at += max(UPDATE_WAIT_S, self.endpoint.group_s) if stateless else UPDATE_WAIT_S
        elif kind is MessageKind.RESOLVE:
            desk.drop_updates(self.endpoint, case.key)
        message_id = f"{kind.value.replace('.', '_')}_{source.message_id}"
        desk.post(self.endpoint, kind, case.key, message_id, source.at, due_at=due_at)


def _left(member: Member, at: float) -> Member:
    """What a case keeps of a member that is told elsewhere: over, as far as this case goes."""
    body = {**member.body, "resolved_at": at}
    subject = f"{member.subject}/told"
    return replace(member, subject=subject, standing=Standing.OVER, since=at, body=body)


def _phase(member: Member) -> str:
    return str(member.body.get("phase"))


def _told(member: Member, source: Source) -> str:
    return f"{line_of(member.body)} ({source.words})" if source.words else line_of(member.body)
