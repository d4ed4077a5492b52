from __future__ import annotations

import json
from typing import Any

import pytest

from gpuwarden_agent.checks.definitions import CheckDefinition, Output
from gpuwarden_agent.checks.process import Outcome
from gpuwarden_agent.checks.results import CheckResult, CheckState, parse_figures, results_of
from gpuwarden_wire.readings import Unavailable

NAGIOS = CheckDefinition(
    name="disk", command=("/bin/true",), readings={"used_bytes": "/", "time_seconds": "time"}
)
JSON = CheckDefinition(
    name="gemm", command=("/bin/true",), output=Output.JSON, readings={"flops": "tflops"}
)


def nagios(output: bytes, code: int = 0, errors: bytes = b"") -> CheckResult:
    (result,) = results_of(NAGIOS, Outcome(code, "", output, errors))
    return result


def spoken(*lines: Any, code: int = 0, cut: bool = False) -> tuple[CheckResult, ...]:
    output = b"\n".join(
        one if isinstance(one, bytes) else json.dumps(one).encode() for one in lines
    )
    return results_of(JSON, Outcome(code, "", output, cut=cut))


def test_first_line_is_text_and_figures_stand_behind_the_bar() -> None:
    result = nagios(b"DISK OK - free 3 GB|/=2643MB;5948;5958;0;5968 time=0.013s\nmore\n")
    assert (result.state, result.text) == (CheckState.OK, "DISK OK - free 3 GB")
    assert result.readings == {"used_bytes": 2643 * 2.0**20, "time_seconds": 0.013}


def test_figures_of_the_long_text_count() -> None:
    result = nagios(b"OK | time=1ms\nlong line 1\nlong line 2 | /=1KB\n/boot=2KB\n", 1)
    assert result.state is CheckState.WARNING
    assert result.readings == {"used_bytes": 1024.0, "time_seconds": pytest.approx(0.001)}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("'a b'=5%", {"a b": 0.05}),
        ("'it''s'=-1.5e2c", {"it's": -150.0}),
        ("a=U;1;2", {"a": Unavailable("check_says_unknown")}),
        ("a=1parsec", {}),
        ("a=1pc", {"a": Unavailable("unknown_unit")}),
        ("a=1us b=2", {"a": 1e-6, "b": 2.0}),
        ("= a= 'b=1 =3 x", {}),
        ("a=1e999", {"a": Unavailable("implausible_value")}),
        ("a" * 100_000 + "=1", {}),
        ("'" * 50_000, {}),
    ],
)
def test_figures(text: str, found: dict[str, Any]) -> None:
    assert parse_figures(text) == found


def test_a_figure_that_is_not_there_says_so() -> None:
    assert nagios(b"OK").readings["used_bytes"] == Unavailable("not_reported")


@pytest.mark.parametrize("code", [4, 127, 255])
def test_other_exit_codes_are_unknown(code: int) -> None:
    result = nagios(b"OK", code)
    assert (result.state, result.reason) == (CheckState.UNKNOWN, f"exit_code_{code}")


def test_exit_code_three_is_unknown_and_gives_no_reading() -> None:
    result = nagios(b"cannot connect | /=5B", 3)
    assert (result.state, result.reason) == (CheckState.UNKNOWN, "check_says_unknown")
    assert result.text == "cannot connect"
    assert set(result.readings.values()) == {Unavailable("check_says_unknown")}


def test_a_run_that_did_not_end_by_itself_is_unknown_whatever_it_printed() -> None:
    (result,) = results_of(NAGIOS, Outcome(None, "deadline_exceeded", b"DISK OK"))
    assert (result.state, result.reason) == (CheckState.UNKNOWN, "deadline_exceeded")
    assert set(result.readings.values()) == {Unavailable("deadline_exceeded")}


def test_binary_and_control_characters_become_harmless_text() -> None:
    result = nagios(b"\x1b[31mred\x00\xff\tend" + b"x" * 5000, 2)
    assert result.state is CheckState.CRITICAL
    assert result.text.isprintable()
    assert result.text.startswith("\ufffd[31mred\ufffd\ufffd end")
    assert len(result.text) == 500


def test_errors_stand_in_where_nothing_was_printed() -> None:
    assert nagios(b"", 2, b"Traceback\nmore").text == "Traceback"


def test_json_names_a_gpu_state_and_readings() -> None:
    (result,) = spoken(
        {"state": "critical", "text": "sum differs", "gpu_uuid": "GPU-1", "readings": {"tflops": 3}}
    )
    assert (result.state, result.gpu_uuid) == (CheckState.CRITICAL, "GPU-1")
    assert result.readings == {"flops": 3.0}


@pytest.mark.parametrize("written", ["0000:3B:00.0", "00000000:3b:00.0", "3b:00.0"])
def test_a_pci_address_is_brought_into_our_form(written: str) -> None:
    (result,) = spoken({"pci_bus_id": written})
    assert (result.gpu_uuid, result.pci_bus_id) == ("", "0000:3b:00.0")


def test_json_without_a_state_has_that_of_the_exit_code() -> None:
    assert [one.state for one in spoken({}, {"gpu_uuid": "GPU-2"}, code=1)] == [
        CheckState.WARNING,
        CheckState.WARNING,
    ]


def test_each_line_is_a_result_of_its_own() -> None:
    results = spoken(
        {"gpu_uuid": "GPU-1", "state": "ok"}, {"gpu_uuid": "GPU-2", "state": "unknown"}, code=0
    )
    assert [one.state for one in results] == [CheckState.OK, CheckState.UNKNOWN]
    assert results[1].readings == {"flops": Unavailable("check_says_unknown")}


@pytest.mark.parametrize(
    ("lines", "code", "reason"),
    [
        ([b""], 0, "no_output"),
        ([b"OK"], 0, "not_json"),
        ([b"[" * 60_000], 0, "not_json"),
        ([b"[]"], 0, "not_a_json_object"),
        ([{"state": "fine"}], 0, "no_such_state"),
        ([{"state": 0}], 0, "no_such_state"),
        ([{"gpu_uuid": 5}], 0, "no_such_gpu"),
        ([{"gpu_uuid": ""}], 0, "no_such_gpu"),
        ([{"pci_bus_id": ["x"]}], 0, "no_such_gpu"),
        ([{"pci_bus_id": "3b"}], 0, "no_such_pci_address"),
        ([{"state": "ok"}], 2, "exit_code_says_otherwise"),
        ([{"state": "ok"}], 3, "exit_code_says_otherwise"),
        ([{"state": "ok"}], 9, "exit_code_9"),
        ([{"state": "unknown"}], 3, "check_says_unknown"),
        ([{}] * 65, 0, "too_many_lines"),
    ],
)
def test_what_contradicts_itself_or_cannot_be_read_is_unknown(
    lines: list[Any], code: int, reason: str
) -> None:
    (result,) = spoken(*lines, code=code)
    assert (result.state, result.reason) == (CheckState.UNKNOWN, reason)
    assert set(result.readings.values()) == {Unavailable(reason)}


def test_json_that_was_cut_is_unknown() -> None:
    assert spoken({"state": "ok"}, cut=True)[0].reason == "output_too_long"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "not_reported"),
        ("3", "not_a_number"),
        (True, "not_a_number"),
        ([1], "not_a_number"),
        (10**400, "implausible_value"),
        (float("nan"), "implausible_value"),
        (float("inf"), "implausible_value"),
    ],
)
def test_a_reading_that_is_no_number_says_why(value: Any, reason: str) -> None:
    (result,) = spoken({"readings": {"tflops": value}})
    assert result.readings == {"flops": Unavailable(reason)}
