"""What mistakes cost, and from which probability a score should speak."""

from __future__ import annotations

import pytest

from gpuwarden_verdict.policy.costs import EQUAL, Costs
from gpuwarden_verdict.policy.parse import PolicyError, parse_policy


def test_equal_costs_speak_from_a_half_and_dear_faults_earlier() -> None:
    assert EQUAL.operating_point == 0.5
    assert Costs(1.0, 9.0).operating_point == pytest.approx(0.1)
    assert Costs(9.0, 1.0).operating_point == pytest.approx(0.9)


def test_acting_and_waiting_cost_the_same_there() -> None:
    costs = Costs(3.0, 40.0)
    chance = costs.operating_point
    waiting = chance * costs.gpu_hour_missed_fault
    assert (1 - chance) * costs.gpu_hour_false_exclusion == pytest.approx(waiting)


def test_the_policy_says_them_and_its_version_follows() -> None:
    plain, said = parse_policy(""), parse_policy("[learning]\ngpu_hour_missed_fault = 12\n")
    assert (plain.costs, said.costs) == (EQUAL, Costs(1.0, 12.0))
    assert plain.version != said.version


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("learning = 3", "learning"),
        ("[learning]\ngpu_hours = 3", "learning.gpu_hours"),
        ("[learning]\ngpu_hour_missed_fault = 0", "learning.gpu_hour_missed_fault"),
        ("[learning]\ngpu_hour_missed_fault = -2", "learning.gpu_hour_missed_fault"),
        ("[learning]\ngpu_hour_missed_fault = nan", "learning.gpu_hour_missed_fault"),
        ("[learning]\ngpu_hour_missed_fault = true", "learning.gpu_hour_missed_fault"),
        ('[learning]\ngpu_hour_false_exclusion = "1"', "learning.gpu_hour_false_exclusion"),
    ],
)
def test_a_cost_that_is_none_is_named(text: str, key: str) -> None:
    with pytest.raises(PolicyError) as raised:
        parse_policy(text)
    assert raised.value.key == key
    assert raised.value.mend
