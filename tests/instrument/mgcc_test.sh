#!/usr/bin/env bash
# mgcc as its users meet it: separate compilation, libraries, other people's build systems, and what it says when something
# is wrong.
# Usage: mgcc_test.sh BIN-DIRECTORY
set -euo pipefail
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "mgcc test: $*" >&2; exit 1; }
expect() {
  local what=$1 expected=$2 actual
  shift 2
  actual=$("$@" 2>&1) || fail "$what exited with status $?: $actual"
  [[ $actual == "$expected" ]] || fail "$what printed '$actual', not '$expected'"
}
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
run=("$bin/mgrun" --nodes 2 --procs-per-node 1)
"$bin/mgcc" -Wall -Werror -O2 -g -c part.c && "$bin/mgcc" -Wall -Werror -O2 -g -c main.c && "$bin/mgcc" main.o part.o -o separate
expect "separate compilation" 999 "${run[@]}" ./separate
ar rcs libpart.a part.o && "$bin/mgcc" -O2 main.c -L. -lpart -o with_archive
expect "a static library" 999 "${run[@]}" ./with_archive
"$bin/mgcc" -O2 -fno-multigrain-checks -c part.c -o plain.o && ar rcs libplain.a plain.o
[[ -z $("$bin/mgcc" main.o part.o -o separate 2>&1) ]] || fail "mgcc warns of object files that have checks"
for plain in plain.o libplain.a "-L. -lplain"; do
  read -ra plain_words <<< "$plain"
  says "is not compiled with access checks" 0 "$bin/mgcc" main.o "${plain_words[@]}" -o in_parts
  [[ -z $("$bin/mgcc" -Wno-multigrain-unchecked-object main.o "${plain_words[@]}" -o in_parts 2>&1) ]] || fail "-Wno-multigrain-unchecked-object warns"
done
says "-fmultigrain-references excludes -fmultigrain-count" 2 "$bin/mgcc" -fmultigrain-references -fmultigrain-count -c main.c
says "-fmultigrain-references excludes -fmultigrain-translate" 2 "$bin/mgcc" -fmultigrain-translate -fmultigrain-references -c main.c
says "libplain.a(plain.o) is not compiled" 2 "$bin/mgcc" -Werror=multigrain-unchecked-object main.o libplain.a -o in_parts
[[ -z $("$bin/mgcc" -fno-multigrain-checks main.c plain.o -o in_parts 2>&1) ]] || fail "mgcc warns of a program without any checks"
# Checks of another version: the number follows the name in the note.
python3 - << 'TEXT' || fail "there is no note to change"
note = b"\13\0\0\0\4\0\0\0\1\0\0\0Multigrain\0\0"
data = open("part.o", "rb").read()
at = data.index(note) + len(note)
open("other.o", "wb").write(data[:at] + bytes([data[at] - 1]) + data[at + 1:])
TEXT
ar rcs libother.a other.o
for other in other.o libother.a "-L. -lother"; do
  read -ra other_words <<< "$other"
  says "other.o" 2 "$bin/mgcc" main.o "${other_words[@]}" -o of_two
  says "is not compiled with this version of the access checks" 2 "$bin/mgcc" main.o "${other_words[@]}" -o of_two
done
"$(type -P clang-19)" main.o other.o $("$bin/mgcc" --showme:link) -o of_two 2> link.log || fail "$(< link.log)"
says "made by another version of mgcc" 2 "${run[@]}" --protocol dszoom ./of_two
mkdir lib && "$bin/mgcc" -O2 -fPIC -shared part.c -o lib/libpart.so && "$bin/mgcc" -O2 main.c -Llib -lpart -Wl,-rpath,"$work/lib" -o with_shared
expect "a shared library" 999 "${run[@]}" ./with_shared
"$bin/mgcc" -flto -O2 -fmultigrain-checks=no-nests main.c part.c -o with_lto
expect "-flto" 999 "${run[@]}" ./with_lto
# A file's checks are there before it is linked, so files with and without -flto go together.
"$bin/mgcc" -flto -O2 -c part.c -o lto_part.o && "$bin/mgcc" -flto -O2 main.o lto_part.o -o with_both
expect "-flto beside without" 999 "${run[@]}" --protocol dszoom ./with_both
readelf -n separate | grep -q Multigrain || fail "the executable has no note"
objdump --dwarf=decodedline part.o | grep -q 'part.c *1 ' || fail "the lines of part.c are gone"

