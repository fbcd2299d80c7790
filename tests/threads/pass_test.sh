#!/usr/bin/env bash
# What mgcc -fmultigrain-threads makes of code, and what it says of options that make no sense.
# Usage: pass_test.sh BIN-DIRECTORY
set -euo pipefail
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "pass test: $*" >&2; exit 1; }
# code OPTIONS... FILE: the code that the compiler makes, as LLVM's text.
code() { "$bin/mgcc" -fmultigrain-threads -fno-multigrain-checks "$@" -S -emit-llvm -o -; }
# function NAME: that function's part of the text.
function_of() { sed -n "/^define .*@$1(/,/^}/p"; }
# has COUNT PATTERN TEXT: so many lines have it.
has() {
  local count
  count=$(grep -cE "$2" <<< "$3" || true)
  [[ $count == "$1" ]] || fail "$count lines have '$2', not $1: $(head -30 <<< "$3")"
}

cat > atomics.c << 'TEXT'
#include <stdatomic.h>
void let_out(_Atomic int *);
extern _Atomic int shared;
static _Thread_local _Atomic int own;
int private(void) { _Atomic int here = 1; here += 2; return here; }
int of_thread(void) { return ++own; }
int reached(void) { _Atomic int here; let_out(&here); return here++; }
int global(void) { return atomic_fetch_add_explicit(&shared, 1, memory_order_relaxed); }
void fences(void) { atomic_thread_fence(memory_order_acquire); atomic_thread_fence(memory_order_release); }
void of_handler(void) { atomic_signal_fence(memory_order_seq_cst); }
TEXT
for level in 0 1 2 3; do
  text=$(code -O$level atomics.c)
  has 0 __multigrain "$(function_of private <<< "$text")"
  has 0 __multigrain "$(function_of of_thread <<< "$text")"
  has 1 'call .*@__multigrain_threads_update_4' "$(function_of reached <<< "$text")"
  has 1 'call .*@__multigrain_threads_update_4' "$(function_of global <<< "$text")"
  has 1 'call .*@__multigrain_threads_acquire_fence' "$(function_of fences <<< "$text")"
  has 1 'call .*@__multigrain_threads_release_fence' "$(function_of fences <<< "$text")"
  has 0 __multigrain "$(function_of of_handler <<< "$text")"
done

# Only what others may reach is on the second stack.
cat > locals.c << 'TEXT'
#include <pthread.h>
#include <time.h>
void *body(void *);
void let_out(int *);
int inside(int i) { int array[64]; for (int k = 0; k < 64; ++k) array[k] = i * k; return array[i & 63]; }
int reached(int i) { int array[64]; let_out(array); return array[i & 63]; }
int in_library(void) {
  pthread_t thread;
  struct timespec now;
  pthread_create(&thread, 0, 0, 0);
  return clock_gettime(CLOCK_REALTIME, &now);
}
int handed_over(void) { pthread_t thread; int number = 1; return pthread_create(&thread, 0, body, &number); }
TEXT
for level in 0 1 2 3; do
  text=$(code -O$level locals.c)
  has 0 __safestack "$(function_of inside <<< "$text")"
  has 1 __safestack "$(function_of reached <<< "$text")"
  has 0 'alloca \[64' "$(function_of reached <<< "$text")"
  has 0 __safestack "$(function_of in_library <<< "$text")"
  has 1 __safestack "$(function_of handed_over <<< "$text")"
done
has 0 __safestack "$("$bin/mgcc" -O2 -S -emit-llvm -o - locals.c)"

# What OpenMP's runtime hands to other threads, though these only read it.
cat > openmp.c << 'TEXT'
double work(double);
static void __attribute__((noinline)) region(const double *x) {
#pragma omp parallel
  work(*x);
}
void outer(void) { double y = work(1); region(&y); }
void single(void) {
#pragma omp parallel
  {
    double z;
#pragma omp single copyprivate(z)
    z = work(2);
    work(z);
  }
}
TEXT
for level in 0 2; do
  text=$(code -O$level -fopenmp openmp.c)
  has 1 '__safestack' "$(function_of outer <<< "$text")"
  has 1 '__safestack' "$(function_of single.omp_outlined <<< "$text")"
done

# The marker is there for the library, whatever the visibility.
echo 'int main(void) { return 0; }' > main.c
"$bin/mgcc" -fmultigrain-threads -fvisibility=hidden -Wl,--as-needed,--gc-sections main.c -o main
nm -D main | grep -q 'multigrain_program_of_threads' || fail "the executable does not export the marker"
readelf -d main | grep -q 'NEEDED.*libmultigrain' || fail "the executable does without the library"
"$bin/mgcc" -fmultigrain-threads -fno-multigrain-threads main.c -o main
! nm main | grep -q multigrain_program_of_threads || fail "-fno-multigrain-threads does not switch it off"

# OpenMP's runtime is Multigrain's, and only with the option.
shown=$("$bin/mgcc" --showme -fmultigrain-threads -fopenmp -fopenmp-version=51 openmp.c -o openmp)
[[ $shown == *" -Xclang -fopenmp "*" -Xclang -fopenmp-version=51 "*" -lmultigrain-openmp "* && $shown != *" -fopenmp "*"-O"* ]] ||
  fail "--showme prints $shown"
[[ $("$bin/mgcc" --showme -fmultigrain-threads -fno-openmp openmp.c) != *openmp\ * ]] || fail "-fno-openmp links OpenMP's runtime"
! "$bin/mgcc" -fmultigrain-threads -fopenmp=libgomp openmp.c 2> said || fail "-fopenmp=libgomp is possible"
grep -q "fopenmp=libgomp is not possible with -fmultigrain-threads" said || fail "of -fopenmp=libgomp it says $(cat said)"
! "$bin/mgcc" -m32 -fmultigrain-threads -fno-multigrain-checks -c main.c 2> said || fail "-m32 is possible"
grep -q "fmultigrain-threads is for x86-64" said || fail "of -m32 it says $(cat said)"
echo "pass test: passed"
