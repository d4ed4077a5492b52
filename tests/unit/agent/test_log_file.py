from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuwarden_agent.sources.kernel_lines import MAX_LINE_BYTES, FileMark, KernelLine
from gpuwarden_agent.sources.log_file import LogFileReader
from gpuwarden_wire.events import Backlog


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kern.log"


NOW = 1_700_000_000.0
BANNER = "Jun 14 15:16:01 gpu-7 kernel: [    0.000000] Linux version 6.8.0-41-generic (buildd@x)\n"


def reader(
    path: Path, mark: FileMark | None = None, same_boot: bool = True, backlog: int = 1_000_000
) -> LogFileReader:
    return LogFileReader(path, mark, backlog, same_boot=same_boot, clock=lambda: NOW)


def read_all(log: LogFileReader) -> list[KernelLine]:
    lines: list[KernelLine] = []
    while more := log.read(0):
        lines += more
    return lines


def texts(lines: list[KernelLine]) -> list[bytes]:
    return [line.text for line in lines]


def mark_at_end(path: Path) -> FileMark:
    log = reader(path)
    read_all(log)
    return log.mark()


def backlogs(log: LogFileReader) -> list[tuple[bytes, Backlog | None]]:
    return [(line.text[:20], line.backlog) for line in read_all(log)]


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_lines_have_the_place_they_stand_at_as_id(path: Path) -> None:
    path.write_text("one\ntwo\n")
    found = path.stat()
    lines = read_all(reader(path))
    place = f"file:{found.st_dev}:{found.st_ino}"
    assert [line.id for line in lines] == [f"{place}:0", f"{place}:4"]


def test_old_lines_are_backlog_and_new_ones_are_not(path: Path) -> None:
    path.write_text("old\n")
    log = reader(path)
    append(path, "new\n")
    assert [(line.text, line.backlog) for line in read_all(log)] == [
        (b"old", Backlog.FIRST_LOOK),
        (b"new", Backlog.NONE),
    ]


def test_a_line_that_is_appended_while_we_follow_is_seen_now(path: Path) -> None:
    path.write_text("old\n")
    log = reader(path)
    before = log.caught_up
    assert [line.observed_at for line in read_all(log)] == [None]
    assert (before, log.caught_up) == (False, True)
    append(path, "new\n")
    assert [line.observed_at for line in read_all(log)] == [NOW]


def test_a_first_look_tells_boots_apart_by_the_banner(path: Path) -> None:
    path.write_text("long ago\n" + BANNER + "old\n" + BANNER + "this boot\n")
    assert backlogs(reader(path)) == [
        (b"long ago", Backlog.OLDER_BOOT),
        (BANNER.encode()[:20], Backlog.OLDER_BOOT),
        (b"old", Backlog.OLDER_BOOT),
        (BANNER.encode()[:20], Backlog.OLDER_BOOT),
        (b"this boot", Backlog.FIRST_LOOK),
    ]


def test_after_a_reboot_the_banner_parts_history_from_news(path: Path) -> None:
    path.write_text("read\n")
    mark = mark_at_end(path)
    append(path, "before\n" + "x" * 80 + "\n" + BANNER + "after\n")
    found = dict(backlogs(reader(path, mark, same_boot=False)))
    assert (found[b"before"], found[b"after"]) == (Backlog.OLDER_BOOT, Backlog.NONE)


def test_after_a_reboot_without_a_banner_the_stamps_must_tell(path: Path) -> None:
    path.write_text("read\n")
    mark = mark_at_end(path)
    append(path, "whenever\nmy program prints: Linux version 6\n")
    log = reader(path, mark, same_boot=False)
    append(path, "while we follow\n")
    assert [backlog for _, backlog in backlogs(log)] == [None, None, Backlog.NONE]


@pytest.mark.parametrize("banner_in", ["rotated", "present"])
def test_a_reboot_is_found_in_either_of_two_files(path: Path, banner_in: str) -> None:
    path.write_text("read\n")
    mark = mark_at_end(path)
    append(path, "one\n" + (BANNER if banner_in == "rotated" else "") + "two\n")
    path.rename(path.with_name("kern.log.1"))
    path.write_text("three\n" + (BANNER if banner_in == "present" else "") + "four\n")
    found = dict(backlogs(reader(path, mark, same_boot=False)))
    assert found[b"one"] is Backlog.OLDER_BOOT
    assert found[b"four"] is Backlog.NONE
    middle = Backlog.NONE if banner_in == "rotated" else Backlog.OLDER_BOOT
    assert {found[b"two"], found[b"three"]} == {middle}


@pytest.mark.parametrize("after", [10_400, 10_486, 21_000])
def test_a_banner_is_found_wherever_it_lies_in_a_large_file(path: Path, after: int) -> None:
    path.write_text("read\n")
    mark = mark_at_end(path)
    filler = "y" * 99 + "\n"  # searched from the end in blocks of 1 MiB
    append(path, filler * 12_000 + BANNER + "z\n" + filler * after)
    assert dict(backlogs(reader(path, mark, same_boot=False)))[b"z"] is Backlog.NONE