# Non-temporal stores are not ordered before the clearing of their hazards: they become ordinary ones, in loops as well.
cat > stream.c << 'TEXT'
#include <emmintrin.h>
void one(double *to, __m128d value) { _mm_stream_pd(to, value); }
void many(double *to, long n) { for (long i = 0; i < n; i += 2) _mm_stream_pd(to + i, _mm_set1_pd((double)i)); }
TEXT
"$bin/mgcc" -O2 -fno-multigrain-checks -c stream.c -o stream_plain.o && "$bin/mgcc" -O2 -c stream.c -o stream.o
objdump -d stream_plain.o | grep -q movntpd || fail "the test of non-temporal stores has none"
! objdump -d stream.o | grep -q movnt || fail "a non-temporal store to what may be shared is left"

cat > containers.cpp << 'TEXT'
#include <multigrain/multigrain.hpp>
#include <cstdio>
#include <map>
#include <string>
#include <vector>
using Map = std::map<int, long, std::less<int>, mg::allocator<std::pair<const int, long>>>;
using Vector = std::vector<long, mg::allocator<long>>;
struct Both { Map map; Vector vector; };
Both *both;
int main() {
  both = new (mg_alloc(sizeof(Both), nullptr)) Both;
  for (int i = 0; i < 100; ++i) both->vector.push_back(i);
  mg_spawn_all([](void *) {
    if (mg_processor() == 1) for (long i : both->vector) both->map[static_cast<int>(i * 37 % 101)] += i;
  }, nullptr);
  long sum = 0;
  try {
    for (auto [key, value] : both->map) sum += key * value;
    both->vector.at(1000) = 0;
  } catch (const std::out_of_range &) {
    std::printf("%ld\n", sum);
  }
}
TEXT
"$bin/mg++" -std=c++20 -O2 containers.cpp -o containers
expect "standard containers" 249534 "${run[@]}" ./containers

mkdir project && cat > project/CMakeLists.txt << 'TEXT'
cmake_minimum_required(VERSION 3.20)
project(Other C CXX)
find_package(Threads REQUIRED)
add_library(part SHARED ../part.c)
add_executable(other ../main.c)
target_link_libraries(other part)
TEXT
cmake -S project -B build -DCMAKE_C_COMPILER="$bin/mgcc" -DCMAKE_CXX_COMPILER="$bin/mg++" > log 2>&1 && cmake --build build >> log 2>&1 ||
  { cat log; fail "CMake with mgcc for a compiler"; }
expect "a project of CMake's" 999 "${run[@]}" build/other

cat > assembly.c << 'TEXT'
int load(int *from) {
  int value;
  __asm__ volatile("movl %1, %0" : "=r"(value) : "m"(*from));
  return value;
}
int local(void) {
  int value = 0;
  __asm__ volatile("incl %0" : "+m"(value));
  return value;
}
TEXT
says "assembly.c:3:" 0 "$bin/mgcc" -O1 -c assembly.c
says "inline assembly accesses memory that may be shared" 1 "$bin/mgcc" -O1 -fmultigrain-asm=error -c assembly.c
[[ $("$bin/mgcc" -O1 -c assembly.c 2>&1 | grep -c 'warning: multigrain') == 1 ]] || fail "assembly on a local is reported"

