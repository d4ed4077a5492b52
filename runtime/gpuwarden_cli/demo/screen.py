"""The demo in the terminal: the fleet by state, the story, the incidents, the page's address."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.layout import Layout
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gpuwarden_cli.demo.telling import Outcome, Progress
from gpuwarden_cli.output import age, styled
from gpuwarden_runtime.records import NodeRecord

_STATES = {
    "healthy": ("·", "green"),
    "suspect": ("?", "bold black on yellow"),
    "excluded": ("X", "bold white on red"),
    "draining": ("D", "bold white on magenta"),
    "in_repair": ("R", "bold white on blue"),
    "probation": ("P", "bold black on cyan"),
}
_MARKS = {
    Outcome.WAITING: ("  ", "dim"),
    Outcome.RUNNING: ("▸ ", "bold yellow"),
    Outcome.AS_TOLD: ("✓ ", "green"),
    Outcome.NOT_AS_TOLD: ("✗ ", "bold red"),
}


class Screen(Protocol):
    """Where the story is shown."""

    def __enter__(self) -> Self:
        """Begin to show."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the terminal as it was."""
        ...

    def show(self, progress: Progress) -> None:
        """Show how the story goes."""
        ...

    def say(self, sentence: str) -> None:
        """Show one sentence."""
        ...


class LiveScreen:
    """A full-screen view that is drawn anew at each change."""

    def __init__(self, page: str) -> None:
        self._page = page
        self._sentence = ""
        self._live = Live(console=Console(), screen=True, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, progress: Progress) -> None:
        """Draw everything."""
        self._live.update(drawn(progress, self._page, self._sentence), refresh=True)

    def say(self, sentence: str) -> None:
        """Keep a sentence in the last line."""
        self._sentence = sentence


class PlainScreen:
    """Lines, for output that is no terminal."""

    def __init__(self, page: str) -> None:
        self._page = page
        self._shown: dict[str, Outcome] = {}
        self._forbidden: set[str] = set()

    def __enter__(self) -> Self:
        self.say(f"page: {self._page}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing to undo."""

    def show(self, progress: Progress) -> None:
        """Print each step when it begins and when it ends, and each forbidden sight, once."""
        for item in progress.told:
            if item.outcome is Outcome.WAITING or self._shown.get(item.step.name) is item.outcome:
                continue
            self._shown[item.step.name] = item.outcome
            mark = _MARKS[item.outcome][0]
            seen = f"\n    {item.seen} ({item.seconds:.1f} s)" if item.seen else ""
            self.say(f"{mark}{item.step.title}{seen}")
        for sentence in progress.forbidden:
            if sentence not in self._forbidden:
                self._forbidden.add(sentence)
                self.say(f"✗ must not be: {sentence}")

    def say(self, sentence: str) -> None:
        """Print it."""
        sys.stdout.write(sentence + "\n")
        sys.stdout.flush()


class SilentScreen(PlainScreen):
    """Steps on standard error, for `--json`: standard output holds the summary alone."""

    def say(self, sentence: str) -> None:
        """Print it to standard error."""
        sys.stderr.write(sentence + "\n")
        sys.stderr.flush()


def drawn(progress: Progress, page: str, sentence: str = "") -> Layout:
    """The whole screen.

    Args:
        progress: How the story goes.
        page: Address of the page.
        sentence: For the last line; else the latest trouble stands there.
    """
    layout = Layout()
    layout.split_column(
        Layout(_header(progress, page), size=3),
        Layout(name="middle"),
        Layout(_incidents(progress), name="incidents", size=9),
        Layout(Text(sentence or progress.trouble or " ", style="yellow"), size=1),
    )
    layout["middle"].split_row(
        Layout(_grid(progress), name="grid", size=38), Layout(_steps(progress), name="steps")
    )
    return layout


def _header(progress: Progress, page: str) -> Panel:
    epoch = progress.sight.epoch if progress.sight else 0
    left = Text("gpuwarden demo", style="bold")
    left.append(f"   {progress.elapsed_s:4.0f} s   epoch {epoch}   page: ", style="not bold")
    left.append(page, style="underline")
    return Panel(left)


def _grid(progress: Progress) -> Panel:
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False)
    table.add_column()
    table.add_column()
    nodes = progress.sight.nodes if progress.sight else {}
    for node in sorted(nodes.values(), key=lambda node: node.node_id):
        table.add_row(_node_name(node), _gpus(node))
    legend = Text("\n")
    for state, (mark, style) in _STATES.items():
        legend.append(f"{mark}", style=style).append(f" {state}  ")
    return Panel(Group(table, legend), title="fleet")


def _node_name(node: NodeRecord) -> Text:
    name = Text(node.node_id[:20])
    if node.silent:
        name.stylize("dim")
    elif node.state != "healthy":
        name.stylize(_STATES.get(node.state, ("", "dim"))[1])
    return name


def _gpus(node: NodeRecord) -> Text:
    marks = Text()
    for line in sorted(node.gpus, key=lambda line: line.index if line.index is not None else -1):
        mark, style = _STATES.get(line.state, ("-", "dim"))
        marks.append(mark, style=style).append(" ")
    if not node.gpus:
        marks.append("no GPU", style="dim")
    return marks


def _steps(progress: Progress) -> Panel:
    lines = Text()
    for item in progress.told:
        mark, style = _MARKS[item.outcome]
        lines.append(f"{mark}{item.step.title}\n", style=style)
        if item.seen:
            lines.append(f"    {item.seen}\n", style="dim")
    for sentence in progress.forbidden:
        lines.append(f"✗ must not be: {sentence}\n", style="bold red")
    return Panel(lines, title="story")


def _incidents(progress: Progress) -> Panel:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    for width in (8, 11, 19, 6, 12):
        table.add_column(no_wrap=True, overflow="ellipsis", min_width=width)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    live = progress.sight.live_incidents() if progress.sight else ()
    for item in live[:7]:
        where = item.node_id if item.entity_kind == "gpu" else item.entity
        table.add_row(
            styled(item.severity),
            item.fault_class,
            where,
            age(item.opened_at),
            styled(item.phase),
            Text(item.why),
        )
    return Panel(table if live else Text("no incident", style="dim"), title="incidents")
