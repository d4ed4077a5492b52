from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuwarden_agent.checks.definitions import Output, load_checks, parse_checks
from gpuwarden_agent.checks.ownership import refusal
from gpuwarden_agent.config import ConfigError

WHOLE = """
[[checks]]
name = "disk_root"
command = ["/usr/lib/nagios/plugins/check_disk", "-w", "10%", "/"]
interval_s = 60
deadline_s = 20.5
fault_class = "storage"
readings = { used_bytes = "/" }
environment = { LC_ALL = "C" }

[[checks]]
name = "gemm"
command = ["/opt/checks/gemm"]
output = "json"
proves_repair = true
"""


def test_a_file_gives_checks_with_defaults() -> None:
    disk, gemm = parse_checks(WHOLE, Path("checks.toml"))
    assert (disk.name, disk.interval_s, disk.deadline_s, disk.output) == (
        "disk_root", 60.0, 20.5, Output.NAGIOS,
    )  # fmt: skip
    assert disk.metrics == ("check_disk_root", "check_disk_root_used_bytes")
    assert not disk.proves_repair
    assert gemm.output is Output.JSON
    assert gemm.proves_repair
    assert (gemm.interval_s, gemm.deadline_s) == (300.0, 30.0)


MISTAKES = {
    'name = "Gemm"': ("gemm", "name = 'Gemm'", "letter first"),
    'name = "x"\ninterval_s = 0': ("x: interval_s = '0'", "seconds from 1"),
    'name = "x"\ninterval_s = true': ("x: interval_s", "seconds from 1"),
    'name = "x"\ninterval_s = nan': ("x: interval_s", "seconds from 1"),
    'name = "x"\ndeadline_s = 301': ("x: deadline_s", "interval_s"),
    'name = "x"\noutput = ["json"]': ("x: output", "nagios or json"),
    'name = "x"\nfault_class = "gpu"': ("x: fault_class", "memory"),
    'name = "x"\nproves_repair = "yes"': ("x: proves_repair", "true or false"),
    'name = "x"\nreadings = {"A b" = "x"}': ("x: readings", "letter first"),
    'name = "x"\nenvironment = {"A=" = "x"}': ("x: environment", "names of variables"),
    'name = "x"\nevery = 5': ("x: every", "no such key", "interval_s"),
}


@pytest.mark.parametrize("lines", MISTAKES)
def test_a_mistake_names_file_key_and_mend(lines: str) -> None:
    text = f'[[checks]]\ncommand = ["/bin/true"]\n{lines}\n'
    with pytest.raises(ConfigError) as raised:
        parse_checks(text, Path("/etc/gpuwarden/checks.toml"))
    message = str(raised.value)
    assert message.startswith("/etc/gpuwarden/checks.toml: ")
    for words in MISTAKES[lines]:
        assert words.lower() in message.lower()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[checks]]\ncommand = ["/bin/true"]', "check 1: name"),
        ('[[checks]]\nname = "x"', "x: command"),
        ('[[checks]]\nname = "x"\ncommand = "/bin/true -v"', "list of words"),
        ('[[checks]]\nname = "x"\ncommand = ["true"]', "absolute path"),
        ('checks = "x"', "[[checks]]"),
        ("check = []", "[[checks]]"),
        ("checks = [1]", "check 1"),
        ("checks = []\nother = 1", "other"),
        ("checks = [", "TOML"),
        ("", "[[checks]]"),
    ],
)
def test_a_file_of_another_form_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match="checks") as raised:
        parse_checks(text, Path("checks.toml"))
    assert words in str(raised.value)


@pytest.mark.parametrize("text", ["[" * 50_000, "nul", "{}", '"checks"', "[1]"])
def test_json_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"checks\.json"):
        parse_checks(text, Path("checks.json"))


def one(name: str, more: str = "") -> str:
    return f'[[checks]]\nname = "{name}"\ncommand = ["/bin/true"]\n{more}\n'


def test_a_folder_holds_several_files(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text(one("second"))
    (tmp_path / "a.json").write_text('{"checks": [{"name": "first", "command": ["/bin/true"]}]}')
    (tmp_path / ".hidden.toml").write_text("no TOML")
    (tmp_path / "README").write_text("neither")
    assert [check.name for check in load_checks(tmp_path)] == ["first", "second"]
    (tmp_path / "c.toml").write_text(one("first"))
    with pytest.raises(ConfigError, match=r"c\.toml: first: name: .*a\.json has it too"):
        load_checks(tmp_path)


def test_two_checks_may_not_make_one_metric(tmp_path: Path) -> None:
    path = tmp_path / "checks.toml"
    path.write_text(one("a", 'readings = { b = "x" }') + one("a_b"))
    with pytest.raises(ConfigError, match="check_a_b"):
        load_checks(path)


def test_there_may_be_so_many_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "checks.toml"
    path.write_text("".join(one(f"c{number}") for number in range(33)))
    with pytest.raises(ConfigError, match="more than 32 checks"):
        load_checks(path)
    names = ", ".join(f'r{number} = "x"' for number in range(70))
    path.write_text(one("a", f"readings = {{ {names} }}"))
    with pytest.raises(ConfigError, match="at most 64"):
        load_checks(path)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "gone.toml", tmp_path / "gone", tmp_path / "x.ini"):
        with pytest.raises(ConfigError, match=path.name):
            load_checks(path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_checks(tmp_path / "binary.toml")


def test_root_trusts_only_what_root_alone_can_change(tmp_path: Path) -> None:
    path = tmp_path / "check"
    path.write_text("")
    path.chmod(0o755)
    owned = path.stat().st_uid == 0
    found = refusal(path, euid=0)
    assert (found is None) is owned
    path.chmod(0o757)
    found = refusal(path, euid=0)
    assert found is not None
    assert "chmod" in found.mend or "chown" in found.mend
    assert refusal(path, euid=1000) is None
    assert refusal(tmp_path / "gone", euid=0) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to own files as root")
def test_a_folder_that_all_may_change_is_to_blame(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    path = folder / "check"
    path.write_text("")
    path.chmod(0o755)
    folder.chmod(0o777)
    found = refusal(path)
    assert found is not None
    assert str(folder) in found.mend
    folder.chmod(0o1777)
    assert refusal(path) is None
    os.chown(path, 1234, 0)
    found = refusal(path)
    assert found is not None
    assert found.mend == f"chown root {path.resolve()}"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to own files as root")
def test_root_does_not_obey_definitions_that_others_may_write(tmp_path: Path) -> None:
    path = tmp_path / "checks.toml"
    path.write_text(one("a"))
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="chmod go-w"):
        load_checks(path)
