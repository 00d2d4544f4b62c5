#!/bin/sh
# Make a virtual environment with this checkout and one compiler in it.
#
#   set_up.sh NAME DIRECTORY
#
# NAME is a file beside this script, without ".txt". The environment is made anew
# when what it is made of has changed, or when an earlier set-up was interrupted.
set -eu

name=$1
directory=$2
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    echo "$python is not Python 3.10 or newer: say which one is, e.g. make PYTHON=python3.12 $name" >&2
    exit 1
fi

wanted=$(cat "$root/pyproject.toml" "$here/constraints.txt" "$here/$name.txt" "$0" | cksum)
wanted="$wanted $root $("$python" -c 'import sys; print(sys.version)')"
if [ -f "$directory/ready" ] && [ "$(cat "$directory/ready")" = "$wanted" ]; then
    exit 0
fi

echo "Setting up the environment $name in $directory (about half a minute)…" >&2
rm -rf "$directory"
"$python" -m venv "$directory"
"$directory/bin/python" -m pip install --quiet --disable-pip-version-check \
    --constraint "$here/constraints.txt" --requirement "$here/$name.txt" \
    --editable "$root[dev]"
printf '%s' "$wanted" > "$directory/ready"
