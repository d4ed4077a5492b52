"""The child's reading of GPUs in this process, over the stub, with the clock in the test's hand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from gpuwarden_agent.sources import nvml_codes as codes
from gpuwarden_agent.sources.nvml_calls import Lane
from gpuwarden_agent.sources.nvml_child import load_library
from tests.builders import nvml
from tests.builders.nvml import NodeScenario, ScenarioFile
from tests.builders.nvml_numbers import GIB
from tests.builders.nvml_rig import FAST_S, Rig

FIELDS = "nvmlDeviceGetFieldValues"


Start = Callable[[NodeScenario], Rig]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    def begin(node: NodeScenario) -> Rig:
        scenario = ScenarioFile(tmp_path / "scenario", node)
        monkeypatch.setenv("NVML_STUB_SCENARIO", str(scenario.path))
        assert load_library(str(nvml.stub_library())) == codes.SUCCESS
        pynvml.nvmlInit()
        return Rig(scenario)

    yield begin
    pynvml.nvmlShutdown()


def test_each_lane_keeps_its_reading_until_it_is_due(start: Start) -> None:
    rig = start(nvml.h100_node(1))
    rig.read()
    rig.change(temperature=50, banks_low=3, temperature_slowdown=90)
    soon = rig.read(5.0).values
    assert (soon["gpu_temperature_celsius"], soon["gpu_row_remap_banks_low"]) == (50.0, 0.0)
    later = rig.read(Lane.MINUTE.value).values
    assert later["gpu_row_remap_banks_low"] == 3.0
    assert later["gpu_slowdown_temperature_celsius"] == 95.0
    last = rig.read(Lane.HOUR.value).values
    assert last["gpu_slowdown_temperature_celsius"] == 90.0


def test_a_poll_asks_for_fields_in_two_calls_and_for_nothing_absent(start: Start) -> None:
    rig = start(nvml.l40s_node(1))
    first = rig.read()
    calls = rig.recorder.calls
    rig.read()
    assert calls[FIELDS] == 1  # the GPU's own; there is no link to ask about
    absent = {"nvmlDeviceGetMarginTemperature", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetMigMode"}
    assert not absent & calls.keys()
    assert first.missing["gpu_temperature_margin_celsius"] == codes.NOT_SUPPORTED
    linked = start(nvml.h100_node(1))
    linked.read()
    linked.read()
    assert linked.recorder.calls[FIELDS] == 3  # its own, its links' states, their errors
    assert linked.recorder.calls["nvmlDeviceGetNvLinkErrorCounter"] == 0


def test_support_is_asked_afresh_where_the_mode_changed(start: Start) -> None:
    rig = start(nvml.mig_node(1))
    assert rig.read().missing["gpu_utilization_ratio"] == codes.NOT_SUPPORTED
    rig.change(mig_mode=0, utilization_gpu=50, utilization_memory=20)
    assert "gpu_utilization_ratio" not in rig.read(5.0).values
    assert rig.read(Lane.MINUTE.value).values["gpu_utilization_ratio"] == 0.5


def test_each_mig_instance_tells_its_memory_and_errors(start: Start) -> None:
    rig = start(nvml.mig_node(1))
    rig.change(mig_3_memory_used=9, mig_6_sram_uncorrected=2)
    values = rig.read().values
    assert values["gpu_mig_devices"] == 7
    assert [values[f"gpu_mig_{n}_gpu_instance"] for n in range(7)] == list(range(7, 14))
    assert values["gpu_mig_2_memory_used_bytes"] == 7 * GIB
    assert values["gpu_mig_3_memory_used_bytes"] == 9
    assert values["gpu_mig_3_memory_total_bytes"] == 10 * GIB
    assert values["gpu_mig_6_sram_uncorrected_volatile_total"] == 2
    rig.change(mig_devices=6)  # the others keep what they say
    cut = rig.read(Lane.MINUTE.value)
    assert cut.values["gpu_mig_devices"] == 6
    assert cut.missing["gpu_mig_6_memory_used_bytes"] == codes.NOT_SUPPORTED
    assert cut.values["gpu_mig_3_memory_used_bytes"] == 9


def test_what_mig_instances_lack_is_asked_of_none_of_them_again(start: Start) -> None:
    rig = start(nvml.mig_node(1))
    call = "nvmlDeviceGetMemoryErrorCounter"
    rig.scenario.change(lambda n: n.gpu(0).rules.append(f"unsupported {call}"))
    name = "gpu_mig_5_sram_uncorrected_volatile_total"
    assert rig.read().missing[name] == codes.NOT_SUPPORTED
    assert rig.recorder.calls[call] == 1
    assert rig.read(Lane.MINUTE.value).missing[name] == codes.NOT_SUPPORTED
    assert rig.recorder.calls[call] == 0
    rig.scenario.change(lambda n: n.gpu(0).rules.append("fail nvmlDeviceGetGpuInstanceId 999"))
    assert rig.read(Lane.MINUTE.value).missing["gpu_mig_0_gpu_instance"] == codes.UNKNOWN
    rig.scenario.change(lambda n: n.gpu(0).rules.append("fail nvmlDeviceGetMaxMigDeviceCount 999"))
    sick = rig.read(Lane.MINUTE.value)
    assert sick.missing["gpu_mig_0_memory_used_bytes"] == codes.UNKNOWN
    assert sick.values["gpu_mig_mode"] == 1


def test_of_a_mig_mode_that_could_not_be_read_nobody_says_that_it_is_off(start: Start) -> None:
    rig = start(nvml.mig_node(1))
    names = ("gpu_mig_mode", "gpu_mig_devices", "gpu_mig_0_memory_used_bytes")
    assert set(names) <= rig.read().values.keys()
    rig.scenario.change(
        lambda n: n.gpu(0).rules.append(f"fail nvmlDeviceGetMigMode {codes.TIMEOUT}")
    )
    unread = rig.read(Lane.MINUTE.value)
    assert [unread.missing.get(name) for name in names] == [codes.TIMEOUT] * 3
    rig.scenario.change(lambda n: n.gpu(0).rules.clear())
    assert set(names) <= rig.read(Lane.MINUTE.value).values.keys()
    rig.change(mig_mode=0)
    whole = rig.read(Lane.MINUTE.value)
    assert [whole.missing.get(name) for name in names[1:]] == [codes.NOT_SUPPORTED] * 2


def test_a_gpu_that_is_cut_anew_is_read_whole_at_the_next_poll(start: Start) -> None:
    rig = start(nvml.mig_node(1))
    rig.read()
    rig.change(mig_devices=3)
    assert rig.read().values["gpu_mig_devices"] == 7
    rig.gpu.is_recut = True
    assert rig.read().values["gpu_mig_devices"] == 3


def test_gpm_tells_how_busy_the_parts_were_between_two_samples(start: Start) -> None:
    rig = start(nvml.h100_node(1))
    rig.roster.gpm_s = 10.0
    rig.change(gpm_1=90, gpm_2=75.5, gpm_5=40)
    first = rig.read()
    assert first.missing["gpu_sm_active_ratio"] == codes.NO_DATA  # it takes two
    assert rig.read(5.0).missing["gpu_sm_active_ratio"] == codes.NO_DATA
    second = rig.read(5.0)
    assert second.values["gpu_sm_active_ratio"] == 0.755
    assert second.values["gpu_tensor_active_ratio"] == 0.4
    assert second.missing["gpu_dram_active_ratio"] == codes.NOT_SUPPORTED
    rig.change(gpm_2=1)
    assert rig.read(5.0).values["gpu_sm_active_ratio"] == 0.755
    assert rig.read(5.0).values["gpu_sm_active_ratio"] == 0.01
    rig.scenario.change(lambda n: n.gpu(0).lose())
    assert rig.read(10.0).code == codes.GPU_IS_LOST
    rig.scenario.change(lambda n: n.gpu(0).restore())
    assert rig.read(10.0).missing["gpu_sm_active_ratio"] == codes.NO_DATA
    assert rig.read(10.0).values["gpu_sm_active_ratio"] == 0.01


@pytest.mark.parametrize("gpm_s", [10.0, math.inf])
def test_a_gpu_without_gpm_or_one_that_is_not_to_be_sampled_is_asked_for_none(
    start: Start, gpm_s: float
) -> None:
    rig = start(nvml.a100_node(1))
    rig.roster.gpm_s = gpm_s
    for _ in range(4):
        assert rig.read(10.0).missing["gpu_sm_active_ratio"] == codes.NOT_SUPPORTED
    assert not [call for call in rig.recorder.calls if call.startswith("nvmlGpm")]


def test_support_is_asked_afresh_after_a_reset(start: Start) -> None:
    scenario = nvml.h100_node(1)
    scenario.gpu(0).rules.append("unsupported field_186")
    rig = start(scenario)
    assert rig.read().missing["gpu_power_instant_watts"] == codes.NOT_SUPPORTED
    rig.scenario.change(lambda n: n.gpu(0).rules.clear())
    assert "gpu_power_instant_watts" in rig.read().missing
    rig.scenario.change(lambda n: n.gpu(0).lose())
    assert rig.read().code == codes.GPU_IS_LOST
    rig.scenario.change(lambda n: n.gpu(0).restore())
    assert rig.read().values["gpu_power_instant_watts"] == 655.5


def test_a_field_that_fails_now_is_asked_again(start: Start) -> None:
    scenario = nvml.b200_node(1)
    scenario.gpu(0).rules.append("fail field_222 999")
    rig = start(scenario)
    answer = rig.read()
    assert answer.missing["gpu_nvlink_symbol_ber_ratio"] == codes.UNKNOWN
    assert answer.values["gpu_nvlink_symbol_errors_total"] == 0.0
    rig.scenario.change(lambda n: n.gpu(0).rules.clear())
    assert rig.read(Lane.MINUTE.value).values["gpu_nvlink_symbol_ber_ratio"] == 5e-12


def test_a_link_counter_never_falls_when_a_link_goes_down(start: Start) -> None:
    scenario = nvml.b200_node(1)
    scenario.gpu(0).set("field_213", 2)
    rig = start(scenario)
    name = "gpu_nvlink_recoveries_total"
    assert rig.read().values[name] == 36.0
    rig.change(field_213=3)
    assert rig.read(Lane.MINUTE.value).values[name] == 54.0  # by prepared calls
    rig.scenario.change(lambda n: n.gpu(0).links_down.update({0, 1}))
    assert rig.read(Lane.MINUTE.value).values[name] == 54.0
    rig.scenario.change(lambda n: n.gpu(0).links_down.clear())
    rig.change(field_213=4)
    for _ in range(2):
        assert rig.read(Lane.MINUTE.value).values[name] == 72.0


def test_counters_of_links_are_read_by_prepared_calls_as_well_as_without(start: Start) -> None:
    rig = start(nvml.b200_node(1))
    first = rig.read()
    second = rig.read(Lane.MINUTE.value)
    assert any(rig.gpu.link_plans.values())
    links = [name for name in first.values if name.startswith("gpu_nvlink")]
    assert len(links) > 10
    assert {name: second.values[name] for name in links} == {
        name: first.values[name] for name in links
    }
    assert second.missing == first.missing
    rig.scenario.change(lambda n: n.gpu(0).rules.append("fail field_222 999"))
    sick = rig.read(Lane.MINUTE.value)
    assert sick.missing["gpu_nvlink_symbol_ber_ratio"] == codes.UNKNOWN
    assert sick.values["gpu_nvlink_symbol_errors_total"] == 0.0


def test_no_more_than_half_of_the_gpus_come_together_in_the_slow_lane(start: Start) -> None:
    rig = start(nvml.h100_node(8))
    rig.read()
    turns = [gpu.due[Lane.MINUTE] for gpu in rig.roster.gpus.values()]
    assert max(Counter(turns).values()) == 4
    assert max(turns) <= rig.now + Lane.MINUTE.value


def test_processes_are_counted(start: Start) -> None:
    scenario = nvml.h100_node(1)
    scenario.gpu(0).pids += [11, 12]
    rig = start(scenario)
    assert rig.read().values["gpu_compute_processes"] == 2.0


def test_a_corrupted_inforom_is_told_and_an_unsupported_one_is_not(start: Start) -> None:
    scenario = nvml.h100_node(1)
    scenario.gpu(0).set("inforom_valid", 0)
    assert start(scenario).read().values["gpu_inforom_valid"] == 0.0
    bare = nvml.h100_node(1)
    del bare.gpu(0).numbers["inforom_valid"]
    assert start(bare).read().missing["gpu_inforom_valid"] == codes.NOT_SUPPORTED


def test_an_sram_beyond_its_threshold_is_told_with_the_place(start: Start) -> None:
    scenario = nvml.h100_node(1)
    scenario.gpu(0).set("sram_threshold_exceeded", 1)
    scenario.gpu(0).set("sram_l2", 12)
    values = start(scenario).read().values
    assert values["gpu_sram_threshold_exceeded"] == 1.0
    assert values["gpu_sram_l2_uncorrected_aggregate_total"] == 12.0


@pytest.mark.parametrize(
    "make",
    [
        nvml.a100_node,
        nvml.h100_node,
        nvml.b200_node,
        nvml.gb200_node,
        nvml.l40s_node,
        nvml.mig_node,
    ],
)
def test_prepared_calls_bring_the_same_as_pynvml(
    start: Start, make: Callable[[int], NodeScenario]
) -> None:
    rig = start(make(1))
    first, second = rig.read(), rig.read()
    assert rig.gpu.plan is not None
    assert second.values == first.values
    assert second.missing == first.missing


def test_a_plan_follows_the_numbers(start: Start) -> None:
    rig = start(nvml.h100_node(1))
    rig.read()
    rig.read()
    plan = rig.gpu.plan
    rig.change(temperature=71, energy_mj=2**40, ecc_uncorrected_volatile=3, field_230=2)
    values = rig.read().values
    assert rig.gpu.plan is plan
    assert values["gpu_temperature_celsius"] == 71.0
    assert values["gpu_energy_joules_total"] == 2**40 / 1e3
    assert values["gpu_ecc_uncorrected_volatile_total"] == 3.0
    assert values["gpu_recovery_action"] == 2.0


def test_links_that_go_down_are_counted_and_keep_their_errors(start: Start) -> None:
    rig = start(nvml.h100_node(1))
    rig.change(link_replays=5)
    rig.read()
    rig.read()
    rig.scenario.change(lambda n: n.gpu(0).links_down.update({0, 1}))
    for _ in range(3):
        values = rig.read().values
        assert (values["gpu_nvlinks_active"], values["gpu_nvlinks_inactive"]) == (16.0, 2.0)
        assert values["gpu_nvlink_dl_replays_total"] == 5.0 * 18
        assert rig.gpu.plan is not None


def test_what_a_call_of_the_plan_refuses_is_told_and_the_rest_goes_on(start: Start) -> None:
    rig = start(nvml.h100_node(1))
    before = rig.read().values
    rule = "fail nvmlDeviceGetPowerUsage 999"
    rig.scenario.change(lambda n: n.gpu(0).rules.append(rule))
    for _ in range(2):  # without the plan that no longer holds, and with the next one
        answer = rig.read()
        assert answer.missing["gpu_power_watts"] == codes.UNKNOWN
        assert answer.values.keys() == before.keys() - {"gpu_power_watts"}
    rig.scenario.change(lambda n: n.gpu(0).rules.clear())
    for _ in range(2):
        assert rig.read().values == before


def test_a_field_that_changes_its_mind_is_told(start: Start) -> None:
    rig = start(nvml.h100_node(1))
    rig.read()
    rig.read()
    rig.scenario.change(lambda n: n.gpu(0).rules.append("fail field_230 999"))
    for _ in range(2):
        answer = rig.read()
        assert answer.missing["gpu_recovery_action"] == codes.UNKNOWN
        assert "gpu_recovery_action" not in answer.values
    rig.scenario.change(lambda n: n.gpu(0).rules.clear())
    assert rig.read().values["gpu_recovery_action"] == 0.0


def test_another_board_behind_a_handle_is_not_taken_for_the_one_before(start: Start) -> None:
    rig = start(nvml.h100_node(1))
    rig.read()
    rig.read()

    def swap(node: NodeScenario) -> None:
        node.gpu(0).uuid = node.gpu(0).uuid.replace("GPU-0", "GPU-f")

    rig.scenario.change(swap)
    assert rig.read().code == codes.GPU_NOT_FOUND


@pytest.mark.parametrize(
    "number", ["field_230", "ecc_uncorrected_volatile", "remap_pending", "remap_failure"]
)
def test_the_fast_lane_sees_what_announces_a_fault_once(start: Start, number: str) -> None:
    rig = start(nvml.h100_node(1))
    rig.read()
    assert rig.look() == ()
    rig.change(**{number: 1, "temperature": 77})
    assert rig.look() == (rig.gpu.uuid,)
    assert rig.look() == ()
    rig.read()
    assert rig.look() == ()
    assert rig.recorder.calls.total() == 3


@pytest.mark.parametrize("number", ["field_230", "remap_pending", "", "ecc_uncorrected_volatile"])
@pytest.mark.parametrize("phase", [0.01, 0.5, 0.99])
def test_a_change_is_told_within_one_fast_interval_whenever_it_comes(
    start: Start, number: str, phase: float
) -> None:
    rig = start(nvml.h100_node(2))
    rig.read()
    rig.lane.polled()
    for turn in (1, 2):
        rig.now += phase * FAST_S
        if number:
            rig.change(**{number: turn})
        else:
            rig.scenario.change(lambda one: one.gpu(0).lose())
        changed_at = rig.now
        while not rig.look_when_due():
            assert rig.now - changed_at < FAST_S * 1.05
        assert rig.now - changed_at < FAST_S * 1.05
        rig.scenario.change(lambda one: one.gpu(0).restore())
        rig.read(61.0)  # what failed is tried again within a minute
        rig.lane.polled()


def test_the_fast_lane_does_not_tell_what_the_poll_told(start: Start) -> None:
    rig = start(nvml.h100_node(1))
    rig.read()
    rig.change(remap_pending=1)
    assert rig.read().values["gpu_row_remap_pending"] == 1.0
    assert rig.look() == ()


def test_a_lost_gpu_is_told_by_the_fast_lane_once_and_looked_at_again_when_back(
    start: Start,
) -> None:
    rig = start(nvml.h100_node(2))
    rig.read()
    rig.scenario.change(lambda n: n.gpu(0).lose())
    assert rig.look() == (rig.gpu.uuid,)
    assert rig.look() == ()
    assert rig.read().code == codes.GPU_IS_LOST
    assert rig.look() == ()
    rig.scenario.change(lambda n: n.gpu(0).restore())
    assert rig.read().code == codes.SUCCESS
    rig.change(remap_pending=1)
    assert rig.look() == (rig.gpu.uuid,)


def test_a_look_that_failed_is_made_again_at_once_and_later_each_time(start: Start) -> None:
    rig = start(nvml.h100_node(1))
    waits = []
    rig.read()
    for _ in range(7):
        rig.scenario.change(lambda n: n.gpu(0).rules.append("fail nvmlDeviceGetRemappedRows 999"))
        assert rig.look() == (rig.gpu.uuid,)
        rig.scenario.change(lambda n: n.gpu(0).rules.clear())
        failed_at = rig.now
        while rig.gpu.fast is None:
            rig.read(1.0)
        waits.append(rig.now - failed_at)
    assert waits == [5, 10, 20, 40, 60, 60, 60]
    rig.read(61.0)
    rig.scenario.change(lambda n: n.gpu(0).rules.append("fail nvmlDeviceGetRemappedRows 999"))
    assert rig.look() == (rig.gpu.uuid,)
    rig.scenario.change(lambda n: n.gpu(0).rules.clear())
    rig.read()
    rig.change(remap_pending=1)
    assert rig.look() == (rig.gpu.uuid,)


def test_the_fec_history_of_all_links_is_summed_by_bin(start: Start) -> None:
    rig = start(nvml.b200_node(1))
    rig.change(**{"field_235": 1000, "field_250": 2, "field_250.3": 5})
    values = rig.read().values
    assert values["gpu_nvlink_fec_history_0_total"] == 18 * 1000
    assert values["gpu_nvlink_fec_history_15_total"] == 17 * 2 + 5
    assert start(nvml.h100_node(1)).read().missing["gpu_nvlink_fec_history_15_total"] == 3


def test_what_a_gpu_lacks_leaves_the_rest_of_the_fast_lane(start: Start) -> None:
    rig = start(nvml.a100_node(1))  # no recovery action
    rig.read()
    rig.change(ecc_uncorrected_volatile=1)
    assert rig.look() == (rig.gpu.uuid,)
