#!/usr/bin/env bash
# Installs into a temporary prefix, then builds install.md's shortest program against it, through find_package and through
# pkg-config, and a project by mgcc and mg++, and runs them on several nodes with the installed mgrun.
# Usage: install_test.sh BUILD-DIRECTORY SOURCE-DIRECTORY
set -euo pipefail
build=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
# The tree is moved afterwards: nothing in it may depend on where it was installed.
cmake --install "$build" --prefix "$work/first" > "$work/install.log" || { cat "$work/install.log"; exit 1; }
mv "$work/first" "$prefix"
python3 -B "$source/tests/install/debian_test.py" "$source" "$prefix"

fail() { echo "install test: $*" >&2; exit 1; }
expect() {
  local what=$1 expected=$2 actual
  shift 2
  actual=$("$@") || fail "$what exited with status $?"
  [[ $actual == "$expected" ]] || fail "$what printed '$actual', not '$expected'"
  echo "$what: $actual"
}

consumer=$work/consumer
cp -r "$source/tests/install/consumer" "$consumer"
sed -n '/^```c$/,/^```$/{/^```/!p}' "$source/docs/user/install.md" > "$consumer/first.c"
grep -q 'int main' "$consumer/first.c" || fail "install.md has no program in C"

cmake -S "$consumer" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" > "$work/log" 2>&1 &&
  cmake --build "$work/build" >> "$work/log" 2>&1 || { cat "$work/log"; fail "find_package(Multigrain) does not work"; }
mgrun=$prefix/bin/mgrun
expect "find_package" "4 processors on 2 nodes: the sum is 6" "$mgrun" --nodes 2 --procs-per-node 2 "$work/build/first"
expect "a shared library's variables" "499500" "$mgrun" --nodes 2 --procs-per-node 2 "$work/build/library_user"
expect "without mgrun" "1 processors on 1 nodes: the sum is 0" "$work/build/first"

expect "over UCX" "4 processors on 2 nodes: the sum is 6" "$mgrun" --fabric ucx --nodes 2 --procs-per-node 2 "$work/build/first"

pc=$(find "$prefix" -name multigrain.pc)
[[ -n $pc ]] || fail "multigrain.pc is not installed"
export PKG_CONFIG_PATH=${pc%/*}
read -ra flags <<< "$(pkg-config --cflags --libs multigrain)"
libdir=$(pkg-config --variable=libdir multigrain)
cc -Wall -Werror "$consumer/first.c" -o "$work/first" "${flags[@]}" "-Wl,-rpath,$libdir"
expect "pkg-config" "8 processors on 4 nodes: the sum is 28" "$mgrun" --nodes 4 --procs-per-node 2 "$work/first"

# Somebody else's project of C and C++, with a static and a shared library, by the installed compilers, as it is and
# optimised by the linker.
for lto in OFF ON; do
  cmake -S "$source/tests/install/checked" -B "$work/checked-$lto" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_C_COMPILER="$prefix/bin/mgcc" -DCMAKE_CXX_COMPILER="$prefix/bin/mg++" \
    -DCMAKE_INTERPROCEDURAL_OPTIMIZATION=$lto > "$work/log" 2>&1 && cmake --build "$work/checked-$lto" >> "$work/log" 2>&1 ||
    { cat "$work/log"; fail "CMake with the installed mgcc and mg++, CMAKE_INTERPROCEDURAL_OPTIMIZATION=$lto"; }
  ! grep -q warning "$work/log" || { cat "$work/log"; fail "the installed mgcc and mg++ warn"; }
  for protocol in dszoom shasta; do
    expect "mgcc and mg++, linker's optimisation $lto, $protocol" "2 nodes: 3880 counts, 406 letters" \
      "$mgrun" --nodes 2 --procs-per-node 2 --protocol $protocol "$work/checked-$lto/checked"
  done
done

# Nor do the compilers use the source tree's headers, if their own are gone.
mv "$prefix/include" "$work/include"
! "$prefix/bin/mgcc" -c "$consumer/first.c" -o "$work/first.o" 2> "$work/log" || fail "mgcc has found headers that are not installed"
grep -q 'multigrain/multigrain.h' "$work/log" || { cat "$work/log"; fail "mgcc does not say that its headers are missing"; }
mv "$work/include" "$prefix/include"

expect "machines" "alewife" bash -c '"$1" --machine list | grep -o "^alewife"' - "$mgrun"
[[ $("$mgrun" --machine list) == *"$prefix/share/multigrain/machines"* ]] || fail "the machines listed are not the installed ones"
[[ $("$mgrun" --version) == "mgrun (Multigrain) $(pkg-config --modversion multigrain)" ]] || fail "versions differ"
[[ -f $(pkg-config --variable=parmacs multigrain) ]] || fail "parmacs.m4 is not installed"
for header in $(cd "$prefix/include" && find . -name '*.h*'); do
  case $header in
    ./multigrain/*) ;;
    *) fail "an internal header is installed: $header" ;;
  esac
done

# A program that has nothing to do with Multigrain, traced by what is installed.
cat > "$work/plain.c" << 'TEXT'
#include <stdlib.h>
int main(void) {
  int *numbers = malloc(1000 * sizeof *numbers);
  for (int i = 0; i < 1000; ++i) numbers[i] = i;
  const int last = numbers[999];
  free(numbers);
  return last == 999 ? 0 : 1;
}
TEXT
mgtrace=$prefix/bin/mgtrace
"$mgtrace" cc -O1 -g "$work/plain.c" -o "$work/plain" || fail "mgtrace cc does not compile"
"$mgtrace" record -o "$work/plain.mgt" "$work/plain" > "$work/log" 2>&1 || { cat "$work/log"; fail "mgtrace record"; }
"$mgtrace" analyze "$work/plain.mgt" --machine numa > "$work/log" 2>&1 || { cat "$work/log"; fail "mgtrace analyze"; }
grep -q numa "$work/log" || { cat "$work/log"; fail "mgtrace analyze says nothing of the machine"; }
echo "mgtrace: cc, record, analyze"
# Not by the Python of the build, which may be gone tomorrow. One that says that it was called stands in for the system's.
mkdir "$work/path"
printf '#!/bin/sh\necho "python3 of PATH"\n' > "$work/path/python3" && chmod +x "$work/path/python3"
expect "Python of the installation" "python3 of PATH" env -u MULTIGRAIN_PYTHON PATH="$work/path:$PATH" "$prefix/bin/mgstudy" --help
"$prefix/bin/mgstudy" family --help > "$work/log" 2>&1 || { cat "$work/log"; fail "mgstudy finds no Python or not its package"; }
