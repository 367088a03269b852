#!/bin/sh
# What requirements/pairs.txt says of a pair of CPython and torch, named as 3.11-2.14.
#
#   pair.sh list             the names of all pairs, the default pair first
#   pair.sh torch [PAIR]     the release of torch that a pair is built with (default: of the default pair)
#   pair.sh tests PAIR       whole or smoke
#   pair.sh python PAIR      an interpreter of its version on this machine: $KINTSUGI_PYTHON, on the PATH, or of pyenv
set -eu
file=$(dirname "$0")/../requirements/pairs.txt

fail() { printf 'pair: %s\n' "$*" >&2; exit 1; }
rows() { awk '!/^#/ && NF == 4 {print $1 "-" $2, $3, $4}' "$file"; }
column() { # column PAIR NUMBER
  rows | awk -v pair="$1" -v n="$2" '$1 == pair {print $n; found = 1} END {exit !found}' ||
    fail "requirements/pairs.txt has no row for $1; it has $(rows | awk '{printf "%s%s", sep, $1; sep = ", "}')."
}
is_cpython() { # is_cpython PROGRAM VERSION
  "$1" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1] or sys.implementation.name != "cpython")' \
    "$2" 2>/dev/null
}

find_python() {
  version=$1
  # Of pyenv's, the newest patch release: version sort puts it last.
  pyenv=$(ls -d "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python 2>/dev/null | sort -V | tail -n 1)
  for candidate in ${KINTSUGI_PYTHON:-} "python$version" python3 python $pyenv; do
    if is_cpython "$candidate" "$version"; then
      command -v "$candidate"
      return
    fi
  done
  fail "CPython $version is not on this machine: install the package python$version, or name one with \
KINTSUGI_PYTHON=/path/to/python$version."
}

command=${1:?pair.sh list|torch|tests|python ...}
pair=${2:-$(rows | awk 'NR == 1 {print $1}')}
case $command in
  list) rows | awk '{print $1}' ;;
  torch) column "$pair" 2 ;;
  tests) column "$pair" 3 ;;
  python) column "$pair" 1 >/dev/null && find_python "${pair%%-*}" ;;
  *) fail "unknown command: $command" ;;
esac
