"""Settings of the server: the only place that reads the environment."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from gpuwarden_server.core.errors import StartError
from gpuwarden_server.core.logs import LogForm
from gpuwarden_server.store.places import Place, place_of
from gpuwarden_verdict.policy.document import Mode


class Settings(BaseSettings):
    """Everything that an operator may set; each field is GPUWARDEN_ and its name in capitals."""

    model_config = SettingsConfigDict(env_prefix="GPUWARDEN_", frozen=True, extra="forbid")

    host: str = Field(default="127.0.0.1", description="Address to listen on; 0.0.0.0 for all.")
    port: int = Field(
        default=8750, ge=0, le=65535, description="Port to listen on; 0 takes a free one."
    )
    state_folder: Path = Field(
        default=Path("gpuwarden-state"),
        description="Folder of state.db and history.db; made at first start, mode 0700.",
    )
    database_url: SecretStr | None = Field(
        default=None,
        description="PostgreSQL database instead of the two files: "
        "postgresql://USER:PASSWORD@HOST:5432/DATABASE; none: SQLite in the state folder.",
    )
    lease_s: float = Field(
        default=10.0,
        ge=1,
        le=600,
        description="Seconds after which a server on stand-by takes over from a leader that does "
        "not renew its lease; PostgreSQL only, the same for all servers of a database.",
    )
    advertise_url: str | None = Field(
        default=None,
        pattern="^https?://[^/]",
        description="Where agents and clients reach this server; one on stand-by sends them there; "
        "none: it can only say that another server leads.",
    )
    retention_events_days: float = Field(
        default=90.0,
        ge=0,
        description="Days for which events are kept; 0: for ever. What is not judged yet, a "
        "node's newest boot and its agent's trouble since stay in any case.",
    )
    retention_incidents_days: float = Field(
        default=400.0,
        ge=0,
        description="Days for which incidents, decisions and changes of state are kept after their "
        "end; 0: for ever. What is open or may still act stays in any case.",
    )
    retention_snapshots_days: float = Field(
        default=90.0,
        ge=0,
        description="Days for which is kept what decisions rested on, so that they can be judged "
        "again by another policy; 0: for ever.",
    )
    diagnosis_unasked: bool = Field(
        default=True,
        description="Whether a job that became slower than its own past is diagnosed by itself.",
    )
    retention_diagnoses_days: float = Field(
        default=90.0,
        ge=0,
        description="Days for which diagnoses are kept as they were answered; 0: for ever.",
    )
    retention_progress_days: float = Field(
        default=30.0,
        ge=0,
        description="Days for which the minutes are kept in which jobs told of their steps; 0: for "
        "ever.",
    )
    retention_checkpoints_days: float = Field(
        default=400.0,
        ge=0,
        description="Days for which checkpoints of jobs are kept, for their trend; 0: for ever.",
    )
    retention_audit_days: float = Field(
        default=1100.0, ge=0, description="Days for which the audit is kept; 0: for ever."
    )
    admin_key: SecretStr | None = Field(
        default=None,
        description="At the first start, the admin key instead of a generated one: gw_ and 43 "
        "base64url characters. Only its SHA-256 is stored.",
    )
    policy_file: Path | None = Field(
        default=None, description="Policy in TOML; none: one pool with the defaults."
    )
    mode: Mode = Field(
        default=Mode.OBSERVE, description="Mode of pools for which the policy file names none."
    )
    sweep_interval_s: float = Field(
        default=5.0,
        gt=0,
        le=3600,
        description="Longest time between sweeps over the whole fleet, seconds. They come "
        "more often, down to each half second, while that takes at most 5 % of the time, and "
        "at once where a value changes that announces a fault, while that takes at most 20 %.",
    )
    job_checkpoints_every_s: float = Field(
        default=900.0,
        ge=0,
        description="Seconds between two looks for checkpoints that jobs wrote, by their history; "
        "0: none are looked for.",
    )
    checkpoint_pass_s: float = Field(
        default=30.0,
        gt=0,
        le=300,
        description="Seconds in which the rolling checkpoint of telemetry state passes over all "
        "nodes, up to 300 where a big fleet has much to write; agents keep what is younger.",
    )
    silent_after_s: float = Field(
        default=60.0,
        gt=0,
        description="Seconds without a batch after which a node counts as silent: its verdict is "
        "unknown, which warns and never excludes. A node with a slower cadence gets three of its "
        "intervals, 15 minutes at most.",
    )
    gone_after_s: float = Field(
        default=3600.0,
        gt=0,
        description="Seconds without a batch after which a silent node counts neither for the "
        "breaker nor for the size of its pool, on which the cap rests.",
    )
    cloud_lead_s: float = Field(
        default=300.0,
        ge=0,
        le=86_400,
        description="Seconds before the time that a cloud announces (agents' cloud_events) at "
        "which a node leaves.",
    )
    future_tolerance_s: float = Field(
        default=60.0,
        ge=0,
        description="Seconds by which an agent's clock may run ahead before its batch is flagged.",
    )
    node_labels: str = Field(
        default="node,Hostname,hostname,nodename,instance",
        description="Labels of remote write and alerts that name a node, in this order, separated "
        "by commas; a port behind the name is cut off.",
    )
    history_readings: Literal["incidents", "all"] = Field(
        default="incidents",
        description="Whose readings are kept as they came: those of nodes with an open incident "
        "and of the time before it, or all.",
    )
    history_readings_hours: float = Field(
        default=72.0, gt=0, le=8760, description="Hours that readings are kept."
    )
    history_minute_days: float = Field(
        default=3.0, gt=0, le=3650, description="Days that roll-ups by the minute are kept."
    )
    history_quarter_weeks: float = Field(
        default=8.0,
        gt=0,
        le=520,
        description="Weeks that roll-ups by the quarter of an hour are kept.",
    )
    history_lookback_mib: int = Field(
        default=256,
        ge=0,
        le=65_536,
        description="Memory for the readings of the latest hour, MiB: what an incident that opens "
        "keeps of the time before it. 0 keeps nothing.",
    )
    model_folder: Path | None = Field(
        default=None, description="Folder of the scoring models; none: the shipped, promoted ones."
    )
    feature_rows_days: float = Field(
        default=90.0,
        gt=0,
        le=3650,
        description="Days that rows of features are kept for training (docs/learning.md).",
    )
    feature_rows_most: int = Field(
        default=200_000,
        ge=0,
        le=10_000_000,
        description="Most rows of features that are kept, about 500 bytes each; the oldest go "
        "first. 0 keeps none.",
    )
    actuators_file: Path | None = Field(
        default=None,
        description="Schedulers, folders and commands that exclusions are carried into, in TOML "
        "(docs/actuators.md); none: nothing outside is changed.",
    )
    savings_file: Path | None = Field(
        default=None,
        description="Prices and assumptions of the ledger of costs, in TOML (docs/ledger.md); "
        "none: the documented assumptions, and no money.",
    )
    notify_file: Path | None = Field(
        default=None,
        description="Who is told of incidents and decisions, in TOML (docs/notifications.md); "
        "none: nobody but GPUWARDEN_WEBHOOK_URL.",
    )
    notify_private_networks: str = Field(
        default="127.0.0.0/8,::1/128,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,100.64.0.0/10,fc00::/7",
        description="Private networks that notifications may be sent to, comma-separated; none "
        "for none. Link-local and metadata addresses are refused whatever stands here.",
    )
    webhook_url: str | None = Field(
        default=None,
        description="One Standard Webhooks receiver of all facts, without a notification file; "
        "its endpoint is named webhook.",
    )
    webhook_secret: SecretStr | None = Field(
        default=None, description="Secret that signs webhooks, in Standard Webhooks' whsec_ form."
    )
    webhook_retry_s: float = Field(
        default=5.0,
        gt=0,
        le=3600,
        description="Mean wait after a first failure of any notification, seconds; all later "
        "waits scale with it.",
    )
    keep_alive_s: int = Field(
        default=75,
        ge=75,
        description="Seconds that an idle connection stays open; at least 3 of the agents' "
        "intervals, or connections are closed under them.",
    )
    shutdown_grace_s: int = Field(
        default=4, ge=1, le=8, description="Seconds that open requests get to end after SIGTERM."
    )
    key_rate_per_s: float = Field(
        default=1000.0,
        ge=0,
        description="Requests a second of one key, 20 s' worth at once after a pause; beyond, 429 "
        "with Retry-After. 0: no limit.",
    )
    address_rate_per_s: float = Field(
        default=100.0,
        ge=0,
        description="Requests a second without a valid key of one address, 10 s' worth at once. "
        "0: no limit.",
    )
    refused_rate_per_s: float = Field(
        default=1.0,
        ge=0,
        description="Refused keys and tokens a second of one address, 60 s' worth at once; valid "
        "keys of that address do not suffer. 0: no limit.",
    )
    approval_link_s: float = Field(
        default=0.0,
        ge=0,
        le=604_800,
        description="Seconds for which a link in a notification of advice lets whoever reads it, "
        "without a key, approve it; made where the notification file gives `console_url`. 0: none.",
    )
    tls_cert: Path | None = Field(
        default=None,
        description="PEM certificate of the server, chain included; with it the server speaks "
        "https. Read again when it changes.",
    )
    tls_key: Path | None = Field(default=None, description="PEM private key of the certificate.")
    tls_client_ca: Path | None = Field(
        default=None,
        description="PEM authorities of clients, and lists of what they revoked: whoever connects "
        "needs a certificate of theirs, and a key all the same. Read again when it changes.",
    )
    log_form: LogForm = Field(
        default=LogForm.CONSOLE, description="console for people, json for programs."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level of log lines."
    )

    @property
    def node_label_names(self) -> tuple[str, ...]:
        """Labels that name a node, in order."""
        return tuple(name for part in self.node_labels.split(",") if (name := part.strip()))

    @property
    def store_place(self) -> Place:
        """Where the database lies.

        Raises:
            StoreError: The URL names no PostgreSQL database.
        """
        url = self.database_url.get_secret_value() if self.database_url else None
        return place_of(self.state_folder, url)


# What the other programs read (runtime, command line, demo), by name or by prefix.
_OTHERS = ("URL", "KEY", "KEY_FILE", "CA_FILE", "VERDICT_FILE", "CACHE_FOLDER", "PUBLIC_DATA")
_OTHER_PREFIX = "GPUWARDEN_AGENT_"


def unknown_variables() -> dict[str, str]:
    """Variables of the environment that look like ours and that nothing reads.

    Returns:
        By variable, the name that was probably meant, "" where none is near.
    """
    names = [name.upper() for name in Settings.model_fields]
    known = {f"GPUWARDEN_{name}" for name in (*names, *_OTHERS)}
    strange = [
        name
        for name in os.environ
        if name.startswith("GPUWARDEN_")
        and name not in known
        and not name.startswith(_OTHER_PREFIX)
    ]
    near = {name: difflib.get_close_matches(name, known, n=1) for name in sorted(strange)}
    return {name: found[0] if found else "" for name, found in near.items()}


def load_settings() -> Settings:
    """Settings from the environment.

    Raises:
        StartError: Names each variable that is not valid, and why.
    """
    try:
        return Settings()
    except ValidationError as error:
        wrong = [
            f"GPUWARDEN_{'.'.join(str(part) for part in item['loc']).upper()}: {item['msg']}"
            for item in error.errors(include_input=False)
        ]
        raise StartError("; ".join(wrong), "Correct these environment variables.") from None


def variable(name: str) -> str | None:
    """An environment variable that a file of the operator's names; None where it is not set."""
    return os.environ.get(name)
