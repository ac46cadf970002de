#!/usr/bin/env bash
# Brings a fresh Debian 12 machine to where `cmake` can run: Debian packages, then .venv with the
# LibTorch wheel. Idempotent; says what it does; uses sudo only when not root.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=deploy/dev
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

wanted=$(sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' "$here/apt-packages.txt")
missing=()
for spec in $wanted; do
  name=${spec%%=*}
  dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'install ok installed' || missing+=("$spec")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "setup: installing ${#missing[@]} Debian packages: ${missing[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
else
  echo "setup: all Debian packages are installed"
fi

stamp=.venv/.installed
want=$(sha256sum "$here/requirements.txt" | cut -d' ' -f1)
if [ "$(cat "$stamp" 2>/dev/null || true)" != "$want" ]; then
  echo "setup: installing the LibTorch, data-set and test wheels into .venv (about 1 GB of downloads)"
  [ -x .venv/bin/python ] || /usr/bin/python3 -m venv .venv
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r "$here/requirements.txt"
  echo "$want" > "$stamp"
else
  echo "setup: .venv is up to date"
fi
