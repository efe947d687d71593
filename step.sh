#!/bin/bash
# Run a step of set-up: NAME COMMAND...  Print a line when it begins, one every ten seconds, and its duration.
set -euo pipefail
name=$1
shift

report() {
    local status
    while true; do
        status=0
        read -r -t "${STEP_PACE:-10}" || status=$?
        if test $status -le 128; then return; fi  # the pipe was closed: the step has ended
        echo "setup: $name: $SECONDS s so far" >&2
    done
}

echo "setup: $name" >&2
exec 3> >(report)
"$@" 3>&- || {
    status=$?
    echo "setup: $name: failed after $SECONDS s" >&2
    exit $status
}
echo "setup: $name: done in $SECONDS s" >&2
