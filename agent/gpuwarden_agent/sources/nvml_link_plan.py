"""Field values of links, prepared: hundreds of numbers taken apart in one go.

A plan holds for as long as each field of each link answers with a number of the same kind; at the
first that does not, links are read as if there were none.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuwarden_agent.sources.nvml_calls import NO_READING, Caller, Gpu
from gpuwarden_agent.sources.nvml_fields import number_form

_KIND_AND_CODE = "24xII8x"  # of each nvmlFieldValue_t: valueType and nvmlReturn


@dataclass(frozen=True, slots=True)
class _Batch:
    """Fields that are asked for in one call, and how they answered when the plan was made."""

    values: Any
    answers: struct.Struct
    expected: tuple[int, ...]
    numbers: struct.Struct


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """How some fields of a GPU's links are read."""

    batches: tuple[_Batch, ...]

    def read(self, caller: Caller, gpu: Gpu) -> list[float] | None:
        """One number a field, in order; None where any answered otherwise than before.

        Raises:
            CallError: As the call as a whole says.
        """
        numbers: list[float] = []
        for batch in self.batches:
            caller.fields(gpu.handle, batch.values)
            if batch.answers.unpack_from(batch.values) != batch.expected:
                return None
            numbers += batch.numbers.unpack_from(batch.values)
        return numbers if NO_READING.isdisjoint(numbers) else None


def make_link_plan(arrays: Sequence[Any]) -> LinkPlan | None:
    """A plan of arrays that were just filled; None where one of their fields has no number."""
    batches = []
    for values in arrays:
        answers = struct.Struct("=" + _KIND_AND_CODE * len(values))
        expected = answers.unpack_from(values)
        forms = [number_form(*one) for one in zip(expected[::2], expected[1::2], strict=True)]
        if not all(has_number for _, has_number in forms):
            return None
        numbers = struct.Struct("=" + "".join(form for form, _ in forms))
        batches.append(_Batch(values, answers, expected, numbers))
    return LinkPlan(tuple(batches))
