from __future__ import annotations

import pynvml
import pytest

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_calls import QUERIES
from gpuwarden_agent.sources.nvml_fields import FIELDS
from gpuwarden_agent.sources.nvml_links import LINK_METRICS, decode_ber
from gpuwarden_agent.sources.nvml_slow import SLOW_QUERIES
from gpuwarden_agent.sources.pci_functions import AER_FILES
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Unavailable
from gpuwarden_wire.registry import metrics_of

GROUPS = (*QUERIES, *SLOW_QUERIES)


def test_every_gpu_metric_of_the_registry_has_a_source() -> None:
    read = {metric for group in GROUPS for query in group for metric in query.metrics}
    read |= {metric for metric, _ in FIELDS.values()} | {one.metric for one in LINK_METRICS}
    read |= {"gpu_present", "gpu_probe_seconds", "gpu_nvlinks_active", "gpu_nvlinks_inactive"}
    read |= {f"gpu_aer_{severity}_total" for severity in AER_FILES}
    assert read == {metric.name for metric in metrics_of(EntityKind.GPU)}


def test_alternatives_give_the_same_metrics_in_order_or_fewer() -> None:
    for first, *others in GROUPS:
        for other in others:
            assert other.metrics == first.metrics[: len(other.metrics)]


@pytest.mark.parametrize(
    ("packed", "ratio"), [(0xFFF, 0.0), (0x20E, 2e-14), (0x000, 0.0), (0x105, 1e-5)]
)
def test_a_bit_error_ratio_is_mantissa_and_exponent(packed: int, ratio: float) -> None:
    assert decode_ber(packed) == pytest.approx(ratio, abs=1e-30)


def test_our_codes_are_those_of_pynvml() -> None:
    ours = {name: value for name, value in vars(codes).items() if type(value) is int}
    theirs = {
        "SUCCESS": pynvml.NVML_SUCCESS,
        "VERSION_MISMATCH": pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
    for name, value in ours.items():
        assert value == theirs.get(name, getattr(pynvml, f"NVML_ERROR_{name}", None)), name


def test_every_code_of_pynvml_has_a_reason_of_its_own_or_is_absence() -> None:
    known = {value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
    unnamed = {code for code in known if codes.reason_of(code).startswith("nvml_error_")}
    assert unnamed <= codes.ABSENT | {24, 30}  # setters only: frequency and reset type


@pytest.mark.parametrize("code", [3, 13, 22, 25, 26])
def test_what_the_driver_does_not_have_is_not_supported(code: int) -> None:
    assert codes.missing_reading(code) == NotSupported()


@pytest.mark.parametrize(
    ("code", "reason"),
    [(4, "no_permission"), (10, "timeout"), (15, "gpu_is_lost"), (999, "unknown_error")],
)
def test_every_other_code_is_unavailable_with_its_reason(code: int, reason: str) -> None:
    assert codes.missing_reading(code) == Unavailable(reason)


def test_a_code_from_the_future_is_named_by_number() -> None:
    assert codes.missing_reading(77) == Unavailable("nvml_error_77")
