"""How well kernel lines are told apart: `.venv/bin/python bench/kernel_log.py FOLDER`.

FOLDER holds the public lines (docs/public-data.md). Prints the table that the contract test
asserts, with 95 % Wilson intervals (public data).
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.contract.kernel_log_table import render

if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit("Give the folder that holds klog/ and loghub/ (see docs/public-data.md).")
    print(render(Path(sys.argv[1])))
