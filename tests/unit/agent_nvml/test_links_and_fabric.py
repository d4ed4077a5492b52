from __future__ import annotations

import pytest

from gpuwarden_agent.sources.nvml_fabric import FABRIC_METRICS, decode_fabric
from gpuwarden_agent.sources.nvml_links import ber_of


@pytest.mark.parametrize(
    ("packed", "rate"),
    [(0x05_0C, 5e-12), (0x0F_FF, 0.0), (0x01_00, 1.0), (0x00_0F, 0.0), (0x1F5_0C, 5e-12)],
)
def test_a_bit_error_rate_is_unpacked(packed: int, rate: float) -> None:
    assert ber_of(packed) == pytest.approx(rate, rel=1e-12)


def fabric(
    state: int = 3, error: int = 0, clique: int = 1, summary: int = 1, mask: int = 0
) -> dict[str, float | None]:
    numbers = decode_fabric(state, error, clique, summary, mask)
    return {
        name.removeprefix("gpu_fabric_"): number
        for name, number in zip(FABRIC_METRICS, numbers, strict=True)
    }


def test_a_gpu_without_a_fabric_has_none_of_its_readings() -> None:
    assert set(fabric(state=0, mask=0xFFFF).values()) == {None}


@pytest.mark.parametrize("state", [1, 2])
def test_before_it_has_joined_only_that_is_known(state: int) -> None:
    """The fabric manager is not running, or has not got so far: the rest is not set yet."""
    known = {name: number for name, number in fabric(state=state).items() if number is not None}
    assert known == {"state": state}


def test_each_flag_of_the_mask_is_true_false_or_not_there() -> None:
    found = fabric(mask=0b01_10_00_01)
    assert (found["bandwidth_degraded"], found["route_recovering"]) == (1.0, None)
    assert (found["route_unhealthy"], found["access_timeout_recovering"]) == (0.0, 1.0)
    assert found["misconfiguration"] is None


def test_a_wrong_configuration_is_told_by_number() -> None:
    assert fabric(mask=0x1 << 8)["misconfiguration"] == 0
    assert fabric(mask=0x5 << 8)["misconfiguration"] == 4  # too few NVLinks


def test_all_parts_not_supported_on_a_healthy_gpu_is_no_fault() -> None:
    found = fabric(summary=0, mask=0)
    assert (found["state"], found["error_code"], found["clique"]) == (3, 0, 1)
    assert [found[name] for name in ("health", "route_unhealthy", "misconfiguration")] == [None] * 3
