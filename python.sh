#!/bin/sh
# Print a Python that Sluice runs on and that can make virtual environments; $PYTHON is asked first.
for python in ${PYTHON:-} python3.11 python3.12 python3.13 python3; do
    if "$python" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
        command -v "$python"
        exit 0
    fi
done
echo "no Python 3.11, 3.12 or 3.13 with the venv module found; install one (Debian: apt-get install python3-venv), or set PYTHON" >&2
exit 1
