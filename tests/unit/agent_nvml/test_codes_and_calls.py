from __future__ import annotations

import pynvml
import pytest

from gpuwarden_agent.collectors.nvml_gpus import NVML_METRICS
from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_calls import Query
from gpuwarden_agent.sources.nvml_fields import GROUPS
from gpuwarden_agent.sources.nvml_gpm import GPM_METRICS
from gpuwarden_agent.sources.nvml_links import C2C_FIELDS, LINK_FIELDS, LINK_STATE_METRICS
from gpuwarden_agent.sources.nvml_mig import INSTANCE_METRICS, MIG_DEVICES
from gpuwarden_agent.sources.nvml_queries import QUERIES
from gpuwarden_agent.sources.pci_functions import AER_FILES
from gpuwarden_wire.metrics import EntityKind
from gpuwarden_wire.readings import NotSupported, Unavailable
from gpuwarden_wire.registry import metrics_of


def queries() -> list[tuple[Query, ...]]:
    return [group for lane in QUERIES.values() for group in lane]


def test_every_gpu_metric_of_the_registry_has_a_source() -> None:
    read = {metric for group in queries() for query in group for metric in query.metrics}
    read |= {one.metric for lane in GROUPS.values() for group in lane for one in group.fields}
    read |= {one.metric for one in (*LINK_FIELDS, *C2C_FIELDS)} | {*LINK_STATE_METRICS}
    read |= {MIG_DEVICES, *INSTANCE_METRICS, *GPM_METRICS}
    read |= {"gpu_present", "gpu_probe_seconds", "gpu_compute_processes"}
    read |= {"gpu_readings", "gpu_readings_lost"}
    read |= {f"gpu_aer_{severity}_total" for severity in AER_FILES}
    assert read == {metric.name for metric in metrics_of(EntityKind.GPU)}


def test_what_the_registry_says_to_come_from_nvml_comes_from_there() -> None:
    own = {"gpu_probe_seconds", "gpu_readings", "gpu_readings_lost"}
    own |= {f"gpu_aer_{severity}_total" for severity in AER_FILES}
    assert {*NVML_METRICS} == {metric.name for metric in metrics_of(EntityKind.GPU)} - own


def test_field_ids_are_those_of_pynvml_and_in_one_group_each() -> None:
    named = {value for name, value in vars(pynvml).items() if name.startswith("NVML_FI_")}
    asked = [
        (one.number, one.scope)
        for lane in GROUPS.values()
        for group in lane
        for one in group.fields
    ]
    assert len(asked) == len(set(asked))
    links = {one.number for one in (*LINK_FIELDS, *C2C_FIELDS)}
    assert {number for number, _ in asked} | links <= named


def test_alternatives_give_the_same_metrics() -> None:
    for group in queries():
        assert len({query.metrics for query in group}) == 1


def test_no_call_that_is_known_to_be_slow_is_made() -> None:
    """GetPcieThroughput samples for 20 ms a direction and GPU."""
    keys = {query.key for group in queries() for query in group}
    assert not any("PcieThroughput" in key for key in keys)


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