# Functions of libraries that have no wrapper: a warning with file and line, an error on request, and the end of a run that
# hands one shared memory. Of a page protocol's memory it is none.
cat > unchecked.c << 'TEXT'
#define _GNU_SOURCE
#include <multigrain/multigrain.h>
#include <stdio.h>
#include <string.h>
char *(*volatile by_pointer)(char *) = strfry;
int main(int argc, char **argv) {
  char *text = mg_alloc(64, 0);
  char own[] = "private";
  strcpy(text, "shared");
  strfry(own);
  by_pointer(own);
  if (argc == 2 && argv[1][0] == 'd')
    strfry(text);
  else if (argc == 2)
    by_pointer(text);
  puts("end");
}
TEXT
says "unchecked.c:13:5: warning: multigrain: strfry has no access checks" 0 "$bin/mgcc" -O1 unchecked.c -o unchecked
[[ $("$bin/mgcc" -O1 -c unchecked.c 2>&1 | grep -c 'warning: multigrain') == 1 ]] || fail "a function that is handed private memory is reported"
[[ -z $("$bin/mgcc" -O1 -Wno-multigrain-unchecked-call -c unchecked.c 2>&1) ]] || fail "-Wno-multigrain-unchecked-call warns"
says "unchecked.c:13:5: error: multigrain: strfry" 1 "$bin/mgcc" -O1 -Werror=multigrain-unchecked-call -c unchecked.c
says "there is no option -Wmultigrain-unchecked" 2 "$bin/mgcc" -Wmultigrain-unchecked -c unchecked.c
line_run=("$bin/mgrun" --nodes 1 --procs-per-node 1 --protocol dszoom)
expect "a library's function on private memory" end "${line_run[@]}" ./unchecked

# An update of shared addresses that nobody has allocated: its line never comes, and the program faults.
cat > wild.c << 'TEXT'
#include <multigrain/multigrain.h>
#include <stdlib.h>
__attribute__((noinline)) static void add(long *to, const int *at, int n) {
  for (int i = 0; i < n; ++i) to[at[i]] += 1;
}
int main(int argc, char **argv) {
  mg_init(&argc, &argv);
  const int at[] = {0, 1, 2, argc > 1 ? atoi(argv[1]) : 3};
  add(mg_alloc(4096, 0), at, 4);
}
TEXT
"$bin/mgcc" -O2 wild.c -o wild
"${line_run[@]}" ./wild
says "beyond the end of a block of 4096 bytes" 139 timeout 60 "${line_run[@]}" ./wild 400000000
expect "a library's function on shared pages" end "${run[@]}" ./unchecked direct
says "unchecked.c:13: the pointer 0x2" 1 "${line_run[@]}" ./unchecked direct
says "is handed to strfry, which has no access checks" 1 "${line_run[@]}" ./unchecked pointer
# A function of the program's own that has a name of the library's goes where it should.
cat > getline.c << 'TEXT'
int getline(char *to, int size) { for (int i = 0; i < size; ++i) to[i] = 'x'; return size; }
int swab(int *to) { return *to = 5; }
TEXT
cat > own_names.c << 'TEXT'
#include <multigrain/multigrain.h>
#include <stdio.h>
int getline(char *to, int size);
int swab(int *to);
int main(void) {
  char *text = mg_alloc(64, 0);
  int *number = mg_alloc(64, 0);
  printf("%d %d %c\n", getline(text, 5), swab(number), text[4]);
}
TEXT
"$bin/mgcc" -std=c11 -w -O1 getline.c own_names.c -o own_names
expect "functions with names of the library's" "5 5 x" "${line_run[@]}" ./own_names

