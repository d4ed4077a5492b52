from __future__ import annotations

from pathlib import Path

import pytest

from gpuwarden_runtime.arguments import UsageError, parse_arguments
from gpuwarden_runtime.cache import MAX_AGE_S, CachedSet, NoCache, SetCache
from gpuwarden_runtime.config import DEFAULT_URL, read_settings
from gpuwarden_runtime.errors import SettingError
from gpuwarden_runtime.feed import digest_of
from gpuwarden_runtime.records import Exclusion, ExclusionSet

URL = "http://127.0.0.1:8750"
ITEM = Exclusion(entity_kind="node", entity="n1", node_id="n1")
SET = ExclusionSet(feed_id="f", epoch=1, count=1, digest=digest_of([ITEM.key]), exclusions=(ITEM,))


def test_defaults() -> None:
    settings = read_settings({"HOME": "/home/x"})
    assert settings.url == DEFAULT_URL
    assert settings.key == ""
    assert settings.verdict_file == Path("/run/gpuwarden/verdict.json")
    assert settings.cache_folder == Path("/home/x/.cache/gpuwarden")


def test_key_comes_from_the_variable_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("gw_file\nsecond line\n")
    assert read_settings({"GPUWARDEN_KEY_FILE": str(file)}).key == "gw_file"
    both = {"GPUWARDEN_KEY": " gw_env ", "GPUWARDEN_KEY_FILE": str(file)}
    assert read_settings(both).key == "gw_env"


def test_key_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    with pytest.raises(SettingError, match=str(missing)):
        read_settings({"GPUWARDEN_KEY_FILE": str(missing)})
    empty = tmp_path / "empty"
    empty.write_text("\n")
    with pytest.raises(SettingError, match="is empty"):
        read_settings({"GPUWARDEN_KEY_FILE": str(empty)})


WRONG_KEYS = [
    ("gw_…", "character 4 of the key is … (U+2026)"),
    ("gw_a b", "character 5 of the key is a blank or line break (U+0020)"),
    ("gw_a\nX-Other: b", "character 5 of the key is a blank or line break (U+000A)"),
    ("gw_a\x1bb", "character 5 of the key is a control character (U+001B)"),
    # What Python makes of a byte of the environment that is no UTF-8.
    ("gw_\udce9", "character 4 of the key is U+DCE9"),
]


@pytest.mark.parametrize(("key", "fault"), WRONG_KEYS)
def test_key_that_no_header_can_carry_is_named_with_the_mend_and_not_shown(
    key: str, fault: str
) -> None:
    with pytest.raises(SettingError) as caught:
        read_settings({"GPUWARDEN_KEY": key})
    assert caught.value.detail == f"GPUWARDEN_KEY: {fault}, which no key has"
    assert "gpuwarden keys create" in caught.value.mend
    assert key not in str(caught.value)


def test_key_file_with_what_is_no_key_is_named(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("gw_…\n", encoding="utf-8")
    with pytest.raises(SettingError, match=r"character 4 of the key is …") as caught:
        read_settings({"GPUWARDEN_KEY_FILE": str(file)})
    assert str(file) in caught.value.detail


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8750", "ftp://x", "http://", "http://x:99999", "http://[x"]
)
def test_address_that_is_none_is_named(url: str) -> None:
    with pytest.raises(SettingError) as caught:
        read_settings({"GPUWARDEN_URL": url})
    assert repr(url) in caught.value.detail


def test_cache_gives_back_what_was_saved(tmp_path: Path) -> None:
    cache = SetCache(tmp_path / "deep" / "er", URL)
    assert cache.save(SET, 1000.0) == ""
    loaded = cache.load(1000.0 + MAX_AGE_S)
    assert isinstance(loaded, CachedSet)
    assert (loaded.content, loaded.saved_at) == (SET, 1000.0)
    assert [path.name for path in cache.path.parent.iterdir()] == [cache.path.name]


@pytest.mark.parametrize("now", [1001.0 + MAX_AGE_S, 1000.0 - 301.0])
def test_cache_too_old_or_from_the_future_is_not_used(tmp_path: Path, now: float) -> None:
    cache = SetCache(tmp_path, URL)
    cache.save(SET, 1000.0)
    assert isinstance(cache.load(now), NoCache)


def test_cache_of_another_server_or_damaged_is_not_used(tmp_path: Path) -> None:
    cache, other = SetCache(tmp_path, URL), SetCache(tmp_path, "http://other:1")
    assert isinstance(cache.load(0.0), NoCache)
    other.save(SET, 1000.0)
    other.path.replace(cache.path)
    assert isinstance(cache.load(1000.0), NoCache)
    cache.path.write_bytes(b'{"saved_at":')
    answer = cache.load(1000.0)
    assert isinstance(answer, NoCache)
    assert str(cache.path) in answer.reason


def test_cache_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "file" in SetCache(tmp_path / "file", URL).save(SET, 0.0)


def test_command_is_what_follows_the_dashes() -> None:
    arguments = parse_arguments(["--node", "n1", "--gpus", "0,1", "--", "run", "--", "--gpus", "x"])
    assert arguments.command == ("run", "--", "--gpus", "x")
    assert (arguments.node, arguments.gpus, arguments.grace_s) == ("n1", ("0", "1"), 30.0)


@pytest.mark.parametrize("options", [[], ["--gpus", "0"]])
def test_a_command_without_the_dashes_is_told_where_they_go(options: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse_arguments([*options, "echo", "hi"])
    said = "write -- before the command: gpuwarden-run [options] -- echo hi"
    assert str(caught.value).startswith(said)
    with pytest.raises(UsageError, match="unknown before --: --wrong"):
        parse_arguments(["--wrong", "--", "echo"])


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--"],
        ["sleep", "1"],
        ["--grace", "soon", "--", "x"],
        ["--grace", "nan", "--", "x"],
        ["--grace", "-1", "--", "x"],
        ["--hosts-in", "a", "--", "x"],
        ["--min-hosts", "-1", "--", "x"],
        ["--unknown", "--", "x"],
    ],
)
def test_wrong_usage_is_said_with_the_form(argv: list[str]) -> None:
    with pytest.raises(UsageError, match="usage: gpuwarden-run"):
        parse_arguments(argv)
