from __future__ import annotations

import pytest

from gpuwarden_runtime.hosts import filter_hosts, host_of, same_host

LIST = """\
# rack 4
gpu-01
gpu-02 slots=8
gpu-03:8

gpu-04.cluster  slots=8 max_slots=8
gpu-05  # spare
gpu-[06-09]
"""


def test_excluded_hosts_go_and_the_rest_stays_as_written() -> None:
    hosts = filter_hosts(LIST, {"gpu-02", "gpu-03", "gpu-04", "gpu-05.cluster"})
    assert hosts.lines == ("# rack 4", "gpu-01", "", "gpu-[06-09]")
    assert hosts.kept == ("gpu-01",)
    assert hosts.removed == ("gpu-02", "gpu-03", "gpu-04.cluster", "gpu-05")
    assert hosts.unread == ("gpu-[06-09]",)


def test_nothing_excluded_changes_nothing() -> None:
    assert "\n".join(filter_hosts(LIST, ()).lines) + "\n" == LIST


@pytest.mark.parametrize(
    ("line", "host"),
    [
        ("gpu-01", "gpu-01"),
        ("  gpu-01 slots=8", "gpu-01"),
        ("gpu-01:8", "gpu-01"),
        ("fe80::1", "fe80:"),  # an address without brackets is read as MPICH reads it
        ("# gpu-01", ""),
        ("", ""),
    ],
)
def test_host_of_a_line(line: str, host: str) -> None:
    assert host_of(line) == host


def test_names_with_and_without_domain() -> None:
    assert same_host("gpu-1", "gpu-1.a.b")
    assert same_host("gpu-1.a", "gpu-1.a")
    assert not same_host("gpu-1.a", "gpu-1.b")
    assert not same_host("gpu-1", "gpu-10")
