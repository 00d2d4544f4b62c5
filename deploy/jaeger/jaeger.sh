#!/bin/sh
# Finds Jaeger, or builds it once, and runs it with the configuration beside this script.
#
#   ./jaeger.sh            run Jaeger in the foreground (Ctrl-C stops it)
#   ./jaeger.sh path       print the path of the program, building it first where needed
#   ./jaeger.sh clean      remove what this script built
#
# A `jaeger` on the PATH is used as it is. Otherwise the release below is built with Go
# (about six minutes on two cores, 120 MB) into a cache outside this checkout. Set
# TILELANG_OTEL_CACHE to choose the cache folder, and GOFLAGS=-p=1 to build more gently.
set -eu

# The Go module has its own numbering: v1.76.0 is Jaeger release v2.13.0.
module_version=v1.76.0
module=github.com/jaegertracing/jaeger

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cache=${TILELANG_OTEL_CACHE:-${XDG_CACHE_HOME:-${HOME:?set HOME or TILELANG_OTEL_CACHE}/.cache}/tilelang-otel}
built=$cache/jaeger/$module_version/jaeger

find_or_build() {
    if command -v jaeger; then
        return
    fi
    if [ -x "$built" ]; then
        echo "$built"
        return
    fi
    if ! command -v go >/dev/null; then
        echo "jaeger.sh: neither 'jaeger' nor 'go' is on the PATH; install one of them," \
            "or use 'docker compose up' in this folder" >&2
        return 1
    fi
    echo "jaeger.sh: building Jaeger $module_version once, into $built" >&2
    mkdir -p "$cache/jaeger/$module_version"
    work=$(mktemp -d "$cache/jaeger/$module_version/build.XXXXXX")
    trap 'rm -rf "$work"' EXIT INT TERM
    (
        cd "$work"
        go mod init build/jaeger
        go get -tool "$module/cmd/jaeger@$module_version"
        go build -trimpath -ldflags '-s -w' -o jaeger "$module/cmd/jaeger"
    ) >&2
    # A rename, so that nobody ever sees half a program.
    mv "$work/jaeger" "$built"
    echo "$built"
}

case ${1:-run} in
run)
    program=$(find_or_build)
    exec "$program" --config "file:$here/config.yaml"
    ;;
path)
    find_or_build
    ;;
clean)
    rm -rf "$cache/jaeger"
    ;;
*)
    echo "usage: $0 [run | path | clean]" >&2
    exit 2
    ;;
esac
