from __future__ import annotations

from array import array
from collections.abc import Mapping

import msgspec
import pytest

from gpuwarden_agent.collectors.nvml_gpus import Finding, GpuMemory, GpuRoll, Trouble
from gpuwarden_agent.sources.nvml_frames import GpuAnswer
from gpuwarden_wire.number_rows import NumberRow, RowLayout
from gpuwarden_wire.readings import NotSupported, Stale, Unavailable

GOOD = {
    "gpu_power_watts": 300.0,
    "gpu_row_remap_pending": 0.0,
    "gpu_row_remap_failure": 0.0,
    "gpu_recovery_action": 0.0,
}


def answer(
    code: int = 0,
    uuid: str = "GPU-1",
    pci: str = "0000:1b:00.0",
    missing: dict[str, int] | None = None,
    **values: float,
) -> GpuAnswer:
    return GpuAnswer(
        uuid=uuid,
        pci_bus_id=pci,
        index=0,
        code=code,
        values={} if code else GOOD | values,
        missing=missing or {},
    )


def probes(*answers: GpuAnswer) -> list[list[Finding]]:
    gpu = GpuMemory(answers[0])
    return [gpu.note(one, float(clock)) for clock, one in enumerate(answers)]


def test_a_sound_gpu_is_no_news() -> None:
    assert probes(answer(), answer(), answer()) == [[], [], []]


def test_a_lost_gpu_is_told_at_its_first_and_second_probe_only() -> None:
    lost = answer(15)
    assert probes(answer(), lost, lost, lost) == [[], [Finding.MISSING], [Finding.MISSING], []]


def test_a_gpu_that_comes_back_is_checked_only_after_two_clean_probes() -> None:
    assert probes(answer(15), answer(), answer(), answer()) == [
        [Finding.MISSING],
        [Finding.BACK],
        [Finding.CHECKED],
        [],
    ]


def test_a_reading_that_fails_keeps_the_check_from_passing() -> None:
    half = answer(missing={"gpu_temperature_celsius": 999})
    assert probes(answer(15), half, half, answer(), answer()) == [
        [Finding.MISSING],
        [Finding.BACK],
        [],
        [],
        [Finding.CHECKED],
    ]


def test_what_a_gpu_does_not_have_keeps_no_check_from_passing() -> None:
    plain = answer(missing={"gpu_nvlinks_active": 3})
    assert probes(answer(15), plain, plain)[2] == [Finding.CHECKED]


def test_a_pending_remap_must_be_over_before_the_check_passes() -> None:
    pending = answer(gpu_row_remap_pending=1.0)
    gpu = GpuMemory(pending)
    found = [gpu.note(one, 0.0) for one in (pending, pending, answer(), answer())]
    assert found == [[], [], [], [Finding.CHECKED]]
    assert gpu.cleared == (Trouble.REMAP_PENDING,)


def test_a_failed_remap_never_passes() -> None:
    pending = answer(gpu_row_remap_pending=1.0)
    failed = answer(gpu_row_remap_failure=1.0)
    assert probes(pending, failed, failed, failed) == [[], [], [], []]


def test_the_drivers_own_verdict_counts_until_it_is_withdrawn() -> None:
    reset = answer(gpu_recovery_action=1.0)
    assert probes(reset, reset, answer(), answer()) == [[], [], [], [Finding.CHECKED]]


def test_an_error_that_is_not_about_the_gpu_is_neither_lost_nor_checked() -> None:
    forbidden = answer(4)
    gpu = GpuMemory(answer())
    gpu.note(answer(), 0.0)
    assert [gpu.note(one, 1.0) for one in (forbidden, forbidden)] == [[], []]
    assert gpu.row["gpu_present"] == Unavailable("no_permission")


def test_a_lost_gpu_keeps_what_it_never_had_apart_from_what_it_lost() -> None:
    gpu = GpuMemory(answer())
    gpu.note(answer(missing={"gpu_nvlinks_active": 3}), 0.0)
    gpu.note(answer(15), 1.0)
    assert gpu.row["gpu_present"] == 0.0
    assert gpu.row["gpu_power_watts"] == Unavailable("gpu_is_lost")
    assert gpu.row["gpu_nvlinks_active"] == NotSupported()


def test_silence_makes_numbers_stale_and_leaves_reasons() -> None:
    gpu = GpuMemory(answer())
    gpu.note(answer(missing={"gpu_nvlinks_active": 3, "gpu_sm_clock_hertz": 10}), 100.0)
    row = gpu.stale_row(112.5, "driver_stuck")
    assert row["gpu_power_watts"] == Stale(12.5)
    assert row["gpu_present"] == Stale(12.5)
    assert row["gpu_nvlinks_active"] == NotSupported()
    assert row["gpu_sm_clock_hertz"] == Unavailable("timeout")