# Polls do not stop loops from becoming vectors: as many operations on vectors with them as without.
cat > vectors.c << 'TEXT'
float table[1 << 14];
void add(int length, float x) { for (int i = 0; i < length; ++i) table[i] += x; }
void add_rows(int rows, int length, float x) {
  for (int row = 0; row < rows; ++row) for (int i = 0; i < length; ++i) table[i] = table[i] * x + 1;
}
void scale(double *numbers, long length, double by) { for (long i = 0; i < length; ++i) numbers[i] *= by; }
long sum(const int *numbers, long length) {
  long all = 0;
  for (long i = 0; i < length; ++i) all += numbers[i];
  return all;
}
TEXT
vectors() { "$bin/mgcc" -O2 "$@" -S -emit-llvm -o - vectors.c | grep -cE '(fadd|fmul|fmuladd|add).*<[248] x '; }
with=$(vectors) without=$(vectors -fno-multigrain-polls)
[[ $with == "$without" && $with -ge 4 ]] || fail "there are $with operations on vectors with polls, and $without without"
# Under hazards nobody polls: only the loop of pieces, and the form of the loop that has checks.
cat > carried.c << 'TEXT'
double carried(const double *numbers, long length) {
  double all = 0;
  for (long i = 0; i < length; ++i) all = all * 0.5 + numbers[i];
  return all;
}
TEXT
in_carried=$("$bin/mgcc" -O2 -S -emit-llvm -o - carried.c | grep -cE 'call .*__multigrain_(poll_miss|batch_begin)')
[[ $in_carried == 3 ]] || fail "there are $in_carried calls that poll in a loop under hazards"
polls() { "$bin/mgcc" -O2 "$@" -S -o - vectors.c | grep -c __multigrain_poll_miss || true; }
[[ $(polls) -gt 0 && $(polls -fno-multigrain-polls) == 0 ]] || fail "-fno-multigrain-polls does not switch polls off"
[[ $(polls -fno-multigrain-polls -fmultigrain-polls) == $(polls) ]] || fail "-fmultigrain-polls does not switch them on again"

# What is compared is what is used: the code generator must not load it again, which it does with plain memory. So every load of the
# program whose value is compared with the flag value is volatile.
cat > compared.c << 'TEXT'
void distances(double **rows, double *first) {
  for (int i = 0; i < 16; ++i) rows[i] = (double *)(rows[i] - first);
}
struct some { double d; float f; int i; short s; signed char c; struct some *next; };
double of(struct some *at) { return at->d + at->f + at->i + at->s + at->c + (at->next != 0); }
TEXT
loads_in() { "$bin/mgcc" -O2 -S -emit-llvm -o - compared.c | sed -n "/^define .*@$1(/,/^}/p" | grep ' = load '; }
[[ $(loads_in distances | grep -c ' load volatile <4 x ptr>') -ge 2 ]] || fail "vectors may be loaded again: $(loads_in distances)"
[[ $(loads_in of | grep -c ' load volatile ') -ge 6 ]] || fail "fields are not loaded: $(loads_in of)"
! loads_in of | grep -v ' load volatile ' || fail "a field that is compared may be loaded again"

says "-fpass-plugin" 0 "$bin/mgcc" --showme -c part.c
says "-lmultigrain" 0 "$bin/mgcc" --showme:link
says "-fmultigrain-checks" 0 "$bin/mgcc" --help
says "clang version 19" 0 "$bin/mg++" --version
says "'fast' is none of loops, nests" 2 "$bin/mgcc" -fmultigrain-checks=fast -c part.c
says "there is no option -fmultigrain-chekcs" 2 "$bin/mgcc" -fmultigrain-chekcs -c part.c
says "need clang 19" 2 env MG_CC=/nowhere/clang "$bin/mgcc" -c part.c
says "'' is none of" 2 "$bin/mgcc" -fmultigrain-checks=no-loops, -c part.c
# OpenMP: as clang's is installed or not.
cat > openmp.c << 'TEXT'
#include <omp.h>
int main(void) {
  int n = 0;
#pragma omp parallel for reduction(+ : n) num_threads(2)
  for (int i = 0; i < 10; ++i) n += i;
  return n == 45 ? 0 : 1;
}
TEXT
if [[ -e $("${MULTIGRAIN_CLANG:-clang-19}" -print-resource-dir)/include/omp.h ]]; then
  "$bin/mgcc" -fopenmp openmp.c -o openmp || fail "-fopenmp does not work, though omp.h is there"
  "$bin/mgrun" ./openmp || fail "a program of OpenMP does not run"
else
  says "-fopenmp needs the OpenMP runtime of clang 19" 2 "$bin/mgcc" -fopenmp openmp.c -o openmp
