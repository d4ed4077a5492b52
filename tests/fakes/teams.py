"""A workflow of Power Automate that posts cards to a Teams channel; refuses what it would refuse.

The trigger takes a message whose attachments are Adaptive Cards; of these, elements and values as
the schema of Adaptive Cards 1.4 has them, and at most 28 KB in all, which is Teams' own limit.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.answering import Posted, Reply

LARGEST = 28 * 1024
_COLOURS = {"default", "dark", "light", "accent", "good", "warning", "attention"}
_SIZES = {"default", "small", "medium", "large", "extraLarge"}
_WEIGHTS = {"default", "lighter", "bolder"}
_CARD = {"$schema", "type", "version", "msteams", "body", "actions"}
_TEXT = {"type", "text", "wrap", "size", "weight", "color"}


@dataclass
class Teams:
    """One workflow and its channel.

    Attributes:
        signature: Of the address, without which nothing is taken.
        answers: Answers to give before it works, in order.
        cards: Cards in the channel.
    """

    signature: str = "s1gn-ature"
    answers: list[Reply] = field(default_factory=list)
    cards: list[dict[str, Any]] = field(default_factory=list)

    def path(self) -> str:
        """The address without its host."""
        return f"/workflows/0a1b/triggers/manual/paths/invoke?api-version=1&sig={self.signature}"

    def answer(self, posted: Posted) -> Reply:
        """Post a card, or refuse it."""
        if self.answers:
            return self.answers.pop(0)
        if posted.path != self.path():
            return Reply(401, b'{"error":{"code":"DirectApiAuthorizationRequired"}}')
        wrong = _wrong(posted)
        if wrong:
            return Reply(400, json.dumps({"error": {"code": wrong}}).encode())
        self.cards += [one["content"] for one in json.loads(posted.body)["attachments"]]
        return Reply(202)

    def titles(self) -> list[str]:
        """First lines of the cards."""
        return [str(card["body"][0]["text"]) for card in self.cards]


def _wrong(posted: Posted) -> str:
    if posted.headers["content-type"] != "application/json":
        return "no JSON"
    if len(posted.body) > LARGEST:
        return "too large"
    message = json.loads(posted.body)
    if set(message) != {"type", "attachments"} or message["type"] != "message":
        return "no message"
    for one in message["attachments"]:
        if set(one) != {"contentType", "contentUrl", "content"} or one["contentUrl"] is not None:
            return "no attachment"
        if one["contentType"] != "application/vnd.microsoft.card.adaptive":
            return "no card"
        if wrong := _wrong_card(one["content"]):
            return wrong
    return "" if message["attachments"] else "no attachments"


def _wrong_card(card: dict[str, Any]) -> str:
    if not set(card) <= _CARD or card["type"] != "AdaptiveCard" or card["version"] != "1.4":
        return "no Adaptive Card"
    if card["$schema"] != "http://adaptivecards.io/schemas/adaptive-card.json":
        return "another schema"
    for action in card.get("actions", []):
        if set(action) != {"type", "title", "url"} or action["type"] != "Action.OpenUrl":
            return "no action"
    wrong = [element for element in card["body"] if not _is_element(element)]
    return f"no element: {wrong[0]}" if wrong else ""


def _is_element(element: dict[str, Any]) -> bool:
    match element["type"]:
        case "TextBlock":
            return (
                set(element) <= _TEXT
                and isinstance(element["text"], str)
                and element["text"] != ""
                and element.get("wrap") in (True, False)
                and element.get("color", "default") in _COLOURS
                and element.get("size", "default") in _SIZES
                and element.get("weight", "default") in _WEIGHTS
            )
        case "FactSet":
            return set(element) == {"type", "facts"} and all(
                set(fact) == {"title", "value"} and all(isinstance(v, str) for v in fact.values())
                for fact in element["facts"]
            )
    return False
