"""`gpuwarden-agent enrol`: fetches this node's key with a token and writes the key file."""

from __future__ import annotations

import os
import pwd
import sys
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import msgspec

from gpuwarden_agent.config import PREFIX, AgentSettings, ConfigError
from gpuwarden_agent.transport.connection import Answer, ConnectionFailed, ServerConnection
from gpuwarden_agent.transport.tls import TlsUnusable, tls_context
from gpuwarden_wire.codec import decode_problem
from gpuwarden_wire.keys import key_fault

_CREATED = 201


class EnrolExit(IntEnum):
    """How the command ends."""

    DONE = 0  # the key file is written
    REFUSED = 1  # the server refuses the token or the node
    UNUSABLE = 2  # a setting, the token or the key file cannot be used
    UNREACHABLE = 3  # no answer from the server


@dataclass(frozen=True, slots=True)
class EnrolRequest:
    """What was asked on the command line.

    Attributes:
        token: The token, "" where it is in a file.
        token_file: File that holds it, "-" for standard input; None where it was given.
        owner: User that the key file is handed to, "" for whoever runs this.
        replace: A key file that is there already is replaced.
    """

    token: str = ""
    token_file: str | None = None
    owner: str = ""
    replace: bool = False


class EnrolFailed(Exception):
    """No key was written; the message says why and names the mend."""

    def __init__(self, code: EnrolExit, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Enrolled(msgspec.Struct):
    key_id: str
    node_id: str
    key: str


def run_enrolment(settings: AgentSettings, request: EnrolRequest) -> EnrolExit:
    """Fetch the key and write it; the outcome is one line."""
    try:
        file = _key_file(settings, request)
        owner = _owner(request)
        enrolled = _enrolled(_ask(settings, _token(request)))
        _write_key(file, enrolled.key, owner)
    except EnrolFailed as failed:
        sys.stderr.write(f"gpuwarden-agent: {failed}\n")
        return failed.code
    sys.stdout.write(f"node {enrolled.node_id} has key {enrolled.key_id}, in {file}\n")
    return EnrolExit.DONE


def _key_file(settings: AgentSettings, request: EnrolRequest) -> Path:
    """Where the key goes; checked before the token is used up."""
    if not settings.server_url:
        raise ConfigError(f"{PREFIX}SERVER_URL is not set: give the address of the server.")
    file = settings.key_file
    if file is None:
        raise ConfigError(f"{PREFIX}KEY_FILE is not set: name the file that the key goes to.")
    if file.exists() and not request.replace:
        raise EnrolFailed(
            EnrolExit.UNUSABLE,
            f"{file} is there already: this node is enrolled. With --replace it is written anew; "
            "the token must have been made with --re-enrol.",
        )
    if not (file.parent.is_dir() and os.access(file.parent, os.W_OK)):
        raise EnrolFailed(
            EnrolExit.UNUSABLE,
            f"{file.parent} is no folder that this user may write to. Make it, or run this as root "
            "with --owner USER, the user of the agent.",
        )
    return file


def _owner(request: EnrolRequest) -> tuple[int, int] | None:
    if not request.owner:
        return None
    try:
        found = pwd.getpwnam(request.owner)
    except KeyError:
        raise EnrolFailed(
            EnrolExit.UNUSABLE, f"there is no user {request.owner!r}: give --owner another"
        ) from None
    return found.pw_uid, found.pw_gid


def _token(request: EnrolRequest) -> str:
    text = request.token
    if request.token_file is not None:
        try:
            source = request.token_file
            text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise EnrolFailed(EnrolExit.UNUSABLE, f"token file: {error}") from error
    token = text.strip()
    if not token or key_fault(token):
        raise EnrolFailed(
            EnrolExit.UNUSABLE,
            "the token is empty or holds blanks: give it as `gpuwarden enrolment create` prints it",
        )
    return token


def _ask(settings: AgentSettings, token: str) -> Answer:
    tls = None
    try:
        if settings.server_url.startswith("https:"):
            files = (settings.client_cert_file, settings.client_key_file)
            tls = tls_context(settings.ca_file, *files)
    except TlsUnusable as error:
        raise EnrolFailed(EnrolExit.UNUSABLE, str(error)) from error
    connection = ServerConnection(settings.server_url, settings.request_timeout_s, tls)
    body = msgspec.json.encode({"token": token, "node": settings.own_node_id})
    try:
        connection.open()
        return connection.post("/v1/enrol", body, {"Content-Type": "application/json"})
    except ConnectionFailed as failure:
        raise EnrolFailed(
            EnrolExit.UNREACHABLE, f"{failure}. Is `gpuwarden server` running there?"
        ) from failure
    finally:
        connection.close()


def _enrolled(answer: Answer) -> _Enrolled:
    if answer.status_code != _CREATED:
        problem = decode_problem(answer.body)
        if problem is None:
            what = f"the server answers {answer.status_code}. Is it a gpuwarden server?"
        else:
            what = f"{problem.detail}. {problem.mend}"
        raise EnrolFailed(EnrolExit.REFUSED, what)
    try:
        return msgspec.json.decode(answer.body, type=_Enrolled)
    except msgspec.DecodeError as error:
        raise EnrolFailed(
            EnrolExit.REFUSED, "the answer is not understood. Is it a gpuwarden server?"
        ) from error


def _write_key(file: Path, key: str, owner: tuple[int, int] | None) -> None:
    """Write whole or not at all, readable for its owner alone from the first moment on."""
    temporary = file.with_name(f".{file.name}.new")
    try:
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as opened:
            if owner is not None:
                os.fchown(descriptor, *owner)
            opened.write(key + "\n")
            opened.flush()
            os.fsync(descriptor)
        temporary.replace(file)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise EnrolFailed(
            EnrolExit.UNUSABLE,
            f"key file {file}: {error.strerror or error}. The key was made and is lost: mend the "
            "folder and enrol again with a token made with --re-enrol",
        ) from error
