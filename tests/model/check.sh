#!/bin/bash
# check.sh [small|large]: searches the states of recovery.pml for a broken assertion or a dead end and
# says how many it looked at. Small: what `ctest` runs. Large: `make model`, minutes and gigabytes.
set -euo pipefail
model=$(cd "$(dirname "$0")" && pwd)/recovery.pml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# search NAME EXPECTED_ERRORS DEFINES... -- PAN_OPTIONS...
search() {
  local name=$1 expected=$2
  shift 2
  local defines=()
  while [ "$1" != -- ]; do defines+=("$1"); shift; done
  shift
  rm -f pan* ./*.trail
  spin -a "${defines[@]}" "$model"
  gcc -O2 -w -DSAFETY -DNOREDUCE "$@" -o pan pan.c
  ./pan -m1000000 -w24 > out || true
  local errors states depth
  errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' out)
  states=$(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' out)
  depth=$(sed -n 's/.*depth reached \([0-9]*\).*/\1/p' out)
  echo "$name: $states states, depth $depth, $errors errors (expected $expected)"
  if grep -q "error: max search depth too small\|pan: reached -DMEMLIM bound\|hash table full" out; then
    echo "$name: the search was cut short" >&2
    exit 1
  fi
  if [ "${errors:-none}" != "$expected" ]; then
    cat out >&2
    exit 1
  fi
}

case ${1:-small} in
  small)
    search "TP 1 x DP 2, 1 step, 1 death, 1 crash" 0 -DSTEPS=1 -- -DCOLLAPSE
    search "TP 2 x DP 1, 1 step, 1 death, 1 crash" 0 -DTP=2 -DDP=1 -DSTEPS=1 -- -DCOLLAPSE
    # The search finds what it is there to find.
    search "an old answer passes for a new one" 1 -DSTEPS=1 -DTAKE_ANY_OLDER -- -DCOLLAPSE
    ;;
  large)
    search "TP 1 x DP 2, 2 steps, 1 death, 1 crash" 0 -- -DCOLLAPSE
    search "TP 1 x DP 2, 2 steps, 2 deaths, no crash" 0 -DFAILURES=2 -DCRASHES=0 -- -DCOLLAPSE
    search "TP 1 x DP 2, 1 step, 1 death, 2 crashes" 0 -DSTEPS=1 -DCRASHES=2 -- -DCOLLAPSE
    # Bitstate hashing: most of the states, not provably all.
    search "TP 1 x DP 3, 1 step, 1 death, 1 crash (bitstate)" 0 -DDP=3 -DSTEPS=1 -DUNDER_WAY -- \
      -DBITSTATE
    search "TP 2 x DP 2, 1 step, 1 death, no crash (bitstate)" 0 -DTP=2 -DDP=2 -DSTEPS=1 \
      -DCRASHES=0 -DUNDER_WAY -- -DBITSTATE
    ;;
  *)
    echo "usage: check.sh [small|large]" >&2
    exit 2
    ;;
esac