fi
says "-fsanitize=undefined,address is not possible" 2 "$bin/mgcc" -fsanitize=undefined,address -c part.c
says "-fsanitize=vptr is not possible" 2 "$bin/mgcc" -fsanitize=vptr -c part.c
# A virtual call by way of a shared object whose lines another node has: the sanitizer's own look at the table is left out.
cat > virtual.cpp << 'TEXT'
#include <multigrain/multigrain.h>
#include <new>
struct Shape { virtual ~Shape() = default; virtual long area() const { return 1; } long side = 3; };
struct Square : Shape { long area() const override { return side * side; } };
Shape *shape;
int main() {
  shape = new (mg_alloc(sizeof(Square), nullptr)) Square;
  mg_spawn_all([](void *) { if (mg_processor() == 1) shape->side += shape->area(); }, nullptr);
  mg_join_all();
  return shape->area() == 144 ? 0 : 1;
}
TEXT
"$bin/mgcc" -x c++ -O1 -fsanitize=undefined virtual.cpp -o virtual -lstdc++
! nm virtual | grep -q vptr || fail "-fsanitize=undefined checks tables of virtual functions"
"$bin/mgrun" --nodes 2 --protocol dszoom ./virtual || fail "a virtual call of a shared object under -fsanitize=undefined"
says "error: multigrain: access checks are made for x86-64, not for i386" 1 "$bin/mgcc" -m32 -c part.c
says "is version" 2 env MG_CC="$(command -v gcc)" "$bin/mgcc" -c part.c
says "such file" 1 "$bin/mgcc" -c nowhere.c
# What is given twice is no error, and the last word counts.
says "" 0 "$bin/mgcc" -Werror -O2 -fmultigrain-checks=no-all -fmultigrain-checks=loops -fmultigrain-sequential \
  -fmultigrain-sequential -fmultigrain-asm=error -fmultigrain-asm=error -fmultigrain-asm=warn -c part.c
says "-multigrain-checks=no-all,loops" 0 "$bin/mgcc" --showme -fmultigrain-checks=no-all -fmultigrain-checks=loops -c part.c
# What --showme prints is what a shell would run.
says "'-DTEXT=\"it'\\''s\"'" 0 "$bin/mgcc" --showme '-DTEXT="it'"'"'s"' -c part.c
says "the loop waits" 0 bash -c "$("$bin/mgcc" --showme '-DTEXT="the loop waits"' -xc - -o said) <<< 'int puts(const char *);int main(void){puts(TEXT);}' && ./said"
# Arguments may come from a file.
echo "-Werror -O1 -c part.c -o from_file.o" > arguments
says "" 0 "$bin/mgcc" @arguments && [[ -s from_file.o ]] || fail "arguments from a file"
cat > loop.c << 'TEXT'
void sum(long *to, const long *from) { for (long i = 0; from[i] != 0; ++i) *to += from[i]; }
TEXT
says "loop.c:1:40" 0 "$bin/mgcc" -g -O2 -fmultigrain-explain -c loop.c

# Nests whose inner loops have guards that are known before run under hazards as a whole.
cat > nest.c << 'TEXT'
static void add(double *to, const double *from, long n, double by) { for (long i = 0; i < n; ++i) to[i] += by * from[i]; }
void halves(double *to, const double *from, long rows, long columns, long bits, long stride) {
  const long n = (1L << bits) / 2;
  for (long k = 0; k < rows; ++k)
    for (long j = 0; j < columns; ++j) add(to + j * stride, from + k * stride, n, 2.0);
}
void blocks(double *a, long n, long size, long stride) {
  for (long at = 0; at < n; at += size) {
    const long rows = at + size > n ? n - at : size;
    for (long k = 0; k < rows; ++k)
      for (long j = 0; j < rows; ++j) add(a + j * stride, a + k * stride + size, rows, 0.5);
  }
}
TEXT
explained=$("$bin/mgcc" -g -O2 -fmultigrain-explain -c nest.c 2>&1)
[[ $explained != *"may not run"* ]] || fail "loops with guards that are known before get no hazards: $explained"

says "-static is not possible" 2 "$bin/mgcc" -static main.c part.c
says "no input files" 1 "$bin/mgcc"
echo "mgcc test: passed"
