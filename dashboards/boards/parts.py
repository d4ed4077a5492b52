"""Pieces of Grafana's classic dashboard JSON, schema version 41.

Checked against the types of @grafana/schema; what provisioning cannot resolve (`__inputs`) and what
would tie a dashboard to one Grafana (a data source's uid) is not made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
"""Width of Grafana's grid."""


@dataclass(frozen=True, slots=True)
class Query:
    """One expression.

    Attributes:
        expression: PromQL; `$__rate_interval` and the board's variables may stand in it.
        legend: Legend with {{label}} in it, "" for Grafana's own.
        table: As an instant query for a table.
    """

    expression: str
    legend: str = ""
    table: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel without its place.

    Attributes:
        kind: Grafana's panel type.
        title: A few words.
        description: What it shows and when to worry.
        queries: Expressions.
        unit: Grafana's unit id.
        width: Columns of 24.
        height: Grid rows.
        thresholds: Colour from a value on; the first value is None.
        defaults: More of fieldConfig.defaults.
        options: Panel options that differ from the kind's.
        overrides: Field overrides.
        transformations: Table transformations.
    """

    kind: str
    title: str
    description: str
    queries: tuple[Query, ...]
    unit: str
    width: int
    height: int
    thresholds: tuple[tuple[str, float | None], ...] = ()
    defaults: Json | None = None
    options: Json | None = None
    overrides: tuple[Json, ...] = ()
    transformations: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One question, and the panels that answer it.

    Attributes:
        title: The question.
        panels: From left to right, wrapped at the grid's width.
    """

    title: str
    panels: tuple[Panel, ...]


_STAT: Json = {
    "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    "colorMode": "value",
    "graphMode": "area",
    "justifyMode": "auto",
    "textMode": "auto",
}
_SERIES: Json = {
    "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
    "tooltip": {"mode": "multi", "sort": "desc"},
}
_TABLE: Json = {"showHeader": True, "cellHeight": "sm"}
_OPTIONS = {"stat": _STAT, "timeseries": _SERIES, "table": _TABLE}
_LINES: Json = {"fillOpacity": 10, "lineWidth": 1, "showPoints": "never"}


def stat(
    title: str,
    description: str,
    expression: str,
    unit: str = "short",
    *,
    alarm_at: float | None = None,
) -> Panel:
    """One number; orange from `alarm_at` on."""
    steps: tuple[tuple[str, float | None], ...] = (("green", None),)
    if alarm_at is not None:
        steps = (*steps, ("orange", alarm_at))
    return Panel("stat", title, description, (Query(expression),), unit, 4, 4, steps)


def graph(title: str, description: str, unit: str, *queries: Query, width: int = 12) -> Panel:
    """Lines over time."""
    return Panel(
        "timeseries", title, description, queries, unit, width, 8, defaults={"custom": dict(_LINES)}
    )


def table(
    title: str,
    description: str,
    query: Query,
    *,
    columns: Sequence[str],
    value: str,
    unit: str = "short",
    overrides: tuple[Json, ...] = (),
    width: int = 12,
) -> Panel:
    """Labels and a value, one line a series.

    Args:
        title: Of the panel.
        description: Of the panel.
        query: Its expression; taken as an instant.
        columns: Labels shown, in order.
        value: Name of the value's column.
        unit: Its unit.
        overrides: Of fields.
        width: Columns of the grid.
    """
    order = {name: place for place, name in enumerate((*columns, "Value"))}
    organised = {
        "id": "organize",
        "options": {
            "excludeByName": {"Time": True},
            "indexByName": order,
            "renameByName": {"Value": value},
        },
    }
    keep = {"id": "filterFieldsByName", "options": {"include": {"names": [*columns, "Value"]}}}
    return Panel(
        "table",
        title,
        description,
        (Query(query.expression, query.legend, table=True),),
        unit,
        width,
        8,
        overrides=overrides,
        transformations=(keep, organised),
    )


def link_column(name: str, title: str, url: str) -> Json:
    """Override that makes a column's cells links."""
    link = {"title": title, "url": url, "targetBlank": False}
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": "links", "value": [link]}],
    }


def variable(name: str, label: str, values: str) -> Json:
    """A choice among the values of a query; several, or all."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": values, "refId": f"variable-{name}"},
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
        "options": [],
        "refresh": 2,
        "regex": "",
        "sort": 1,
        "hide": 0,
    }


def dashboard(uid: str, title: str, variables: Iterable[Json], rows: Iterable[Row]) -> Json:
    """A whole dashboard; panels get ids and places in order."""
    return {
        "id": None,
        "uid": uid,
        "title": title,
        "tags": ["gpuwarden", "gpu"],
        "timezone": "browser",
        "schemaVersion": 41,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {"list": [_INCIDENTS]},
        "links": [_LINK],
        "templating": {"list": [_DATA_SOURCE, *variables]},
        "panels": _placed(rows),
    }


_DATA_SOURCE: Json = {
    "name": "datasource",
    "label": "Data source",
    "type": "datasource",
    "query": "prometheus",
    "hide": 0,
    "includeAll": False,
    "multi": False,
    "options": [],
    "refresh": 1,
    "regex": "",
}
_LINK: Json = {
    "title": "gpuwarden dashboards",
    "type": "dashboards",
    "tags": ["gpuwarden"],
    "asDropdown": True,
    "includeVars": True,
    "keepTime": True,
    "targetBlank": False,
    "icon": "external link",
    "tooltip": "",
    "url": "",
}
_INCIDENTS: Json = {
    "name": "The exclusion feed changed",
    "datasource": SOURCE,
    "enable": True,
    "hide": False,
    "iconColor": "orange",
    "target": {
        "refId": "feed",
        "expr": "changes(gpuwarden_feed_epoch[$__rate_interval]) > 0",
    },
}


def _placed(rows: Iterable[Row]) -> list[Json]:
    made: list[Json] = []
    top = 0
    for row in rows:
        made.append(_row(len(made) + 1, row.title, top))
        top += 1
        left = tallest = 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                left, top, tallest = 0, top + tallest, 0
            made.append(_panel(len(made) + 1, panel, left, top))
            left, tallest = left + panel.width, max(tallest, panel.height)
        top += tallest
    return made


def _row(number: int, title: str, top: int) -> Json:
    place = {"h": 1, "w": COLUMNS, "x": 0, "y": top}
    return {
        "id": number,
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": place,
        "panels": [],
    }


def _panel(number: int, panel: Panel, left: int, top: int) -> Json:
    defaults: Json = {"unit": panel.unit, **(panel.defaults or {})}
    if panel.thresholds:
        steps = [{"color": colour, "value": value} for colour, value in panel.thresholds]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    made: Json = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": {"h": panel.height, "w": panel.width, "x": left, "y": top},
        "targets": [_target(place, query) for place, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": defaults, "overrides": list(panel.overrides)},
        "options": {**_OPTIONS[panel.kind], **(panel.options or {})},
    }
    if panel.transformations:
        made["transformations"] = list(panel.transformations)
    return made


def _target(place: int, query: Query) -> Json:
    target: Json = {
        "datasource": SOURCE,
        "refId": chr(ord("A") + place),
        "expr": query.expression,
        "legendFormat": query.legend,
        "editorMode": "code",
    }
    return (
        {**target, "instant": True, "format": "table"} if query.table else {**target, "range": True}
    )
