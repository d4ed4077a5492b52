"""The fleet: what may not be used, why, and whether gpuwarden itself works."""

from __future__ import annotations

from dashboards.boards.parts import (
    Json,
    Panel,
    Query,
    Row,
    dashboard,
    graph,
    link_column,
    stat,
    table,
    variable,
)

# Series of the server carry the job and instance of the scrape.
_SERVER = 'job=~"$job"'
_NODE_LINK = link_column("node", "Node", "/d/gpuwarden-node?var-node=${__value.raw}")


def fleet() -> Json:
    """The dashboard."""
    variables = [variable("job", "Job of the server", "label_values(gpuwarden_build, job)")]
    rows = (_verdict(), _nodes(), _service(), _agents())
    return dashboard("gpuwarden-fleet", "gpuwarden fleet", variables, rows)


def _mean_s(name: str) -> str:
    rate = f"sum(rate({name}_%s{{{_SERVER}}}[$__rate_interval]))"
    return f"{rate % 'sum'} / {rate % 'count'}"


def _quantile(rank: float, name: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    rate = f"rate({name}_bucket{{{_SERVER}}}[$__rate_interval])"
    return f"histogram_quantile({rank}, sum by ({labels}) ({rate}))"


def _verdict() -> Row:
    return Row(
        "May the fleet be used?",
        (
            stat(
                "Exclusions in force",
                "Nodes and GPUs that the feed tells launchers not to use.",
                f"sum(gpuwarden_exclusions{{{_SERVER}}})",
                alarm_at=1,
            ),
            stat(
                "Open incidents",
                "Incidents that are not resolved, of any severity.",
                f"sum(gpuwarden_open_incidents{{{_SERVER}}}) or vector(0)",
                alarm_at=1,
            ),
            stat(
                "Nodes heard of",
                "Nodes whose agent reported lately.",
                f'sum(gpuwarden_fleet_nodes{{contact="live", {_SERVER}}})',
            ),
            stat(
                "Silent nodes",
                "Nodes without a report: their verdict is unknown, which warns and never excludes.",
                f'sum(gpuwarden_fleet_nodes{{contact="silent", {_SERVER}}})',
                alarm_at=1,
            ),
            stat(
                "Feed epoch",
                "Counts every change of the exclusion set; it never goes back.",
                f"max(gpuwarden_feed_epoch{{{_SERVER}}})",
            ),
            stat(
                "Learnt score",
                "1 while a model scores the fleet, 0 while rules judge alone.",
                f"max(gpuwarden_model_loaded{{{_SERVER}}})",
            ),
            graph(
                "Open incidents by class",
                "One open incident per entity and fault class.",
                "short",
                Query(
                    f"sum by (fault_class) (gpuwarden_open_incidents{{{_SERVER}}})",
                    "{{fault_class}}",
                ),
            ),
            graph(
                "Exclusions and decisions",
                "Decisions by phase: proposed ones wait for a person, in_force ones exclude.",
                "short",
                Query(f"sum(gpuwarden_exclusions{{{_SERVER}}})", "exclusions in force"),
                Query(f"sum by (phase) (gpuwarden_live_decisions{{{_SERVER}}})", "{{phase}}"),
            ),
        ),
    )


def _nodes() -> Row:
    return Row(
        "Where is it failing? (Prometheus scrapes the agents)",
        (
            table(
                "XIDs in the last hour",
                "Codes of the GPU driver; kernel log and NVML count the same one apart.",
                Query(
                    "sum by (node, gpu_uuid, xid) (increase(gpuwarden_xid_events_total[1h])) > 0"
                    " or sum by (node, gpu_uuid, xid) (gpuwarden_xid_events_total unless "
                    "gpuwarden_xid_events_total offset 1h)"
                ),
                columns=("node", "gpu_uuid", "xid"),
                value="count",
                overrides=(_NODE_LINK,),
            ),
            table(
                "Waiting for a reset, a reboot or a repair",
                "A recovery action of the driver, or a row remap that is pending or failed.",
                Query(
                    "max by (node, gpu_uuid) ((gpuwarden_gpu_recovery_action > 0)"
                    " or (gpuwarden_gpu_row_remap_pending > 0)"
                    " or (gpuwarden_gpu_row_remap_failure > 0))"
                ),
                columns=("node", "gpu_uuid"),
                value="code",
                overrides=(_NODE_LINK,),
            ),
            graph(
                "Hottest GPU by node",
                "A node that stands out is a fan, an aisle or a part.",
                "celsius",
                Query("topk(20, max by (node) (gpuwarden_gpu_temperature_celsius))", "{{node}}"),
            ),
            graph(
                "GPU power by node",
                "A node far below its job's others is slow, idle or capped.",
                "watt",
                Query("sum by (node) (gpuwarden_gpu_power_watts)", "{{node}}"),
            ),
        ),
    )


def _service() -> Row:
    return Row(
        "Does gpuwarden itself work?",
        (
            graph(
                "Batches by outcome",
                "Batches taken; refused ones stand with their code.",
                "reqps",
                Query(
                    "sum by (stream, outcome) (rate(gpuwarden_ingest_batches_total"
                    f"{{{_SERVER}}}[$__rate_interval]))",
                    "{{stream}} {{outcome}}",
                ),
                Query(
                    "sum by (code) (rate(gpuwarden_ingest_refused_total"
                    f"{{{_SERVER}}}[$__rate_interval]))",
                    "refused {{code}}",
                ),
            ),
            graph(
                "Batch to acknowledgement",
                "99th percentile by stream; events wait for the disk, telemetry does not.",
                "s",
                Query(_quantile(0.99, "gpuwarden_ingest_seconds", "stream"), "{{stream}}"),
            ),
            graph(
                "Event to judgement",
                "From an event's receipt to its published conclusion.",
                "s",
                Query(_quantile(0.5, "gpuwarden_judge_event_delay_seconds"), "median"),
                Query(_quantile(0.99, "gpuwarden_judge_event_delay_seconds"), "99 %"),
            ),
            graph(
                "Sweep over the fleet",
                "Mean duration; a sweep longer than its interval delays the verdicts.",
                "s",
                Query(_mean_s("gpuwarden_sweep_duration_seconds"), "sweep"),
                Query(_mean_s("gpuwarden_checkpoint_seconds"), "checkpoint of a shard"),
            ),
            *_process(),
        ),
    )


def _process() -> tuple[Panel, ...]:
    return (
        graph(
            "Memory of the server",
            "Resident bytes; they grow with the number of series and not with time.",
            "bytes",
            Query(f"process_resident_memory_bytes{{{_SERVER}}}", "{{instance}}"),
            width=8,
        ),
        graph(
            "CPU of the server",
            "Cores in use.",
            "short",
            Query(
                f"rate(process_cpu_seconds_total{{{_SERVER}}}[$__rate_interval])",
                "{{instance}}",
            ),
            width=8,
        ),
        graph(
            "Readers of the feed",
            "Connected launchers and others that follow the exclusions.",
            "short",
            Query(f"sum(gpuwarden_feed_readers{{{_SERVER}}})", "readers"),
            width=8,
        ),
    )


def _agents() -> Row:
    return Row(
        "Do the agents work?",
        (
            graph(
                "Agents by version",
                "More than one line outside an upgrade is a node that was left behind.",
                "short",
                Query(
                    f"sum by (version) (gpuwarden_fleet_agents{{{_SERVER}}})", "agent {{version}}"
                ),
                width=8,
            ),
            graph(
                "Collectors in trouble",
                "Nodes a collector fails on; that is never taken for a fault of the hardware.",
                "short",
                Query(
                    "sum by (collector) (1 - gpuwarden_agent_collector_success)", "{{collector}}"
                ),
                width=8,
            ),
            graph(
                "Spooled bytes, most by agent",
                "What waits for the server; a growing spool is an agent that cannot deliver.",
                "bytes",
                Query("topk(10, gpuwarden_agent_spool_bytes)", "{{instance}}"),
                width=8,
            ),
        ),
    )
