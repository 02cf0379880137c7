# SPDX-License-Identifier: MIT
# Sourced by tools/run, tools/test and tools/bench: what is missing, and the build.
# Expects $root (of the clone) and $me (how the caller is called); writes below $root/build only.
# shellcheck shell=bash disable=SC2154

# Debian packages; `tools/cmake/TrainyardDependencies.cmake` looks for the same libraries.
dev_packages="libyaml-cpp-dev libfmt-dev nlohmann-json3-dev libcli11-dev libprotobuf-dev
  protobuf-compiler zlib1g-dev libboost-graph-dev libeigen3-dev libgtest-dev libbenchmark-dev"

say() { printf '%s: %s\n' "$me" "$*" >&2; }

# Prints the packages that have to be installed.
missing_packages() {
  command -v "${CXX:-g++}" >/dev/null 2>&1 || echo g++
  command -v cmake >/dev/null 2>&1 || echo cmake
  command -v ninja >/dev/null 2>&1 || command -v make >/dev/null 2>&1 || echo ninja-build
  # Elsewhere than on Debian, CMake says what it does not find.
  command -v dpkg-query >/dev/null 2>&1 || return 0
  local package
  for package in $dev_packages; do
    # An installed package answers "installed"; a removed one may answer "config-files".
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
      echo "$package"
  done
}

# install_missing YES: installs what is missing when root, or through sudo when YES is 1; ends the
# script with 2 and the line to type otherwise.
install_missing() {
  local missing
  missing=$(missing_packages | tr '\n' ' ')
  missing=${missing% }
  [ -n "$missing" ] || return 0
  local install="apt-get install -y --no-install-recommends $missing"
  say "missing packages: $missing"
  if ! command -v apt-get >/dev/null 2>&1; then
    say "this system has no apt-get; install them in its own way and try again"
    exit 2
  fi
  say "apt-get update && $install"
  local as_root=""
  if [ "$(id -u)" -ne 0 ]; then
    if [ "$1" != 1 ]; then
      say "not root: run the line above as root, or $me --yes to run it through sudo"
      exit 2
    fi
    if ! command -v sudo >/dev/null 2>&1; then
      say "not root and no sudo: run the line above as root"
      exit 2
    fi
    as_root="sudo"
  fi
  mkdir -p "$root/build"
  local log="$root/build/apt.log"
  # shellcheck disable=SC2086  # words are meant
  if ! { $as_root env DEBIAN_FRONTEND=noninteractive apt-get update &&
         $as_root env DEBIAN_FRONTEND=noninteractive $install; } </dev/null >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    say "the installation failed; full log: build/apt.log"
    exit 2
  fi
}

# Reads a build's output, appends it to $1 and shows how far it is.
show_progress() {
  local line current total percent=-1 step
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$1"
    if [[ $line =~ ^\[\ *([0-9]+)/([0-9]+)\] ]]; then  # ninja
      current=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
    elif [[ $line =~ ^\[\ *([0-9]+)%\] ]]; then  # make
      current=${BASH_REMATCH[1]} total=100
    else
      continue
    fi
    step=$((total > 0 ? 100 * current / total : 100))
    if [ -t 2 ]; then
      printf '\r%s: building %3d %%' "$me" "$step" >&2
      percent=$step
    elif [ "$total" -ge 8 ] && [ $((step / 25)) -gt $((percent / 25)) ]; then
      say "building $step %"
      percent=$step
    fi
  done
  if [ -t 2 ] && [ "$percent" -ge 0 ]; then printf '\n' >&2; fi
}

# build PRESET [TARGET...]: configures build/PRESET when needed and builds, with all cores.
# Ends the script with 1 and the end of the log when that fails.
build() {
  local preset=$1
  shift
  local dir="$root/build/$preset"
  local log="$dir/build.log"
  local targets=()
  if [ $# -gt 0 ]; then targets=(--target "$@"); fi
  # The compiler cache stays inside the clone.
  export CCACHE_DIR="${CCACHE_DIR:-$root/build/.ccache}"
  mkdir -p "$dir"
  # Two calls at once would write the same files: the second waits.
  exec 9>"$dir/.lock"
  if command -v flock >/dev/null 2>&1 && ! flock -n 9; then
    say "waiting for another build in build/$preset"
    flock 9
  fi
  : >"$log"
  if [ ! -f "$dir/build.ninja" ] && [ ! -f "$dir/Makefile" ]; then
    say "configuring build/$preset"
    local generator="${CMAKE_GENERATOR:-}"
    if [ -z "$generator" ] && [ ! -f "$dir/CMakeCache.txt" ] && command -v ninja >/dev/null 2>&1; then
      generator=Ninja
    fi
    if ! (cd "$root" && cmake --preset "$preset" ${generator:+-G "$generator"}) \
        9>&- </dev/null >>"$log" 2>&1; then
      tail -n 30 "$log" >&2
      say "configuring failed; full log: build/$preset/build.log"
      exit 1
    fi
    say "building build/$preset (a first build takes minutes)"
  fi
  local jobs
  jobs=$(nproc 2>/dev/null || echo 2)
  if ! cmake --build "$dir" --parallel "$jobs" "${targets[@]}" 9>&- </dev/null 2>&1 |
      show_progress "$log"; then
    # Where the first error is, ninja and make go on for a while.
    grep -n -m 12 -E 'error|Error|FAILED' "$log" >&2 || tail -n 30 "$log" >&2
    say "the build failed; full log: build/$preset/build.log"
    exit 1
  fi
  exec 9>&-
}