def test_a_known_gpu_that_a_poll_does_not_mention_is_gone() -> None:
    roll = GpuRoll()
    both = [answer(), answer(uuid="GPU-2", pci="0000:43:00.0")]
    assert roll.note(both, 0.0) == []
    found = roll.note(both[:1], 1.0)
    assert [(gpu.last.uuid, finding) for gpu, finding in found] == [("GPU-2", Finding.MISSING)]
    assert roll.gpus["GPU-2"].missed_reason == "gpu_not_found"
    assert roll.missed_for_s(31.0) == 30.0


def test_a_gpu_in_whose_slot_another_answers_was_replaced_not_lost() -> None:
    roll = GpuRoll()
    roll.note([answer()], 0.0)
    assert roll.note([answer(28), answer(uuid="GPU-9")], 1.0) == []
    assert list(roll.gpus) == ["GPU-9"]


def payload(gpu: GpuMemory) -> tuple[object, object]:
    return gpu.row["gpu_readings"], gpu.row["gpu_readings_lost"]


def test_a_payload_that_shrinks_is_told() -> None:
    gpu = GpuMemory(answer())
    gpu.note(answer(gpu_temperature_celsius=40.0), 0.0)
    assert payload(gpu) == (5.0, 0.0)
    gpu.note(answer(missing={"gpu_temperature_celsius": 999}), 1.0)
    assert payload(gpu) == (4.0, 1.0)
    gpu.note(answer(gpu_temperature_celsius=40.0), 2.0)
    assert payload(gpu) == (5.0, 0.0)


def test_what_another_mode_or_driver_does_not_give_is_no_loss() -> None:
    gpu = GpuMemory(answer())
    gpu.note(answer(gpu_utilization_ratio=0.5, gpu_mig_mode=0.0), 0.0)
    gpu.note(answer(gpu_mig_mode=1.0), 1.0)
    assert payload(gpu) == (5.0, 0.0)
    roll = GpuRoll()
    roll.note([answer(gpu_utilization_ratio=0.5)], 0.0)
    roll.forget_support()
    roll.note([answer()], 1.0)
    assert payload(roll.gpus["GPU-1"]) == (4.0, 0.0)


def test_a_reading_of_no_weight_does_not_keep_the_check_from_passing() -> None:
    odd = answer(missing={"gpu_nvlink_symbol_ber_ratio": 999})
    assert probes(answer(15), odd, odd)[2] == [Finding.CHECKED]


def test_an_instance_less_is_no_loss_where_the_gpu_was_cut_anew() -> None:
    gpu = GpuMemory(answer())
    gpu.note(answer(gpu_mig_devices=2.0, gpu_mig_1_memory_used_bytes=9.0), 0.0)
    gpu.note(answer(gpu_mig_devices=1.0), 1.0)
    assert payload(gpu) == (5.0, 0.0)


LAYOUT = RowLayout((*GOOD, "gpu_temperature_celsius"))
REASONS: dict[str, int] = {}


def numbered(
    temperature: float, missing: Mapping[str, int] = REASONS, **values: float
) -> GpuAnswer:
    numbers = array("d", [*(GOOD | values).values(), temperature])
    return msgspec.structs.replace(answer(), values=NumberRow(LAYOUT, numbers), missing=missing)


def test_polls_without_news_are_taken_as_any_other() -> None:
    roll, gpu = GpuRoll(), GpuMemory(numbered(40.0))
    for clock, temperature in enumerate((40.0, 41.0, 42.0)):
        assert roll.note([numbered(temperature)], float(clock)) == []
        gpu.note(numbered(temperature), float(clock))
        known = roll.gpus["GPU-1"]
        assert dict(known.row) == dict(gpu.row)
        assert (known.read_at, known.clean_probes) == (gpu.read_at, gpu.clean_probes)
    assert roll.version == 1
    assert known.row["gpu_temperature_celsius"] == 42.0


@pytest.mark.parametrize(
    "news",
    [
        numbered(40.0, gpu_row_remap_pending=1.0),
        numbered(40.0, gpu_recovery_action=2.0),
        numbered(40.0, {"gpu_fan_speed_ratio": 999}),
        answer(gpu_temperature_celsius=40.0),
        answer(15),
        answer(uuid="GPU-9"),
        answer(pci="0000:1c:00.0"),
    ],
)
def test_whatever_else_a_poll_says_is_news(news: GpuAnswer) -> None:
    roll = GpuRoll()
    for clock in (0.0, 1.0):
        roll.note([numbered(40.0)], clock)
    roll.note([news], 2.0)
    assert roll.version == 2
