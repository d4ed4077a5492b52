"""Looks at everything that a start would read, and starts nothing: `gpuwarden config check`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from gpuwarden_server.actuators.document import Target
from gpuwarden_server.actuators.feature import make_actuator, passed_variables
from gpuwarden_server.actuators.parse import load_actuators
from gpuwarden_server.actuators.ports import Actuator, ActuatorError
from gpuwarden_server.actuators.schemas import kind_of
from gpuwarden_server.config import Settings, load_settings, unknown_variables, variable
from gpuwarden_server.core.errors import StartError
from gpuwarden_server.decisions.policy import load_policy
from gpuwarden_server.learning.models import load_models
from gpuwarden_server.notifications.http import poster_maker
from gpuwarden_server.notifications.settings import NotifySettings, load_networks, load_notify
from gpuwarden_server.serving import bind_socket
from gpuwarden_server.store.versions import describe_store
from gpuwarden_verdict.actuation import Hold


class Outcome(StrEnum):
    """What a look found."""

    GOOD = "good"
    NOTE = "note"  # the server starts, with less than it could
    WRONG = "wrong"  # the server would not start


@dataclass(frozen=True, slots=True)
class Look:
    """One thing that was looked at.

    Attributes:
        part: What it is.
        outcome: How it is.
        says: In a sentence, with the mend where there is one.
    """

    part: str
    outcome: Outcome
    says: str


def check_config() -> list[Look]:
    """Look at the settings, then at each file and service that they name."""
    looks = list(_names())
    try:
        settings = load_settings()
    except StartError as error:
        return [Look("settings", Outcome.WRONG, str(error)), *looks]
    looks.insert(0, Look("settings", Outcome.GOOD, "every variable is valid"))
    return [*looks, *(_look(part, run, settings) for part, run in _PARTS)]


def _names() -> Iterator[Look]:
    for name, meant in unknown_variables().items():
        hint = f"; {meant} was probably meant" if meant else ""
        yield Look("settings", Outcome.NOTE, f"nothing reads {name}{hint}")


def _look(part: str, run: Callable[[Settings], str], settings: Settings) -> Look:
    try:
        return Look(part, Outcome.GOOD, run(settings))
    except StartError as error:
        return Look(part, Outcome.WRONG, str(error))
    except _Less as less:
        return Look(part, Outcome.NOTE, str(less))


class _Less(Exception):
    """The server works without it."""


def _policy(settings: Settings) -> str:
    mode = settings.mode if "mode" in settings.model_fields_set else None
    document = load_policy(settings.policy_file, mode).document
    pools = ", ".join(f"{pool.name} ({pool.mode})" for pool in document.pools)
    return f"{settings.policy_file or 'no file'}: pools {pools}"


def _model(settings: Settings) -> str:
    loaded = load_models(settings.model_folder)
    if loaded.trouble:
        raise _Less(f"rules judge alone: {loaded.trouble}")
    return f"version {loaded.version}"


def _notifications(settings: Settings) -> str:
    secret = settings.webhook_secret
    document = load_notify(
        NotifySettings(
            file=settings.notify_file,
            webhook_url=settings.webhook_url,
            webhook_secret=secret.get_secret_value() if secret else None,
            retry_s=settings.webhook_retry_s,
            variables=variable,
        )
    )
    load_networks(settings.notify_private_networks)
    if not document.endpoints:
        raise _Less("nobody is told of incidents: no notification file and no webhook")
    return ", ".join(f"{endpoint.name} ({endpoint.kind})" for endpoint in document.endpoints)


def _actuators(settings: Settings) -> str:
    document = load_actuators(settings.actuators_file, variable)
    if not document.targets:
        raise _Less("nothing outside is changed: no actuators' file")
    said, troubles = [], []
    for target in document.targets:
        actuator, name = _actuator(target, settings), target.common.name
        try:
            found = actuator.read(())
        except ActuatorError as error:
            troubles.append(f"{name}: {error}")
            continue
        ours = sum(one.hold is Hold.OURS for one in found.values())
        mode = "dry run" if target.common.dry_run else "acts"
        said.append(f"{name} ({kind_of(target)}, {mode}): {len(found)} nodes, {ours} with our tag")
    if troubles:
        raise _Less("; ".join(troubles))
    return "; ".join(said)


def _actuator(target: Target, settings: Settings) -> Actuator:
    posters = poster_maker(load_networks(settings.notify_private_networks))
    return make_actuator(target, passed_variables(variable), posters)


def _store(settings: Settings) -> str:
    return describe_store(settings.store_place)


def _address(settings: Settings) -> str:
    told = f"{settings.host}:{settings.port}"
    try:
        bind_socket(settings).close()
    except StartError as error:
        # The server that is to be configured anew may well be running.
        raise _Less(str(error)) from error
    return f"{told} is free"


_PARTS: tuple[tuple[str, Callable[[Settings], str]], ...] = (
    ("policy", _policy),
    ("model", _model),
    ("notifications", _notifications),
    ("actuators", _actuators),
    ("store", _store),
    ("address", _address),
)
