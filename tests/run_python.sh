#!/bin/sh
# run_python.sh PYTHON ARGUMENTS...: the Python tests in two processes side by side. What the second one says comes
# when the first is done.
set -u
python=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$python" -m pytest -q --isolate tests/python --part 2/2 "$@" >"$log" 2>&1 &
second=$!
"$python" -m pytest -q --isolate tests/python --part 1/2 "$@"
first_status=$?
wait "$second"
second_status=$?
cat "$log"
for status in "$first_status" "$second_status"; do
  # 5: no test of this half was asked for.
  [ "$status" -eq 0 ] || [ "$status" -eq 5 ] || exit "$status"
done
[ "$first_status" -eq 0 ] || [ "$second_status" -eq 0 ]
