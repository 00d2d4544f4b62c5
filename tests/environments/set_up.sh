#!/bin/sh
# Make a virtual environment with this checkout and one compiler in it.
#
#   set_up.sh NAME DIRECTORY
#
# NAME is a file beside this script, without ".txt"; NAME.constraints, if there is
# one, takes the place of constraints.txt. NAME.base.txt, if there is one, is what is
# too large for every checkout: set_up_base.sh. The environment is made anew
# when what it is made of has changed, or when an earlier set-up was interrupted.
set -eu

name=$1
directory=$2
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-python3}
# Not those of the shell that make was called from: they would hide what is installed.
unset PYTHONPATH PYTHONHOME

fail() {
    echo "$1" >&2
    exit 1
}

which="Say which Python to take, e.g. make PYTHON=python3.12"
command -v "$python" >/dev/null 2>&1 || fail "There is no $python here. $which"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "$python is older than 3.10. $which"
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "$python cannot make environments: install python3-venv. Or: $which"
[ -f "$here/$name.txt" ] ||
    fail "There is no environment $name: there are $(cd "$here" && ls -- *.txt | sed 's/\.txt$//' | tr '\n' ' ')"

constraints=$here/constraints.txt
[ ! -f "$here/$name.constraints" ] || constraints=$here/$name.constraints
base=
[ ! -f "$here/$name.base.txt" ] || base=$(PYTHON=$python "$here/set_up_base.sh" "$name")
wanted=$(cat "$root/pyproject.toml" "$constraints" "$here/$name.txt" "$0" | cksum)
wanted="$wanted $root $base $("$python" -c 'import sys; print(sys.executable, sys.version)')"
if [ -f "$directory/ready" ] && [ "$(cat "$directory/ready")" = "$wanted" ]; then
    exit 0
fi

install() {
    "$directory/bin/python" -m pip install --quiet --no-input --disable-pip-version-check \
        --constraint "$constraints" "$@"
}

echo "Setting up the environment $name in $directory (a minute or two)…" >&2
(
    waited=0
    while sleep 15 >/dev/null 2>&1; do
        waited=$((waited + 15))
        echo "… still installing, $waited s" >&2
    done
) &
heartbeat=$!
trap 'kill $heartbeat 2>/dev/null' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

rm -rf "$directory"
"$python" -m venv "$directory"
[ -z "$base" ] || "$directory/bin/python" - "$base" <<'PYTHON'
import pathlib, sys, sysconfig

site = pathlib.Path(sysconfig.get_path("purelib"))
(site / "base.pth").write_text(f"import site; site.addsitedir({sys.argv[1]!r})\n")
PYTHON
# First what builds this package: pip would fetch another version each time.
install hatchling editables
install --no-build-isolation --requirement "$here/$name.txt" --editable "$root[dev]" ||
    fail "The environment $name could not be set up; the next make begins anew."
printf '%s' "$wanted" > "$directory/ready"
echo "The environment $name is ready." >&2
