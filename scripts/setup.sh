#!/bin/sh
# Sets up what the Makefile needs and does nothing where it is there already.
#
#   setup.sh system NEED...       system packages; NEED is one of compiler headers llvm tests lint
#   setup.sh testsuite DIR        DIR/test is CPython's own test package, where the interpreter came without it
#   setup.sh venv DIR FILE [TORCH] the virtual environment DIR with the requirements of FILE, and that release of torch
#   setup.sh schemas DIR          DIR/share has the schemas that tests validate against (requirements/sources.txt)
#
# A package that is missing is installed by apt when that is permitted (root, or sudo without a password);
# otherwise one sentence says which package is missing and why it is needed.
set -eu

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Of the pair $PAIR, or of the default pair.
find_python() { "$(dirname "$0")/pair.sh" python ${PAIR:+"$PAIR"}; }
python_version() { "$(find_python)" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

missing=""
reasons=""
optional=""
need() { # need PACKAGE REASON CHECK...
  package=$1 reason=$2
  shift 2
  "$@" >/dev/null 2>&1 || { missing="$missing $package"; reasons="$reasons
  $package ($reason)"; }
}
want() { # the same for a package that we can do without
  package=$1 reason=$2
  shift 2
  "$@" >/dev/null 2>&1 || optional="$optional $package"
}

has_header() { printf '#include <%s>\n' "$1" | ${CXX:-c++} -E -x c++ - ; }
has_llvm() {
  for config in llvm-config-19 /usr/lib/llvm-19/bin/llvm-config; do
    command -v "$config" && "$config" --link-static --libs orcjit native passes && return
  done
  return 1
}
has_python_headers() {
  "$(find_python)" -c 'import os, sys, sysconfig as s
sys.exit(not os.path.exists(s.get_path("include") + "/internal/pycore_frame.h"))'
}
has_venv() { "$(find_python)" -c 'import venv, ensurepip'; }

apt_install() {
  command -v apt-get >/dev/null 2>&1 || return 1
  if [ "$(id -u)" = 0 ]; then sudo=""
  elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then sudo="sudo -n"
  else return 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  $sudo apt-get install -y -q --no-install-recommends "$@" ||
    { $sudo apt-get update -q && $sudo apt-get install -y -q --no-install-recommends "$@"; }
}

system() {
  find_python >/dev/null
  version=$(python_version)
  for what in "$@"; do
    case $what in
      compiler)
        need g++ "the C++ compiler" command -v "${CXX:-c++}"
        need "python$version-venv" "virtual environments" has_venv
        want ccache "faster rebuilds" command -v ccache ;;
      headers)
        need "python$version-dev" "CPython's headers" has_python_headers
        want libre2-dev "RE2, for kintsugi kb match" has_header re2/set.h ;;
      llvm)
        need llvm-19-dev "code generation" has_llvm
        need libzstd-dev "what LLVM's archives need" has_header zstd.h
        need zlib1g-dev "what LLVM's archives need" has_header zlib.h ;;
      tests)
        need libgtest-dev "GoogleTest, for the C++ tests" has_header gtest/gtest.h
        want libre2-dev "RE2, for the matcher's tests" has_header re2/set.h
        want libbenchmark-dev "Google Benchmark" has_header benchmark/benchmark.h ;;
      lint)
        need clang-format "the formatting check" command -v clang-format
        want clang-tidy "make tidy" command -v clang-tidy ;;
      *) fail "unknown need: $what" ;;
    esac
  done
  if [ -n "$missing" ]; then
    say "installing$missing"
    # shellcheck disable=SC2086
    apt_install $missing $optional || fail "these system packages are missing and can't be installed from here \
(no permission, or no apt); please install them and run make again:$reasons"
  elif [ -n "$optional" ]; then
    # shellcheck disable=SC2086
    apt_install $optional >/dev/null 2>&1 || say "going on without$optional, which is optional"
  fi
}

# Some distributions of CPython leave out the package `test`. Debian has it as a package of its own; its tests suit any
# patch release, because a test that fails with and without our interpreter is no difference.
testsuite() {
  version=$(python_version)
  dir=$1 debian=/usr/lib/python$version/test
  if "$(find_python)" -c 'import test.support, test.test_generators' 2>/dev/null; then
    return
  fi
  if [ ! -e "$debian/test_generators.py" ]; then
    say "installing libpython$version-testsuite"
    apt_install libpython$version-testsuite || fail "CPython's own tests are missing and can't be installed from here \
(no permission, or no apt); please install the package libpython$version-testsuite and run make again."
  fi
  mkdir -p "$dir"
  ln -sfn "$debian" "$dir/test"
}

# A pin has the hashes of what may be installed for it, and what a pin asks for is a pin too
# (docs/adr/0022-hashes-of-requirements.md).
install() { # install DIR -r FILE...
  dir=$1
  shift
  "$dir/bin/python" -m pip install -qq --disable-pip-version-check --require-hashes --no-deps "$@"
}

# Of a release of torch, the build for the processor alone where an index of this machine has it, else that of the
# index, and what that asks for where it is one with CUDA.
install_with_torch() { # install_with_torch DIR FILE RELEASE
  dir=$1 files=requirements/torch-$3
  if [ -e "$files-cpu.txt" ] && install "$dir" --dry-run -r "$files-cpu.txt" >/dev/null 2>&1; then
    install "$dir" -r "$2" -r "$files-cpu.txt"
  else
    install "$dir" -r "$2" -r "$files.txt"
    if wants_cuda "$dir"; then install "$dir" -r "$files-cuda.txt"; fi
  fi
}

wants_cuda() { # wants_cuda DIR: is its torch a build with CUDA?
  "$1/bin/python" -c 'import importlib.util as u, pathlib, runpy, sys
version = pathlib.Path(u.find_spec("torch").origin).with_name("version.py")
sys.exit(runpy.run_path(str(version)).get("cuda") is None)'
}

make_venv() {
  dir=$1 requirements=$2 torch=${3:-}
  if [ ! -x "$dir/bin/python" ]; then
    python=$(find_python)
    say "creating $dir with $("$python" --version)"
    "$python" -m venv "$dir"
  fi
  version=$(python_version)
  "$dir/bin/python" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1])' "$version" ||
    fail "$dir holds another Python than $version: remove it (make distclean) and run make again."
  say "installing what $requirements lists and $dir lacks (the first time this takes some minutes)"
  if [ -n "$torch" ]; then install_with_torch "$dir" "$requirements" "$torch"
  else install "$dir" -r "$requirements"
  fi
}

# The archives are only unpacked, nothing of them is installed.
schemas() {
  dir=$1
  mkdir -p "$dir/share"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  "$dir/bin/python" -m pip download -qq --disable-pip-version-check --require-hashes --no-deps --no-binary sarif-om \
    -d "$work" -r requirements/sources.txt
  tar -xzOf "$work"/sarif_om-*.tar.gz --wildcards '*/sarif-2.1.0*.json' >"$dir/share/sarif-2.1.0.json"
}

command=${1:?setup.sh system|testsuite|venv|schemas ...}
shift
case $command in
  system) system "$@" ;;
  testsuite) testsuite "$@" ;;
  venv) make_venv "$@" ;;
  schemas) schemas "$@" ;;
  *) fail "unknown command: $command" ;;
esac
