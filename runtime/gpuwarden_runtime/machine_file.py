"""`gpuwarden-run --hosts-in FILE --hosts-out FILE`: the host list without excluded nodes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path

from gpuwarden_runtime.arguments import Arguments
from gpuwarden_runtime.cache import CachedSet, NoCache, SetCache, write_atomically
from gpuwarden_runtime.client import Client
from gpuwarden_runtime.errors import GpuwardenError
from gpuwarden_runtime.exits import ExitCode
from gpuwarden_runtime.feed import Floor, apply_set, as_set
from gpuwarden_runtime.hosts import HostList, HostListError, filter_hosts, is_among
from gpuwarden_runtime.place import sentence, utc
from gpuwarden_runtime.records import Exclusion

Say = Callable[[str], None]


def write_hosts(
    arguments: Arguments, files: tuple[Path, Path], client: Client, cache: SetCache, say: Say
) -> ExitCode | None:
    """Filter the list; None where all went well, else the launcher's exit code.

    Args:
        arguments: For `strict` and `min_hosts`.
        files: To read, to write.
        client: Connection to the server.
        cache: For when it is away.
        say: Takes sentences for the user.
    """
    source, target = files
    try:
        text = _read_list(source)
    except HostListError as error:
        say(f"host list {source}: {error}")
        return ExitCode.NO_INPUT
    exclusions = _known_exclusions(client, cache, say)
    if exclusions is None and arguments.strict:
        say("--strict: the host list cannot be filtered, nothing is started")
        return ExitCode.UNANSWERED
    try:
        hosts = filter_hosts(text, {item.node_id for item in exclusions or ()})
    except HostListError as error:
        say(f"host list {source}: {error}")
        return ExitCode.NO_INPUT
    _report(hosts, exclusions or (), say)
    if len(hosts.kept) < arguments.min_hosts:
        say(f"{len(hosts.kept)} hosts would stay, at least {arguments.min_hosts} are wanted")
        return ExitCode.REFUSED
    try:
        write_atomically(target, "".join(f"{line}\n" for line in hosts.lines).encode())
    except OSError as error:
        say(f"host list {target}: {error.strerror or error}")
        return ExitCode.NO_INPUT
    return None


def _read_list(source: Path) -> str:
    try:
        body = source.read_bytes()
        return body.decode()
    except OSError as error:
        raise HostListError(error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        number = body[: error.start].count(b"\n") + 1
        raise HostListError(f"line {number} is no UTF-8 text", "write plain host names") from error


def _known_exclusions(client: Client, cache: SetCache, say: Say) -> tuple[Exclusion, ...] | None:
    """Those of the server, else of the cache; None where neither can say."""
    now = time.time()
    cached = cache.load(now)
    held = None
    if isinstance(cached, CachedSet):
        held = apply_set(None, cached.content, Floor()).state
    try:
        step = apply_set(held, client.exclusions(), Floor())
    except GpuwardenError as error:
        say(str(error))
        if isinstance(cached, NoCache):
            say(f"{cached.reason}: every host stays")
        else:
            say(f"using the cached set of {utc(cached.saved_at)}")
        return None if held is None else tuple(held.exclusions.values())
    if step.note:
        say(step.note)
    if step.state is None:
        return None
    cache.save(as_set(step.state), now)
    return tuple(step.state.exclusions.values())


def _report(hosts: HostList, exclusions: Collection[Exclusion], say: Say) -> None:
    for item in exclusions:
        if is_among(item.node_id, hosts.removed):
            say(f"taken out: {sentence(item)}")
