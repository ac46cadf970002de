#!/usr/bin/env bash
# Trains the solar-cell job on four CPU ranks of this host and follows it: demo.sh BUILD_DIR.
# Everything it starts is stopped at the end, on Ctrl-C and on failure too. Exits as the job does:
# 0 succeeded, 1 failed or cancelled, 3 and 4 as `tundish` says.
set -uo pipefail
cd "$(dirname "$0")/../.."
build=${1:?usage: demo.sh BUILD_DIR}
tundish=$build/bin/tundish
state=.tundish/demo
unset TUNDISH_COORDINATOR  # The cluster this script starts, whatever the shell points at.

.venv/bin/python examples/elpv/prepare.py || exit

# Ctrl-C reaches the program in the foreground and this shell; the EXIT trap does the rest.
trap '"$tundish" down --state-dir "$state"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
"$tundish" up --state-dir "$state" || exit
echo
echo "From another terminal: $tundish list, $tundish describe JOB, $tundish watch JOB -o json,"
echo "or http://127.0.0.1:7401/ in a browser. Kill a tundish-rank to see the job recover."
echo
"$tundish" submit examples/elpv.yaml --follow
code=$?
[ $code -eq 0 ] && echo "The model lies where the line \"model\" above says, below $PWD/$state/artifacts."
exit $code
