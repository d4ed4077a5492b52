"""/approve/TOKEN: a page that shows waiting advice and asks; only the POST from it approves.

Whoever opens the link changes nothing: chat and mail programs open what they see. The key is the
link itself, so the page asks for a name, and the audit says that it came by a link.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from string import Template
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from gpuwarden_server.console.page import page_headers
from gpuwarden_server.core.errors import ProblemError
from gpuwarden_server.decisions import repository
from gpuwarden_server.decisions.links import ApprovalLinks, Claim
from gpuwarden_server.decisions.ports import Author, DecisionDesk, shown_of
from gpuwarden_server.decisions.repository import StoredDecisionMove
from gpuwarden_server.decisions.schemas import rung_name
from gpuwarden_server.store.database import Database
from gpuwarden_verdict.exclusions import covers
from gpuwarden_verdict.incidents.moves import GPUWARDEN
from gpuwarden_verdict.policy.approval import LINK
from gpuwarden_verdict.policy.document import Decision, DecisionPhase, Mode
from gpuwarden_verdict.policy.words import approvable

LARGEST_FORM = 8192
LONGEST_NAME = 100
LONGEST_REASON = 1000
_CHANGED = (
    "Nothing was approved: it asks for something else than the page that you saw. "
    "This is what it asks for now."
)
_WAITS = frozenset({DecisionPhase.PROPOSED, DecisionPhase.HELD_BACK})


def approval_router(links: ApprovalLinks, state: Database, desk: DecisionDesk) -> APIRouter:
    """The page and what its button does."""
    pages = _Pages(links, state, desk)
    router = APIRouter(tags=["console"])

    @router.get("/approve/{token}", include_in_schema=False)
    def show(token: str) -> Response:
        return pages.show(token)

    @router.post("/approve/{token}", include_in_schema=False)
    async def press(token: str, request: Request) -> Response:
        body = await request.body()
        return await run_in_threadpool(pages.press, token, body)

    return router


class _Pages:
    """Answers of both routes."""

    def __init__(self, links: ApprovalLinks, state: Database, desk: DecisionDesk) -> None:
        self._links = links
        self._state = state
        self._desk = desk
        text = files("gpuwarden_server.console").joinpath("approval.html")
        self._frame = Template(text.read_text(encoding="utf-8"))

    def show(self, token: str) -> Response:
        """What is asked, or why nothing is."""
        found = self._found(token)
        if isinstance(found, Response):
            return found
        decision, moves, made_at = found
        if not _asks(decision, moves, made_at):
            return self._over(decision, moves)
        return self._ask(token, decision)

    def press(self, token: str, body: bytes) -> Response:
        """Approve, where the page of this very link sent it."""
        found = self._found(token)
        if isinstance(found, Response):
            return found
        decision, moves, made_at = found
        if not _asks(decision, moves, made_at):
            return self._over(decision, moves)
        told = _fields(body)
        shown = self._links.shown(token, told.get("word", ""))
        if shown is None:
            return self._page(
                400, "Nothing was approved", _p("That did not come from this page. Open the link.")
            )
        if shown.differs(decision):
            return self._ask(token, decision, _CHANGED, 409)
        name = told.get("name", "")[:LONGEST_NAME]
        if not name:
            return self._ask(token, decision, "Please say who you are: it goes into the audit.")
        reason = told.get("reason", "")[:LONGEST_REASON] or "approved by a link in a notification"
        try:
            self._desk.approve(decision.id, Author(f"{name} (link)", None, reason, LINK), shown)
        except ProblemError as error:
            said = _p(error.detail, "failed") + _p(error.mend)
            return self._page(error.status, "Nothing was approved", said)
        return self._over(*self._read(decision.id))

    def _found(self, token: str) -> tuple[Decision, list[StoredDecisionMove], float] | Response:
        """The decision of a link and when that was made, or the page that says why none."""
        claim = self._links.read(token)
        if claim is None:
            said = _p("It was not made by this server, or not all of it was copied.")
            return self._page(404, "This link is not valid", said)
        with self._state.read() as connection:
            known = repository.read_one(connection, claim.decision_id)
        if known is None:
            said = _p("What it was about is not kept any more.")
            return self._page(410, "This link is too old", said)
        decision, moves = self._read(claim.decision_id)
        if claim.is_over:
            return self._expired(claim)
        return decision, moves, claim.made_at

    def _read(self, decision_id: str) -> tuple[Decision, list[StoredDecisionMove]]:
        with self._state.read() as connection:
            known = repository.read_one(connection, decision_id)
            moves = repository.read_moves(connection, decision_id)
        if known is None:
            raise ProblemError(404, "not_found", f"no decision {decision_id!r}", "Open the link.")
        return known[0], moves

    def _ask(self, token: str, decision: Decision, failed: str = "", status: int = 200) -> Response:
        what = f"{rung_name(shown_of(decision).rung).capitalize()} {_named(decision)}?"
        body = _reasons(decision) + _facts(decision)
        if decision.mode is Mode.OBSERVE:
            return self._page(
                status, what, body + _p("Its pool only observes: nothing can be put in force.")
            )
        word = escape(self._links.word(token, shown_of(decision)), quote=True)
        body += (
            _p(failed, "failed")
            + '<form method="post">'
            + f'<input type="hidden" name="word" value="{word}">'
            + f'<label>Your name<input name="name" required maxlength="{LONGEST_NAME}"'
            + ' autocomplete="name"></label>'
            + f'<label>Why (optional)<input name="reason" maxlength="{LONGEST_REASON}"></label>'
            + "<button>Approve</button></form>"
            + _p(
                "Approved, it is in force at once. To take it back: "
                f"gpuwarden decisions revoke {decision.id} --reason TEXT",
                "soft",
            )
        )
        return self._page(status, what, body)

    def _over(self, decision: Decision, moves: list[StoredDecisionMove]) -> Response:
        """It waits no more: who approved it, or what became of it."""
        approved = _approvals(moves)
        title = f"{_named(decision)}: {decision.phase.value.replace('_', ' ')}"
        said = ""
        if approved:
            last = approved[-1]
            said += _p(f"Approved by {last.author} at {_moment(last.at)}: {last.reason}")
        ended = moves[-1] if moves and decision.phase is not DecisionPhase.IN_FORCE else None
        if ended is not None:
            what = decision.phase.value.replace("_", " ")
            said += _p(f"It is {what} since {_moment(ended.at)}, by {ended.author}: {ended.reason}")
        said += _p("This link has done what it could: it approves nothing more.", "soft")
        return self._page(200, title, said + _facts(decision))

    def _expired(self, claim: Claim) -> Response:
        said = _p("It approves nothing, and tells nothing any more. With a key, ask for:")
        said += _p(f"gpuwarden decisions list, decision {claim.decision_id}")
        return self._page(410, "This link has expired", said)

    def _page(self, status: int, title: str, body: str) -> Response:
        page = self._frame.substitute(title=escape(title), body=body)
        headers = page_headers(page, "'self'") | {"Cache-Control": "no-store"}
        return Response(page, status, headers, media_type="text/html; charset=utf-8")


def _asks(decision: Decision, moves: list[StoredDecisionMove], made_at: float) -> bool:
    """Whether a link still has something to ask for; one that was made before an approval has not.

    What rises afterwards is asked for by a link of its own.
    """
    if any(move.at >= made_at for move in _approvals(moves)):
        return False
    return decision.phase in _WAITS or approvable(decision) is not None


def _approvals(moves: list[StoredDecisionMove]) -> list[StoredDecisionMove]:
    """Moves that brought it into force, and those by which a person raised it."""
    found, rung = [], 0
    for move in moves:
        if move.after == DecisionPhase.IN_FORCE:
            raised = move.before == DecisionPhase.IN_FORCE and move.rung > rung
            if move.before in _WAITS or (raised and move.author != GPUWARDEN):
                found.append(move)
        rung = move.rung
    return found


def _fields(body: bytes) -> dict[str, str]:
    """Fields of the form, in one line of signs that can be shown; what is too long is none."""
    if len(body) > LARGEST_FORM:
        return {}
    try:
        parsed = parse_qs(body.decode("utf-8", "replace"), max_num_fields=10)
    except ValueError:
        return {}
    plain = str.maketrans({"\n": " ", "\r": " ", "\t": " "})
    return {
        name: "".join(c for c in values[0].translate(plain) if c.isprintable()).strip()
        for name, values in parsed.items()
    }


def _named(decision: Decision) -> str:
    entity = decision.entity
    if entity.key == entity.node_id:
        return f"node {entity.node_id}"
    return f"{entity.kind.value.upper()} {entity.key} on {entity.node_id}"


def _reasons(decision: Decision) -> str:
    return "".join(_p(reason) for reason in decision.reasons[:5])


def _facts(decision: Decision) -> str:
    told: Iterable[tuple[str, str]] = (
        ("decision", decision.id),
        ("asks for", rung_name(shown_of(decision).rung)),
        ("in force", rung_name(decision.rung) if covers(decision) else ""),
        ("fault", decision.fault_class.value),
        ("confidence", f"{decision.confidence:.0%}"),
        ("decided by", decision.decided_by),
        ("decided at", _moment(decision.decided_at)),
        ("held back by", decision.guard),
    )
    rows = (f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in told if text)
    return f"<dl>{''.join(rows)}</dl>"


def _p(text: str, kind: str = "") -> str:
    marked = f' class="{kind}"' if kind else ""
    return f"<p{marked}>{escape(text)}</p>" if text else ""


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