def test_a_line_is_given_when_it_is_whole(path: Path) -> None:
    path.write_text("")
    log = reader(path)
    append(path, "NVRM: Xid (PCI:0000")
    assert read_all(log) == []
    mark = log.mark()
    append(path, ":3b:00): 79\n")
    assert texts(read_all(log)) == [b"NVRM: Xid (PCI:0000:3b:00): 79"]
    assert texts(read_all(reader(path, mark))) == [b"NVRM: Xid (PCI:0000:3b:00): 79"]


def test_a_resumed_reader_goes_on_where_it_stopped(path: Path) -> None:
    path.write_text("one\ntwo\n")
    log = reader(path)
    read_all(log)
    mark = log.mark()
    append(path, "three\n")
    lines = read_all(reader(path, mark))
    assert texts(lines) == [b"three"]
    assert lines[0].backlog is Backlog.NONE


def test_a_rotated_file_is_read_to_its_end_before_the_next(path: Path) -> None:
    path.write_text("one\n")
    log = reader(path)
    read_all(log)
    append(path, "two\nlast without end")
    path.rename(path.with_name("kern.log.1"))
    assert texts(read_all(log)) == [b"two"]
    path.write_text("three\n")
    lines = read_all(log)
    assert texts(lines) == [b"last without end", b"three"]
    assert {line.backlog for line in lines} == {Backlog.NONE}


def test_a_file_rotated_while_we_were_away_is_found(path: Path) -> None:
    path.write_text("one\n")
    log = reader(path)
    read_all(log)
    mark = log.mark()
    append(path, "two\n")
    path.rename(path.with_name("kern.log.1"))
    path.write_text("three\n")
    lines = read_all(reader(path, mark))
    assert texts(lines) == [b"two", b"three"]
    assert {line.backlog for line in lines} == {Backlog.NONE}


def test_a_file_rotated_away_for_good_starts_the_new_one_from_its_top(path: Path) -> None:
    path.write_text("one\ntwo\n")
    log = reader(path)
    read_all(log)
    mark = log.mark()
    path.unlink()
    path.write_text("another\n")
    assert texts(read_all(reader(path, mark))) == [b"another"]


def test_a_truncated_file_is_read_from_its_top_under_new_ids(path: Path) -> None:
    path.write_text("one one one\n")
    log = reader(path)
    before = read_all(log)
    path.write_text("two\n")
    after = read_all(log)
    assert texts(after) == [b"two"]
    assert before[0].id != after[0].id
    assert after[0].backlog is Backlog.NONE


def test_a_file_replaced_in_place_while_we_were_away_is_noticed(path: Path) -> None:
    path.write_text("one\n")
    log = reader(path)
    first = read_all(log)
    mark = log.mark()
    inode = path.stat().st_ino
    path.write_text("two, and longer than before\n")
    assert path.stat().st_ino == inode
    again = read_all(reader(path, mark))
    assert texts(again) == [b"two, and longer than before"]
    assert again[0].id != first[0].id


def test_ids_never_come_again_when_inodes_do(path: Path) -> None:
    ids: list[str] = []
    path.write_text("x\n")
    log = reader(path)
    for _ in range(4):
        ids += [line.id for line in read_all(log)]
        path.unlink()
        path.write_text("x\n")
    ids += [line.id for line in read_all(log)]
    assert len(ids) == 5
    assert len(set(ids)) == 5


def test_a_first_start_reads_the_end_of_a_huge_file_from_a_whole_line(path: Path) -> None:
    path.write_text("".join(f"line {number:06d}\n" for number in range(20_000)))
    lines = read_all(reader(path, backlog=65_536))
    assert lines[0].text.startswith(b"line ")
    assert len(lines[0].text) == len("line 000000")
    assert 5_000 < len(lines) < 5_500
    assert lines[-1].text == b"line 019999"


def test_an_endless_line_is_cut_and_does_not_fill_the_memory(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"x" * (5 * MAX_LINE_BYTES) + b"\nafter\n")
    lines = read_all(reader(path))
    assert [len(line.text) for line in lines] == [MAX_LINE_BYTES, 5]


def test_bytes_that_are_no_text_pass_through(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00\n\n")
    assert texts(read_all(reader(path))) == [b"\xff\xfe\x00", b""]


def test_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        reader(tmp_path / "none")


def test_a_fresh_line_is_seen_within_a_tenth_of_a_second(path: Path) -> None:
    path.write_text("")
    log = reader(path)
    child = os.fork()
    if child == 0:
        append(path, "fresh\n")
        os._exit(0)
    os.waitpid(child, 0)
    assert texts(log.read(0.1)) == [b"fresh"]
