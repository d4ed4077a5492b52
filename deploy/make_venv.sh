#!/bin/sh
# Makes .venv with everything pinned in requirements.lock, and the project itself, editable.
# Needs Python >= 3.11. Where its venv module is missing: uv on PATH, else apt as root, else it says
# which command to type.
set -eu
cd "$(dirname "$0")/.."
venv=.venv

find_python() {
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return 0
        fi
    done
    echo "gpuwarden needs Python 3.11 or newer; none of python3, python3.11 .. python3.14 is." >&2
    echo "Debian 12, Ubuntu 24.04 or newer: apt-get install python3 python3-venv" >&2
    exit 1
}

has_venv() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null
}

python=$(find_python)
if ! has_venv "$python"; then
    if command -v uv >/dev/null 2>&1; then
        uv venv --quiet --seed --clear --python "$python" "$venv"
    elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        minor=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        echo "The venv module of $python is missing: installing python$minor-venv by apt." >&2
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            "python$minor-venv" >/dev/null
    else
        minor=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        echo "The venv module of $python is missing and uv is not on PATH. Type this, then try again:" >&2
        echo "    sudo apt-get install python$minor-venv" >&2
        exit 1
    fi
fi
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
echo "Installing the pinned packages into $venv ..." >&2
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
    --requirement requirements.lock
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    --no-build-isolation --editable .
touch "$venv/.ready"
