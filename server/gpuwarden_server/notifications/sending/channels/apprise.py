"""Whatever apprise reaches (mail, Matrix, …): told when a case begins, worsens and ends.

Apprise keeps no state, so nothing can be edited over there; and it resolves names itself, so that
the list of private networks does not hold for it.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from gpuwarden_server.core.errors import StartError
from gpuwarden_server.notifications.document import Endpoint
from gpuwarden_server.notifications.domain import Delivery, Message, MessageKind
from gpuwarden_server.notifications.planning.cases import Member, line_of
from gpuwarden_server.notifications.sending.channels.asking import ApproveUrl, asked
from gpuwarden_server.notifications.sending.channels.contract import Dispatch
from gpuwarden_server.notifications.sending.channels.news import is_news, known_of
from gpuwarden_verdict.entities import SEVERITY_RANK, Severity

LINES_SHOWN = 30


class AppriseChannel:
    """All targets of one endpoint."""

    def __init__(self, endpoint: Endpoint, approve_url: ApproveUrl) -> None:
        """Make a channel.

        Args:
            endpoint: Who is told.
            approve_url: Where people approve advice.

        Raises:
            StartError: Apprise is not installed, or knows no such target.
        """
        self._apprise = _load().Apprise()
        self._approve_url = approve_url
        for number, target in enumerate(endpoint.secrets):
            if not self._apprise.add(target):
                raise StartError(
                    f"notification endpoint {endpoint.name!r}: target {number + 1} is no URL that "
                    "apprise knows",
                    "Write it as apprise has it, such as mailto://USER:PASSWORD@HOST.",
                )

    def deliver(self, dispatch: Dispatch) -> Delivery:
        """See `Channel`."""
        message, view = dispatch.message, dispatch.view
        if message.kind is MessageKind.DIGEST:
            return self._digest(message)
        if view is None:
            return Delivery("its case is not kept any more", hopeless=True)
        if message.kind is not MessageKind.RESOLVE and not is_news(view):
            return Delivery()
        lines = [line_of(member.body) for member in view.members[:LINES_SHOWN]]
        if len(view.members) > LINES_SHOWN:
            lines.append(f"… and {len(view.members) - LINES_SHOWN} more")
        lines += [f"to approve: {what}: {url}" for what, url in asked(view, self._approve_url)]
        over = message.kind is MessageKind.RESOLVE
        title = f"{'resolved' if over else view.severity.value}: {view.title}"
        kind = "success" if over else _type_of(view.severity)
        delivery = self._notify(title, "\n".join(lines), kind)
        if not delivery.delivered:
            return delivery
        return Delivery(external=known_of(view))

    def test(self, now: float) -> Delivery:
        """See `Channel`."""
        return self._notify("A test of gpuwarden", "Nothing happened.", "info")

    def beat(self, now: float, members: Sequence[Member], *, scoring: bool) -> Delivery | None:
        """See `Channel`."""
        return None

    def close(self) -> None:
        """See `Channel`."""

    def _digest(self, message: Message) -> Delivery:
        told = msgspec.json.decode(message.payload)["data"]
        return self._notify(str(told["title"]), "\n".join(told["lines"]), "info")

    def _notify(self, title: str, text: str, kind: str) -> Delivery:
        taken = self._apprise.notify(body=text, title=title, notify_type=kind)
        return Delivery() if taken else Delivery("apprise could not tell", lane_down=True)


def _type_of(severity: Severity) -> str:
    return "failure" if SEVERITY_RANK[severity] >= SEVERITY_RANK[Severity.ERROR] else "warning"


def _load() -> Any:
    # It writes targets into its log lines, passwords included.
    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
    try:
        return importlib.import_module("apprise")
    except ModuleNotFoundError as error:
        raise StartError(
            f"an endpoint of kind apprise needs {error.name}, which is not installed",
            "pip install 'gpuwarden[notify]'",
        ) from None
