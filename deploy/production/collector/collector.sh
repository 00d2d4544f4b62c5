#!/bin/sh
# Builds the Collector beside this script, once, and runs it with config.yaml.
#
#   ./collector.sh [OPTION...]      run it, with these options beside --config config.yaml
#   ./collector.sh path             print the path of the program, building it where needed
#   ./collector.sh clean            remove what this script built
#
# Needs Go (about two minutes on two cores). The program goes into a cache outside this
# checkout; TILELANG_OTEL_CACHE says where. An `otelcol-contrib` on the PATH is not used: it
# may be of another release, whose configuration may differ.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cache=${TILELANG_OTEL_CACHE:-${XDG_CACHE_HOME:-${HOME:?set HOME or TILELANG_OTEL_CACHE}/.cache}/tilelang-otel}
# What it is built from names what was built.
sources=$(cat "$here/main.go" "$here/go.mod" "$here/go.sum" | cksum | tr ' ' '-')
built=$cache/collector/$sources/collector

find_or_build() {
    if [ -x "$built" ]; then
        echo "$built"
        return
    fi
    if ! command -v go >/dev/null; then
        echo "collector.sh: 'go' is not on the PATH; install it, or use 'docker compose up'" \
            "in the folder above" >&2
        return 1
    fi
    echo "collector.sh: building the Collector once, into $built" >&2
    mkdir -p "$cache/collector/$sources"
    work=$(mktemp -d "$cache/collector/$sources/build.XXXXXX")
    trap 'rm -rf "$work"' EXIT INT TERM
    (cd "$here" && go build -trimpath -ldflags '-s -w' -o "$work/collector" .) >&2
    # A rename, so that nobody ever sees half a program.
    mv "$work/collector" "$built"
    echo "$built"
}

case ${1:-} in
path)
    find_or_build
    ;;
clean)
    rm -rf "$cache/collector"
    ;;
*)
    program=$(find_or_build)
    exec "$program" --config "file:$here/config.yaml" "$@"
    ;;
esac
