#!/bin/sh
# Looks for the programs that some tests talk to. As root, installs what is missing by apt; otherwise
# the tests that need a missing program skip and say so.
set -eu
# program:Debian package
wanted="gcc:gcc chromium:chromium prometheus:prometheus prometheus-node-exporter:prometheus-node-exporter prometheus-alertmanager:prometheus-alertmanager victoria-metrics:victoria-metrics slurmctld:slurmctld slurmd:slurmd scontrol:slurm-client munged:munge docker-compose:docker-compose"
missing=""
gcc_ready() { echo '#include <stdlib.h>' | gcc -E - >/dev/null 2>&1; }
for pair in $wanted; do
    program=${pair%%:*}
    command -v "$program" >/dev/null 2>&1 || missing="$missing ${pair##*:}"
done
gcc_ready || missing="$missing libc6-dev"
# Grafana's own types for dashboards, from npm, beside the virtual environment's packages.
schema=.venv/grafana-schema
if command -v npm >/dev/null 2>&1 && [ -d .venv ] && [ ! -x $schema/node_modules/.bin/tsc ]; then
    npm install --prefix $schema --no-save --no-package-lock --no-audit --no-fund --silent \
        @grafana/schema@13.2.3 typescript@5.9.3 >/dev/null 2>&1 ||
        echo "npm could not install @grafana/schema: the test of the dashboards' types will skip"
fi
# Debian keeps PostgreSQL's programs off PATH.
command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 ||
    missing="$missing postgresql"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing test services by apt:$missing"
    # Services must not start by themselves on the user's machine: the tests start their own.
    export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
    apt-get update -qq || true
    for package in $missing; do
        apt-get install -y -qq --no-install-recommends "$package" >/dev/null 2>&1 ||
            echo "apt could not install $package: the tests that need it will skip"
    done
else
    echo "Not found on PATH (the tests that need them will skip):$missing"
fi
