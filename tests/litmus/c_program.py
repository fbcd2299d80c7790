"""Makes of litmus tests the C program that runs them on the nodes of a run, for mgcc.

Processors are the threads. Each test is run on many instances of its variables between two meetings at a barrier; all threads go
through the instances in the same order, out of step by chance. Accesses are C11 atomics, and in tests in x86 instructions volatile
ones, which mgcc keeps in their order. The program prints one line for each outcome that it has seen: the test's number, how often, and
the values, as the digits of a number to the base BASE.

What is not the test touches few lines, as each takes as long to come as one of the test's: a thread keeps what it has loaded to
itself, and writes it down as one number for each instance after all of them; only the variables of the test are set to 0 and looked at.
"""

from __future__ import annotations

from herd_text import Op, Test

BASE = 5  # values of variables are less
MOST_DIGITS = 8  # registers and variables of a test

HEAD = """\
#include <multigrain/multigrain.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { kInstances = 256, kVariables = 4, kResults = 12, kThreads = 4, kBase = 5 };
/* Variables of an instance lie on lines of their own, or on one, by turns. */
typedef struct { _Alignas(64) atomic_int apart[kVariables][16]; _Alignas(64) atomic_int together[16]; } instance;
/* What a thread has loaded is its part of an instance's outcome. */
typedef struct { instance variables[kInstances]; _Alignas(64) unsigned loaded[kThreads][kInstances]; } shared_memory;
static shared_memory *shared;
static mg_barrier_t barrier;
static unsigned rounds, first_test, last_test, spread;

static void wait_a_little(unsigned *seed) {
  *seed = *seed * 1103515245u + 12345u;
  for (volatile unsigned i = *seed >> 16 & 31; i != 0; --i) {
  }
}
"""

MAIN = """\
/* Which thread of a test a processor is: neighbours are on different nodes if there are two of two. */
static unsigned role(void) {
  const unsigned me = mg_processor();
  return spread ? (me & 1) << 1 | me >> 1 : me;
}

static atomic_int *variable(unsigned round, unsigned instance, unsigned number) {
  return (round & 1) != 0 ? &shared->variables[instance].together[number] : &shared->variables[instance].apart[number][0];
}

static unsigned long seen[390625]; /* 5 to the power of 8 */

static void run(unsigned test, unsigned *seed) {
  const struct test *const t = &tests[test];
  const unsigned me = role();
  for (unsigned i = 0; me == 0 && i < t->outcomes; ++i) seen[i] = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    if (me == 0)
      for (unsigned i = 0; i < kInstances; ++i)
        for (unsigned k = 0; k < t->variables; ++k) atomic_store_explicit(variable(round, i, k), 0, memory_order_relaxed);
    mg_barrier(barrier);
    if (me < t->threads) {
      unsigned loaded[kInstances];
      for (unsigned i = 0; i < kInstances; ++i) {
        atomic_int *v[kVariables];
        for (unsigned k = 0; k < kVariables; ++k) v[k] = variable(round, i, k);
        wait_a_little(seed);
        int values[kResults] = {0};
        t->thread[me](v, values);
        loaded[i] = 0;
        for (unsigned r = 0; r < t->registers; ++r) {
          if (values[r] < 0 || values[r] >= kBase) {
            printf("test %u has read %d\\n", test, values[r]);
            exit(3);
          }
          loaded[i] = loaded[i] * kBase + (unsigned)values[r]; /* Registers of other threads are 0. */
        }
      }
      for (unsigned i = 0; i < kInstances; ++i) shared->loaded[me][i] = loaded[i];
    }
    mg_barrier(barrier);
    if (me == 0)
      for (unsigned i = 0; i < kInstances; ++i) {
        unsigned outcome = 0;
        for (unsigned thread = 0; thread < t->threads; ++thread) outcome += shared->loaded[thread][i];
        for (unsigned k = 0; k < t->variables; ++k) outcome = outcome * kBase + (unsigned)atomic_load(variable(round, i, k));
        ++seen[outcome];
      }
    mg_barrier(barrier);
  }
  if (me != 0) return;
  for (unsigned outcome = 0; outcome < t->outcomes; ++outcome)
    if (seen[outcome] != 0) printf("%u %lu %u\\n", test, seen[outcome], outcome);
}

static void work(void *unused) {
  (void)unused;
  unsigned seed = 77u + mg_processor();
  for (unsigned test = first_test; test < last_test; ++test) run(test, &seed);
}

/* litmus ROUNDS FIRST LAST SPREAD */
int main(int argc, char **argv) {
  if (argc != 5) return 2;
  rounds = (unsigned)atoi(argv[1]);
  first_test = (unsigned)atoi(argv[2]);
  last_test = (unsigned)atoi(argv[3]);
  spread = (unsigned)atoi(argv[4]);
  shared = mg_alloc(sizeof *shared, NULL);
  barrier = mg_barrier_create(0);
  if (shared == NULL || mg_processors() != kThreads) return 2;
  mg_spawn_all(work, NULL);
  return 0;
}
"""


def _statement(op: Op, variables: list[str], language: str, result: int) -> str:
    if op.kind == "fence":
        return f"atomic_thread_fence(memory_order_{op.order});"
    place = f"v[{variables.index(op.variable)}]"
    if language == "X86":
        volatile = f"*(volatile int *){place}"
        return f"{volatile} = {op.value};" if op.kind == "store" else f"const int q{result} = {volatile};"
    if op.kind == "store":
        return f"atomic_store_explicit({place}, {op.value}, memory_order_{op.order});"
    return f"const int q{result} = atomic_load_explicit({place}, memory_order_{op.order});"


def make(tests: list[Test]) -> str:
    out = [HEAD]
    for number, test in enumerate(tests):
        variables = test.variables()
        registers = test.registers()
        for t, thread in enumerate(test.threads):
            lines = []
            results = []
            for op in thread:
                result = registers.index((t, op.register)) if op.kind == "load" else -1
                lines.append("  " + _statement(op, variables, test.language, result))
                if op.kind == "load":
                    results.append(f"  r[{result}] = q{result};")
            out.append(f"static void test_{number}_{t}(atomic_int **v, int *r) {{")
            out += ["  (void)v, (void)r;", *lines, *results, "}"]
    out.append("static const struct test {\n  unsigned threads, registers, variables, outcomes;")
    out.append("  void (*thread[kThreads])(atomic_int **, int *);\n} tests[] = {")
    for number, test in enumerate(tests):
        digits = len(test.registers()) + len(test.variables())
        names = ", ".join(f"test_{number}_{t}" for t in range(len(test.threads)))
        out.append(f"  {{{len(test.threads)}, {len(test.registers())}, {len(test.variables())}, {BASE ** digits}u, {{{names}}}}},")
    return "\n".join([*out, "};", "", MAIN])
