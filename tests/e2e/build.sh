#!/bin/sh
# Builds what the tests here run and cannot find, before they start: it takes longer than a test
# may. Without Go there is nothing to do: the tests then say what they miss.
set -eu

deploy=$(CDPATH='' cd -- "$(dirname -- "$0")/../../deploy" && pwd)

if command -v go >/dev/null; then
    "$deploy/jaeger/jaeger.sh" path
    "$deploy/production/collector/collector.sh" path
fi
