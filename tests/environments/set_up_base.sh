#!/bin/sh
# Install what is large once per machine, outside of any checkout, and print where.
#
#   set_up_base.sh NAME
#
# NAME.base.txt, beside this script, says what. The folder is named after what is
# in it, appears in one step when it is complete, and never changes then; several
# checkouts share it.
set -eu

name=$1
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tilelang-otel

key=$({
    cat "$here/$name.base.txt" "$here/constraints.txt"
    "$python" -c 'import sys, sysconfig; print(sys.version_info[:2], sysconfig.get_platform())'
    echo "${PIP_INDEX_URL:-} ${PIP_EXTRA_INDEX_URL:-}"
} | cksum | tr ' ' -)
base=$cache/$name-$key

if [ ! -d "$base" ]; then
    mkdir -p "$cache"
    # What interrupted set-ups left behind.
    find "$cache" -maxdepth 1 -name '*.partial.*' -mtime +0 -exec rm -rf {} +
    partial=$(mktemp -d "$base.partial.XXXXXX")
    trap 'rm -rf "$partial"' EXIT
    trap 'exit 130' INT TERM HUP
    echo "Installing $name into $base (several GB, some minutes; once per machine)…" >&2
    mkdir "$partial/tmp"
    TMPDIR=$partial/tmp "$python" -m pip install --quiet --disable-pip-version-check \
        --no-cache-dir --root-user-action=ignore \
        --target "$partial/site" \
        --constraint "$here/constraints.txt" --requirement "$here/$name.base.txt" >&2
    rm -rf "$partial/tmp"
    # Whoever is first wins; rename(2) does not replace a folder that has something in it.
    "$python" -c 'import os, sys; os.rename(*sys.argv[1:])' "$partial" "$base" 2>/dev/null || test -d "$base"
fi
echo "$base/site"
