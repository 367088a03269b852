#!/bin/sh
# Builds with a sanitizer and runs tests under it.
#
#   sanitize.sh SANITIZERS BUILD_DIR units          the C++ units and file tests
#   sanitize.sh SANITIZERS BUILD_DIR units python   and the Python tests, the arguments left over going to pytest
#
# The environment is .venv, or $VENV.
# Failed checks abort in these builds (KINTSUGI_DEBUG), so that a bug shows at its place.
set -eu
cd "$(dirname "$0")/.."

sanitizers=$1 build=$2
shift 2
units=false python=false
[ "${1:-}" = units ] && { units=true; shift; }
[ "${1:-}" = python ] && { python=true; shift; }

venv=$PWD/${VENV:-.venv}
extension=OFF
$python && extension=ON
"$venv/bin/cmake" -S . -B "$build" -G Ninja -DCMAKE_MAKE_PROGRAM="$venv/bin/ninja" \
  -DPython_EXECUTABLE="$venv/bin/python" -DCMAKE_BUILD_TYPE=Checked -DKINTSUGI_DEBUG=ON \
  -DKINTSUGI_SANITIZE="$sanitizers" -DKINTSUGI_EXTENSION=$extension >/dev/null
"$venv/bin/ninja" -C "$build" -j "${JOBS:-$(nproc)}" --quiet

export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1

if $units; then
  "$build/bin/unit_tests" --gtest_brief=1
  [ ! -x "$build/bin/filetests" ] || "$build/bin/filetests" --gtest_brief=1 tests/filetests
  [ ! -x "$build/bin/codegen_filetests" ] || "$build/bin/codegen_filetests" --gtest_brief=1
fi

if $python; then
  compiler=${CXX:-c++}
  # The interpreter is not built with ASan, so the runtime has to be loaded first; libstdc++ comes with it, because
  # ASan looks up __cxa_throw when it starts. Leaks are looked for by `make leaks`: an interpreter that exits never
  # frees everything. PYTHONMALLOC=malloc lets ASan see each Python object.
  preload="$($compiler -print-file-name=libasan.so) $($compiler -print-file-name=libstdc++.so.6)"
  env LD_PRELOAD="$preload" PYTHONMALLOC=malloc KINTSUGI_EXT_DIR="$PWD/$build/ext" \
    ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=1:allocator_may_return_null=1:detect_odr_violation=0 \
    "$venv/bin/python" -m pytest -q -p no:cacheprovider tests/python "$@"
fi
