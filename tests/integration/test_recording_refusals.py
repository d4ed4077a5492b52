"""Recordings that cannot be read: refused with the file, the row and the mend."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gpuwarden_models.recording import Recording, RecordingError
from tests.builders.recorded import (
    ALL_KINDS,
    START,
    A,
    gpu_lines,
    text,
    wide,
)


def broken_text(*lines: str, end: str = "# EOF\n") -> Callable[[Path], None]:
    return lambda folder: void(text(folder, lines, end=end))


def broken_wide(name: str, **columns: Sequence[object]) -> Callable[[Path], None]:
    return lambda folder: void(wide(folder, name, columns))


def beside(name: str, content: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        text(folder, gpu_lines("DCGM_FI_DEV_GPU_TEMP", [41]))
        (folder / name).write_text(content)

    return make


def void(_: object) -> None:
    return None


GOOD = f'DCGM_FI_DEV_GPU_TEMP{{node="n1",UUID="{A}"}} 41 1772323200'
ROW: dict[str, Sequence[object]] = {
    "timestamp": [START, START + 30],
    "node": ["n1", "n1"],
    "gpu_uuid": [A, A],
}


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (broken_text(GOOD, "{oops 1 2"), r"all\.om, line 2: .*not a series.*take it out"),
        (broken_text(GOOD, GOOD[:-11]), r"all\.om, line 2: .*no timestamp"),
        (broken_text(GOOD, GOOD.replace(" 41 ", " hot ")), r"all\.om, line 2: .*no number.*hot"),
        (broken_text(GOOD + "000"), r"all\.om, line 1: .*divided by 1000"),
        (broken_text(GOOD, 'node_load1{node="n1 3 1772323200'), r"all\.om, line 2:"),
        (broken_text(GOOD, end=""), r"all\.om: does not end with # EOF.*cut off after line 1"),
        (broken_text(GOOD, "# EOF", GOOD), r"all\.om, line 3: .*behind # EOF"),
        (
            broken_text("DCGM_FI_DEV_GPU_TEMP 41 1772323200"),
            "no rows of any metric that we know",
        ),
        (
            broken_text(f'DCGM_FI_DEV_GPU_TEMP{{UUID="{A}"}} 41 1772323200'),
            "DCGM_FI_DEV_GPU_TEMP names no node; give it a label",
        ),
        (
            broken_wide("gpu", **ROW | {"timestamp": [START, None]}, DCGM_FI_DEV_GPU_TEMP=[1, 2]),
            r"gpu\.parquet, row 2: no timestamp",
        ),
        (
            broken_wide("gpu", **ROW | {"timestamp": [1e12, 2e12]}, DCGM_FI_DEV_GPU_TEMP=[1, 2]),
            r"gpu\.parquet, row 1: .*divided by 1000",
        ),
        (
            broken_wide("gpu", **ROW | {"timestamp": ["now", "then"]}, DCGM_FI_DEV_GPU_TEMP=[1, 2]),
            r"gpu\.parquet: column timestamp is of type string.*ISO 8601",
        ),
        (
            broken_wide("gpu", **ROW | {"gpu_uuid": [A, None]}, DCGM_FI_DEV_GPU_TEMP=[1, 2]),
            r"gpu\.parquet, row 2: names no gpu_uuid",
        ),
        (
            broken_wide("gpu", **ROW, DCGM_FI_DEV_GPU_TEMP=["warm", "hot"]),
            r"gpu\.parquet: column DCGM_FI_DEV_GPU_TEMP is of type string, not numbers",
        ),
        (
            beside("fleet.csv", f"node,gpu_uuid\nn1,{A}\nn2,{A}\n"),
            r"fleet\.csv, line 3: .*earlier line too, on n1",
        ),
        (beside("fleet.csv", "node,gpu_uuid\nn1,\n"), r"fleet\.csv, line 2: names no"),
        (
            beside("jobs.csv", "job_id,nodes,start,end,state\n1,n1,50,60,GONE\n"),
            r"jobs\.csv, line 2: state 'GONE'.*NODE_FAIL",
        ),
        (
            beside("jobs.csv", "job_id,nodes,start,end\n1,n1,50,40\n"),
            r"jobs\.csv, line 2: it ends before it starts",
        ),
        (
            beside("jobs.csv", "job_id,nodes,start\n1,n1,noon\n"),
            r"jobs\.csv, line 2: .*noon.*ISO 8601",
        ),
        (
            beside("jobs.csv", "job_id,nodes,start\n1,n[1-4],1772323200\n"),
            r"jobs\.csv, line 2: nodes are folded.*scontrol show hostnames",
        ),
        (
            beside("jobs.csv", "job_id,nodes,start\n1,n1,1772323200000\n"),
            r"jobs\.csv, line 2: 1772323200000 is no time in seconds",
        ),
        (beside("recording.json", '{"interval_s": 0}'), r"recording\.json: interval_s is 0"),
        (
            beside("recording.json", '{"start": 1772323230, "end": 1772323200}'),
            r"recording\.json: end is before start",
        ),
    ],
)
def test_broken_input_names_the_file_the_row_and_the_mend(
    tmp_path: Path, make: Callable[[Path], None], said: str
) -> None:
    make(tmp_path)
    with pytest.raises(RecordingError, match=said):
        list(Recording(tmp_path, ALL_KINDS).frames())


def test_a_packed_file_that_breaks_off_is_named(tmp_path: Path) -> None:
    text(tmp_path, gpu_lines("DCGM_FI_DEV_GPU_TEMP", list(range(500))))
    plain = tmp_path / "metrics" / "all.om"
    cut = gzip.compress(plain.read_bytes())[:-200]
    plain.unlink()
    (tmp_path / "metrics" / "all.om.gz").write_bytes(cut)
    with pytest.raises(RecordingError, match=r"all\.om\.gz: .*write it again"):
        Recording(tmp_path)


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    text(tmp_path, gpu_lines("DCGM_FI_DEV_GPU_TEMP", [41]))
    (tmp_path / "labels.csv").write_bytes(b"entity_kind,\xff\n")
    with pytest.raises(RecordingError, match=r"labels\.csv, after line 1: .*UTF-8"):
        Recording(tmp_path)
