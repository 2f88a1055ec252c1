"""The board "Redisworld / Overview": which panels has it, and what do they ask?

``python helm/redisworld/dashboards/overview.py`` writes ``overview.json`` beside it, which is what the chart ships; a
test compares the two. Whatever is asked is narrowed by the board's variables only: it works in any Grafana.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import dashboard, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DashboardCursorSync, DataSourceRef, VariableOption
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

JSON = Path(__file__).with_suffix(".json")

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
SITE = 'cluster=~"$cluster",namespace=~"$namespace"'
HERE = f'job=~"$job",{SITE}'
MINE = f'{HERE},workflow=~"$workflow"'
WAITING_OPS = "read|wait_nudge|read_output"
"""Operations that wait inside Redis for something to come: their time says nothing about Redis."""


# -- what is asked


def rate(metric: str, where: str = HERE) -> str:
    """Per second, of each series."""
    return f"rate(redisworld_{metric}{{{where}}}[$__rate_interval])"


def added(what: str, by: str = "") -> str:
    """All series together, or by a label."""
    return f"sum by ({by}) ({what})" if by else f"sum({what})"


def exported(what: str, *labels: str) -> str:
    """Series of the exporter. Exporters of one job say the same of one namespace, so they do not add up.

    Releases of one name in other Kubernetes namespaces, or clusters, have the same job and do.
    """
    return f"max by ({', '.join(('cluster', 'namespace', 'job', *labels))}) ({what})"


def state(metric: str, *labels: str, by: str = "", where: str = HERE) -> str:
    """A gauge of the exporter, which has these labels besides ``by``."""
    return added(exported(f"redisworld_{metric}{{{where}}}", *labels, *filter(None, (by,))), by)


def recorded(metric: str, *labels: str, by: str = "", where: str = HERE) -> str:
    """An exact count of the exporter, per second."""
    return added(exported(rate(f"recorded_{metric}_total", where), *labels, *filter(None, (by,))), by)


def quantile(q: float, metric: str, by: str = "", where: str = HERE) -> str:
    """A quantile of a histogram of the workers."""
    labels = ", ".join(filter(None, ("le", by)))
    return f"histogram_quantile({q}, {added(rate(f'{metric}_bucket', where), labels)})"


def ask(expression: str, legend: str = "") -> Any:
    """A query over the time shown."""
    return prometheus.Dataquery().expr(expression).legend_format(legend or "__auto").datasource(SOURCE).range()


def by_label(expression: str, label: str) -> Any:
    """A query whose lines are named by one label."""
    return ask(expression, f"{{{{{label}}}}}")


def quantiles(metric: str, where: str = HERE) -> list[Any]:
    """The usual three."""
    return [ask(quantile(q, metric, where=where), f"p{q * 100:g}") for q in (0.5, 0.95, 0.99)]


# -- how it is shown


def lines(title: str, unit: str, text: str, *queries: Any) -> Any:
    """Lines over time, from zero."""
    panel = timeseries.Panel().title(title).description(text).unit(unit).min(0).datasource(SOURCE).span(8).height(8)
    for query in queries:
        panel = panel.with_target(query)
    return panel


def number(title: str, unit: str, text: str, expression: str) -> Any:
    """The number of now."""
    query = prometheus.Dataquery().expr(expression).datasource(SOURCE).instant()
    return (
        stat.Panel().title(title).description(text).unit(unit).datasource(SOURCE).span(4).height(4).with_target(query)
    )


def heat(title: str, unit: str, text: str, metric: str) -> Any:
    """A histogram over time."""
    expression = f"sum by (le) (increase(redisworld_{metric}_bucket{{{HERE}}}[$__rate_interval]))"
    query = ask(expression, "{{le}}").format(PromQueryFormat.HEATMAP)
    axis = heatmap.YAxisConfig().unit(unit)
    panel = heatmap.Panel().title(title).description(text).datasource(SOURCE).span(8).height(8)
    return panel.y_axis(axis).with_target(query)


def rows(title: str, text: str, expression: str) -> Any:
    """A table of now."""
    query = prometheus.Dataquery().expr(expression).datasource(SOURCE).instant().format(PromQueryFormat.TABLE)
    return table.Panel().title(title).description(text).datasource(SOURCE).span(8).height(8).with_target(query)


ROWS = {
    "Overview": (
        number(
            "Workers ready",
            "short",
            "Live workers that take messages.",
            state("workers", where=f'{HERE},state="ready"'),
        ),
        number(
            "Undelivered messages",
            "short",
            "Messages that no worker has been handed, over all queues: what an autoscaler acts on.",
            state("stream_lag_messages", "queue"),
        ),
        number(
            "Oldest unread",
            "s",
            "How long the oldest of them has waited.",
            f"max(redisworld_stream_oldest_unread_age_seconds{{{HERE}}})",
        ),
        number("Runs ended", "ops", "Runs that ended per second, exact.", recorded("runs_finished", "status")),
        number(
            "Run failure ratio",
            "percentunit",
            "Failed runs among those that ended.",
            recorded("runs_finished", where=f'{HERE},status="failed"') + " / " + recorded("runs_finished", "status"),
        ),
        number(
            "Dead letters", "short", "Messages that wait for a person: redisworld dead list.", state("dead_letters")
        ),
    ),
    "Runs": (
        lines(
            "Run rate",
            "ops",
            "Created, and ended by status; exact.",
            ask(recorded("runs_created"), "created"),
            by_label(recorded("runs_finished", by="status"), "status"),
        ),
        lines(
            "Runs ended by workflow",
            "ops",
            "As the workers saw them end.",
            ask(added(rate("runs_finished_total", MINE), "workflow, status"), "{{workflow}} {{status}}"),
        ),
        lines(
            "Run duration",
            "s",
            "From the creation of a run to its end.",
            *quantiles("run_duration_seconds", MINE),
        ),
        lines(
            "Run duration p95 by workflow",
            "s",
            "From the creation of a run to its end.",
            by_label(quantile(0.95, "run_duration_seconds", "workflow", MINE), "workflow"),
        ),
        lines(
            "Time to first step p95",
            "s",
            "From the creation of a run to the start of its first step, where its first pass starts it inline.",
            by_label(quantile(0.95, "run_time_to_first_step_seconds", "workflow", MINE), "workflow"),
        ),
        lines(
            "Time to last step p95",
            "s",
            "From the creation of a run to the end of its last step, of runs that waited for nothing else since.",
            by_label(quantile(0.95, "run_time_to_last_step_seconds", "workflow", MINE), "workflow"),
        ),
        lines(
            "Open runs",
            "short",
            "Runs that have not ended, by status.",
            by_label(state("runs", by="status"), "status"),
        ),
        lines(
            "Replays",
            "ops",
            "Passes by what caused them.",
            by_label(added(rate("replays_total", MINE), "trigger"), "trigger"),
        ),
        lines(
            "Pass duration",
            "s",
            "One pass, from the first event that it gives to the body to the answer of its commit.",
            *quantiles("replay_duration_seconds", MINE),
        ),
        lines(
            "Events a pass",
            "short",
            "Events that one pass gives to the body: the whole log where it is cold.",
            *quantiles("replay_events", MINE),
        ),
        lines(
            "Where bodies come from",
            "ops",
            "On their first pass, warm in memory, or cold: replayed from the start of the log.",
            by_label(added(rate("workflow_bodies_total", MINE), "source"), "source"),
        ),
    ),
    "Queues": (
        lines(
            "Lag by queue",
            "short",
            "Messages that no worker has been handed.",
            by_label(state("stream_lag_messages", by="queue"), "queue"),
        ),
        lines(
            "Pending by queue",
            "short",
            "Messages that a worker holds.",
            by_label(state("stream_pending_messages", by="queue"), "queue"),
        ),
        lines(
            "Oldest message",
            "s",
            "How long ago the oldest unread and the oldest pending message was sent.",
            ask(f"max by (queue) (redisworld_stream_oldest_unread_age_seconds{{{HERE}}})", "{{queue}} unread"),
            ask(f"max by (queue) (redisworld_stream_oldest_pending_age_seconds{{{HERE}}})", "{{queue}} pending"),
        ),
        lines(
            "Throughput",
            "ops",
            "Messages handed to workers: for the first time, or reclaimed from one that lost them.",
            ask(added(rate("messages_received_total"), "kind, delivery"), "{{kind}} {{delivery}}"),
        ),
        heat(
            "Queue wait",
            "s",
            "From the dispatch of a step message to the start of its step.",
            "message_wait_seconds",
        ),
        lines(
            "Handed back and buried",
            "ops",
            "Messages that could not be processed when they came, by reason.",
            ask(added(rate("messages_moved_total"), "reason"), "back: {{reason}}"),
            ask(added(rate("dead_lettered_total"), "reason"), "buried: {{reason}}"),
        ),
        lines(
            "Taken over, recovered, dead letters",
            "ops",
            "Exact: deliveries taken over after their lease, lost messages sent again, dead letters made and redriven.",
            ask(recorded("messages_reclaimed"), "reclaimed"),
            ask(recorded("recovered", by="kind"), "recovered {{kind}}"),
            ask(recorded("messages_buried"), "buried"),
            ask(recorded("letters_redriven"), "redriven"),
        ),
    ),
    "Steps": (
        lines(
            "Attempts",
            "ops",
            "Attempts by outcome, as the workers saw them end.",
            by_label(added(rate("steps_finished_total", MINE), "outcome"), "outcome"),
        ),
        lines(
            "Steps",
            "ops",
            "Exact: attempts started and retried, steps ended by outcome.",
            ask(recorded("steps_started"), "started"),
            ask(recorded("steps_retried"), "retried"),
            by_label(recorded("steps_finished", by="outcome"), "outcome"),
        ),
        lines(
            "Step duration p95",
            "s",
            "The body of one attempt, until its outcome is recorded.",
            ask(quantile(0.95, "step_duration_seconds", "workflow, step", MINE), "{{workflow}}/{{step}}"),
        ),
        lines(
            "Claim outcomes",
            "ops",
            "What the claim answered.",
            by_label(added(rate("step_claims_total"), "outcome"), "outcome"),
        ),
        lines(
            "Prologue path",
            "percentunit",
            "Share of step deliveries that knew their run from the message, and of those that had to read it.",
            by_label(
                f"{added(rate('step_prologue_total'), 'path')}"
                f" / on () group_left () {added(rate('step_prologue_total'))}",
                "path",
            ),
        ),
        lines(
            "Lazy run fetches",
            "ops",
            "Run rows read after the prologue, by reason.",
            by_label(added(rate("lazy_run_fetches_total"), "reason"), "reason"),
        ),
        lines(
            "Retries",
            "ops",
            "Attempts that are to be repeated, by step and cause.",
            ask(added(rate("step_retries_total", MINE), "workflow, step, cause"), "{{workflow}}/{{step}} {{cause}}"),
        ),
    ),
    "Timers and deployments": (
        lines(
            "Timer lateness",
            "s",
            "How late timers were promoted, and how late the most overdue one is now.",
            *quantiles("timer_lateness_seconds"),
            ask(f"max(redisworld_timers_overdue_seconds{{{HERE}}})", "overdue now"),
        ),
        lines(
            "Timers pending",
            "short",
            "Timers, delayed starts, retries and messages handed back; and those that are due already.",
            ask(state("timers_pending"), "pending"),
            ask(state("timers_overdue"), "overdue"),
        ),
        lines(
            "Re-routes",
            "ops",
            "Messages sent on to the deployment of their run, and divergences of code and log.",
            by_label(added(rate("messages_moved_total", f'{HERE},reason=~"reroute|divergence"'), "reason"), "reason"),
        ),
    ),
    "Workers": (
        lines("Workers", "short", "Live workers by state.", by_label(state("workers", by="state"), "state")),
        lines(
            "Utilisation",
            "percentunit",
            "Slots taken, of all slots.",
            by_label(
                f"sum by (kind) (redisworld_worker_in_flight{{{HERE}}})"
                f" / sum by (kind) (redisworld_worker_concurrency_limit{{{HERE}}})",
                "kind",
            ),
        ),
        lines(
            "Event loop lag p99",
            "s",
            "How late the event loop comes to what is due: a body that blocks it.",
            by_label(quantile(0.99, "worker_event_loop_lag_seconds", "instance"), "instance"),
        ),
        lines(
            "Seconds since last poll",
            "s",
            "A rising line is a worker that has stopped reading.",
            ask(f"redisworld_worker_last_poll_age_seconds{{{HERE}}}", "{{instance}} {{loop}}"),
        ),
        lines(
            "Not ready",
            "short",
            "1 while a worker does not take messages, or a loop of it cannot read from Redis.",
            by_label(f"1 - redisworld_worker_ready{{{HERE}}}", "instance"),
            ask(f"max by (loop) (redisworld_redis_unavailable{{{HERE}}})", "unavailable to {{loop}}"),
        ),
        lines(
            "Leases lost",
            "ops",
            "Deliveries taken over while this worker still worked on them: their bodies ran twice.",
            by_label(added(rate("leases_lost_total"), "instance"), "instance"),
        ),
        lines(
            "CPU",
            "short",
            "Seconds of CPU per second.",
            by_label(f"sum by (instance) (rate(process_cpu_seconds_total{{{HERE}}}[$__rate_interval]))", "instance"),
        ),
        lines(
            "Memory",
            "bytes",
            "Resident memory.",
            by_label(f"process_resident_memory_bytes{{{HERE}}}", "instance"),
        ),
        rows(
            "Versions",
            "How many processes run which versions.",
            f"count by (version, python_version, redis_client) (redisworld_build_info{{{HERE}}})",
        ),
    ),
    "Redis": (
        lines(
            "Round trips",
            "ops",
            "Calls of the workers, by operation.",
            by_label(added(rate("redis_round_trip_seconds_count"), "op"), "op"),
        ),
        lines(
            "Round trip p99",
            "s",
            "By operation, without those that wait inside Redis for something to come.",
            by_label(quantile(0.99, "redis_round_trip_seconds", "op", f'{HERE},op!~"{WAITING_OPS}"'), "op"),
        ),
        lines(
            "Errors",
            "ops",
            "Calls that failed, by operation and error.",
            ask(added(rate("redis_errors_total"), "op, error"), "{{op}} {{error}}"),
        ),
        lines(
            "Round trips per attempt",
            "short",
            "All round trips over attempts that ended: the number to keep down.",
            ask(
                f"{added(rate('redis_round_trip_seconds_count'))} / {added(rate('steps_finished_total'))}",
                "round trips",
            ),
        ),
        lines(
            "Connections",
            "short",
            "Connections of the workers to Redis; each loop that reads keeps one in use.",
            by_label(f"sum by (state) (redisworld_redis_connections{{{HERE}}})", "state"),
        ),
        lines(
            "Exporter",
            "short",
            "1 while the exporter can read the state of Redis.",
            by_label(f"redisworld_redis_up{{{HERE}}}", "instance"),
        ),
        lines(
            "Redis memory",
            "bytes",
            "From redis_exporter, where it runs in the same namespace.",
            ask(f"redis_memory_used_bytes{{{SITE}}}", "{{instance}} used"),
            ask(f"redis_memory_max_bytes{{{SITE}}} > 0", "{{instance}} limit"),
        ),
    ),
}


def variable(name: str, label: str, query: str) -> Any:
    """A variable of the board: all of its values, until somebody chooses."""
    everything = VariableOption(text="All", value="$__all", selected=True)
    chosen = dashboard.QueryVariable(name).label(label).datasource(SOURCE).query(query).current(everything)
    return chosen.include_all(True).all_value(".*").multi(True)


def board() -> str:
    """The JSON of the board."""
    made = (
        dashboard.Dashboard("Redisworld / Overview")
        .uid("redisworld-overview")
        .tags(["redisworld", "workflow", "redis"])
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .readonly()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(variable("cluster", "Cluster", "label_values(redisworld_build_info, cluster)"))
        .with_variable(
            variable("namespace", "Namespace", 'label_values(redisworld_build_info{cluster=~"$cluster"}, namespace)')
        )
        .with_variable(variable("job", "Job", f"label_values(redisworld_build_info{{{SITE}}}, job)"))
        .with_variable(
            variable("workflow", "Workflow", f"label_values(redisworld_runs_finished_total{{{HERE}}}, workflow)")
        )
    )
    ids = itertools.count(1)
    for title, panels in ROWS.items():
        made = made.with_row(dashboard.Row(title).id(next(ids)))
        for panel in panels:
            made = made.with_panel(panel.id(next(ids)))
    return str(JSONEncoder(sort_keys=True, indent=2).encode(made.build())) + "\n"


if __name__ == "__main__":
    JSON.write_text(board())
