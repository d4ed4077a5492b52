"""Results of finished steps, as what they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from gpuwarden_models.evaluation.budgets import EXCLUSION_BUDGET
from gpuwarden_models.evaluation.comparison import LeftOut, Scored
from gpuwarden_models.evaluation.curve import CurvePoint
from gpuwarden_models.evaluation.options import Options
from gpuwarden_models.evaluation.playing import Played
from gpuwarden_models.evaluation.row_traces import joined
from gpuwarden_models.evaluation.rule_traces import as_trace, choose_rules
from gpuwarden_models.evaluation.sets import Recipe, Use
from gpuwarden_models.evaluation.steps import StepBook
from gpuwarden_models.evaluation.traces import EXCLUDED, Trace
from gpuwarden_models.evaluation.work import RecordingResult

_T = TypeVar("_T")


class Results:
    """All that the report is made from."""

    def __init__(
        self,
        book: StepBook,
        options: Options,
        made: Sequence[Recipe],
        versions: Mapping[str, str],
    ) -> None:
        """Take them; what was left out is not there."""
        self._book = book
        self.options, self.recipes, self.versions = options, tuple(made), versions

    def recording(self, name: str) -> RecordingResult:
        """A recording's result."""
        return msgspec.convert(self._book.result(name), RecordingResult)

    def played(self, name: str) -> Played:
        """What was made of a recording that was played."""
        found = self.recording(name).played
        assert found is not None, name
        return found

    def scored(self, name: str) -> Scored | None:
        """A scorer; None where it was not asked for."""
        return self._maybe(name, Scored)

    def left_out(self, name: str) -> Mapping[str, LeftOut]:
        """What models made of what they never saw; empty where it was not asked for."""
        found: dict[str, LeftOut] | None = self._maybe(name, dict[str, LeftOut])
        return found or {}

    def point(self, seconds: float) -> CurvePoint:
        """One sampling interval."""
        return msgspec.convert(self._book.result(f"interval-{seconds:g}"), CurvePoint)

    def exclusion(self) -> Mapping[str, Any] | None:
        """The exclusion benchmark as JSON; None without public data."""
        found: Mapping[str, Any] | None = self._book.result("exclusion")
        return found

    def groups(self, *uses: Use) -> dict[str, list[Recipe]]:
        """Recordings by set, in order."""
        found: dict[str, list[Recipe]] = {}
        for one in self.recipes:
            if one.use in uses:
                found.setdefault(one.group, []).append(one)
        return found

    def names(self, use: Use) -> list[str]:
        """Names of recordings."""
        return [one.name for one in self.recipes if one.use is use]

    def baseline(
        self, rules: str, names: Sequence[str], budget: float = EXCLUSION_BUDGET
    ) -> list[Trace]:
        """A rule set with the rules that the budget allows on the tuning recordings."""
        tuned = [self.played(name).baselines[rules] for name in self.names(Use.TUNE)]
        chosen = choose_rules(tuned, budget)
        return [as_trace(self.played(name).baselines[rules], chosen) for name in names]

    def with_floor(self, scored: Mapping[str, Trace], names: Sequence[str]) -> list[Trace]:
        """A learnt score with what the rules exclude, both seen at the same looks."""
        return [joined(scored[name], self.played(name).rules_at_looks, EXCLUDED) for name in names]

    def _maybe(self, name: str, kind: type[_T]) -> _T | None:
        found = self._book.result(name)
        return None if found is None else msgspec.convert(found, kind)
