#!/bin/sh
# What the benchmark needs beside the Rust tool chain: taskset, redis-server, PostgreSQL, and the packages of the
# Node candidate (which bring their own Node). Installs what is missing where it may, else names it.
set -eu
cd "$(dirname "$0")"

need() { # command, Debian package
    command -v "$1" >/dev/null && return
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && apt-get install -y -qq "$2" >/dev/null
    else
        echo "bench: $1 is missing; install the package $2" >&2
        exit 1
    fi
}

need taskset util-linux
need redis-server redis-server
test -d /usr/lib/postgresql || need initdb postgresql
command -v npm >/dev/null || { echo "bench: npm is missing; install Node.js 20 or later" >&2; exit 1; }

# Again only when the lock file is newer than what is installed.
if [ ! -f node/node_modules/.package-lock.json ] || [ node/package-lock.json -nt node/node_modules/.package-lock.json ]; then
    (cd node && npm ci --no-audit --no-fund)
fi
