#!/usr/bin/env bash
# mgcc -fmultigrain-count as its users meet it: what is linked has to be counted as a whole, and runs as ever.
# Usage: mgcc_count_test.sh BIN-DIRECTORY
set -euo pipefail
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "mgcc -fmultigrain-count test: $*" >&2; exit 1; }
# says TEXT STATUS COMMAND...: it ends with that status, and what it prints has the text in it.
says() {
  local text=$1 status=$2 actual=0 output
  shift 2
  output=$("$@" 2>&1) || actual=$?
  [[ $actual == "$status" ]] || fail "$* ended with status $actual, not $status: $output"
  [[ $output == *"$text"* ]] || fail "$* does not say '$text' but: $output"
}

cat > part.c << 'TEXT'
void add(long *to, long n) { for (long i = 0; i < n; ++i) to[i] += i; }
TEXT
cat > main.c << 'TEXT'
#include <multigrain/multigrain.h>
#include <stdio.h>
void add(long *to, long n);
static long *numbers;
static void work(void *unused) {
  (void)unused;
  if (mg_processor() == 1) add(numbers, 1000);
}
int main(void) {
  numbers = mg_alloc(1000 * sizeof *numbers, 0);
  mg_spawn_all(work, 0);
  printf("%ld\n", numbers[999]);
}
TEXT
mgcc=("$bin/mgcc" -O2 -fno-multigrain-checks)
count=("${mgcc[@]}" -fmultigrain-count)
run() { says 999 0 "$bin/mgrun" --nodes 2 --procs-per-node 1 "$@"; }
is_all_counted() { nm "$1" | grep -q ' A __multigrain_only_counted_code$'; }

# All of it is counted: from sources, objects, a static and a shared library, with link-time optimisation, with checks.
"${count[@]}" main.c part.c -o sources && run ./sources
is_all_counted sources || fail "a program of counted sources does not say that it is counted"
"${count[@]}" -c part.c -o part.o && "${count[@]}" -c main.c -o main.o && "${count[@]}" main.o part.o -lm -o objects && run ./objects
is_all_counted objects || fail "a program of counted objects does not say that it is counted"
readelf -n objects | grep -q Multigrain || fail "the executable has no note"
ar rcs libpart.a part.o && "${count[@]}" main.c -L. -lpart -o archive && run ./archive
mkdir lib && "${count[@]}" -fPIC -shared part.c -o lib/libpart.so
"${count[@]}" main.c -Llib -lpart -Wl,-rpath,"$work/lib" -o shared && run ./shared
"${count[@]}" -flto -c part.c -o part.lto.o && "${count[@]}" -flto main.c part.lto.o -o lto && run ./lto
is_all_counted lto || fail "a program of -flto does not say that it is counted"
"$bin/mgcc" -O2 -fmultigrain-count main.c part.c -o checked && run --protocol dszoom ./checked && run ./checked
"$bin/mgcc" -O0 -fmultigrain-count main.c part.c -o slow && run --protocol shasta ./slow

# Some of it is not: the linker's command is refused, and the file is named.
"${mgcc[@]}" -c part.c -o plain.o && "${mgcc[@]}" -flto -c part.c -o plain.lto.o
says "plain.o is not counted" 2 "${count[@]}" main.o plain.o -o mixed
says "plain.lto.o is not counted" 2 "${count[@]}" -flto main.o plain.lto.o -o mixed
cp plain.o a_name_that_is_longer_than_sixteen.o
ar rcs libplain.a main.o a_name_that_is_longer_than_sixteen.o
says "libplain.a(a_name_that_is_longer_than_sixteen.o) is not counted" 2 "${count[@]}" main.o -L. -lplain -o mixed
says "libplain.a(a_name_that_is_longer_than_sixteen.o) is not counted" 2 "${count[@]}" main.o libplain.a -o mixed
mkdir uncounted && "${mgcc[@]}" -fPIC -shared part.c -o uncounted/libpart.so
says "uncounted/libpart.so is not counted" 2 "${count[@]}" main.c -Luncounted -lpart -o mixed
says "the library of -lz is not counted" 2 "${count[@]}" main.o part.o -lz -o mixed
echo "main.o part.o" > files
says "not into @files" 2 "${count[@]}" @files -o mixed
[[ ! -e mixed ]] || fail "a program that is counted in parts was linked"
# Without the option everything can be linked, and the program does not say that it is counted.
"${mgcc[@]}" main.o plain.o -o parts && run ./parts
if is_all_counted parts; then fail "a program that is counted in parts says that it is counted"; fi
says "-fmultigrain-count is for x86-64" 1 "${count[@]}" -m32 -c part.c -o part32.o

# What a program says of itself.
[[ $("$bin/tests/count_probe_all") == "" ]] || fail "a counted program says: $("$bin/tests/count_probe_all")"
says "parts of $bin/tests/count_probe_parts are not counted" 0 "$bin/tests/count_probe_parts"
says "$bin/tests/count_probe_none is not counted" 0 "$bin/tests/count_probe_none"
says "libcount_probe_library.so is not counted" 0 "$bin/tests/count_probe_loads"
