from __future__ import annotations

import pytest

from gpuwarden_runtime.host_names import HostNameError, read_hosts, same_host
from gpuwarden_runtime.hosts import HostListError, filter_hosts

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
    assert hosts.kept == ("gpu-01", "gpu-06", "gpu-07", "gpu-08", "gpu-09")
    assert hosts.removed == ("gpu-02", "gpu-03", "gpu-04.cluster", "gpu-05")


def test_nothing_excluded_changes_nothing() -> None:
    assert "\n".join(filter_hosts(LIST, ()).lines) + "\n" == LIST


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("LEAF0", None),
        ("Leaf0.Cluster slots=8", None),
        ("user@leaf0", None),
        ("user@leaf0:8", None),
        ("leaf0,leaf1", "leaf1"),
        ("leaf1 , LEAF0:4, u@leaf2:4 slots=8  # all", "leaf1,u@leaf2:4 slots=8"),
        ("leaf[0-3]", "leaf1,leaf2,leaf3"),
        ("leaf[2,0]:8 slots=8", "leaf2:8 slots=8"),
        ("bob@leaf[0-1].a", "bob@leaf1.a"),
        ("leaf0,leaf0.a", None),
        ("leaf[1-2],other[0-1]", "leaf[1-2],other[0-1]"),
        ("leaf00", "leaf00"),
        ("leaf[00-01]", "leaf[00-01]"),
    ],
)
def test_every_way_of_naming_an_excluded_host(line: str, left: str | None) -> None:
    hosts = filter_hosts(f"# first\n{line}\n", {"leaf0"})
    assert hosts.lines == (("# first",) if left is None else ("# first", left))
    assert not {"leaf0", "LEAF0"} & set(hosts.kept)


@pytest.mark.parametrize(
    "line",
    ["leaf[0-", "leaf0-3]", "leaf[3-0]", "leaf[a-b]", "leaf[]", "leaf[0-999999]", "leaf{0..3}"],
)
def test_a_line_that_cannot_be_read_is_named_with_the_mend(line: str) -> None:
    with pytest.raises(HostListError) as caught:
        filter_hosts(f"leaf9\n# c\n{line} slots=8\n", {"leaf0"})
    assert caught.value.detail.startswith("line 3: ")
    assert line in caught.value.detail
    assert "leaf[0-3,7]" in caught.value.mend


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("gpu-01", ["gpu-01"]),
        ("gpu-01:8", ["gpu-01"]),
        ("me@gpu-01:8", ["gpu-01"]),
        ("gpu[08-10,12]", ["gpu08", "gpu09", "gpu10", "gpu12"]),
        ("r[1-2]n[1-2].x", ["r1n1.x", "r1n2.x", "r2n1.x", "r2n2.x"]),
        ("a,,b,", ["a", "b"]),
        ("fe80::1", ["fe80:"]),  # an address without brackets is read as MPICH reads it
        ("[fe80::1]:8", ["[fe80::1]"]),
    ],
)
def test_hosts_of_a_word(word: str, names: list[str]) -> None:
    assert [host.name for host in read_hosts(word)] == names


def test_ranges_that_multiply_beyond_reason_are_refused() -> None:
    with pytest.raises(HostNameError, match="over 100000 hosts"):
        read_hosts("a[1-9999]b[1-9999]")


def test_names_with_and_without_domain_or_capitals() -> None:
    assert same_host("gpu-1", "gpu-1.a.b")
    assert same_host("gpu-1.a", "gpu-1.A")
    assert same_host("GPU-1", "gpu-1.a")
    assert not same_host("gpu-1.a", "gpu-1.b")
    assert not same_host("gpu-1", "gpu-10")
