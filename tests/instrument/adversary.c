/* Linked to a program that mgcc compiles, this takes the last node of a run away from it, and has that node's processors take lines
 * of the program's shared memory away from the other nodes, at random and without end: what other nodes do to a program now and
 * then happens to it all the time. The values stay as they are, so the program must compute what it computes alone.
 *
 *   mgcc -O2 program.c adversary.c -Wl,--wrap=main,--wrap=mg_alloc,--wrap=mg_free,--wrap=mg_spawn,--wrap=mg_spawn_all \
 *     -Wl,--wrap=mg_join_all,--wrap=mg_barrier_create,--wrap=mg_processors,--wrap=mg_nodes -o program
 *   mgrun --nodes 3 --protocol dszoom ./program           the program has 2 nodes
 *
 * The program is told of one node less. Lines are taken from when it starts its first processor to its end, which says on the standard error
 * how often. Only for memory that line protocols or sc keep coherent: atomics are not coherent under the other page protocols.
 * ADVERSARY_SEED says with which numbers it begins. Blocks that the program frees are not used again, so that none is taken that is gone. */
#include <multigrain/multigrain.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kMostBlocks = 1 << 16, kLine = 64, kLongestRun = 64, kMostTimes = 4, kWord = sizeof(int) };

typedef struct {
  _Alignas(kLine) atomic_int stop;
  _Alignas(kLine) atomic_uint reserved; /* blocks, of which the first `blocks` are described */
  _Alignas(kLine) atomic_uint blocks;
  _Alignas(kLine) atomic_ulong taken;
  unsigned long seed;
  struct {
    uintptr_t begin;
    size_t bytes;
  } block[kMostBlocks];
} adversary;

static adversary* shared_state;

int __real_main(int argc, char** argv, char** environment);
void* __real_mg_alloc(size_t size, const mg_alloc_options* options);
int __real_mg_spawn(unsigned processor, mg_function function, void* argument);
mg_barrier_t __real_mg_barrier_create(unsigned count);
unsigned __real_mg_processors(void);
unsigned __real_mg_nodes(void);

unsigned __wrap_mg_nodes(void) {
  return __real_mg_nodes() - 1;
}
unsigned __wrap_mg_processors(void) {
  return __real_mg_processors() - mg_processors_per_node();
}
mg_barrier_t __wrap_mg_barrier_create(unsigned count) {
  return __real_mg_barrier_create(count != 0 ? count : __wrap_mg_processors());
}

static uint64_t next(uint64_t* random) {
  *random ^= *random << 13;
  *random ^= *random >> 7;
  *random ^= *random << 17;
  return *random >> 11;
}

static void take_lines(void* argument) {
  adversary* const state = argument;
  uint64_t random = 88172645463325252u + (state->seed << 8) + mg_processor();
  unsigned long taken = 0;
  while (!atomic_load(&state->stop)) {
    const unsigned blocks = atomic_load(&state->blocks);
    if (blocks == 0) continue;
    /* Small blocks are as likely as large ones in every other run, and less so in the others. */
    unsigned which = next(&random) % blocks;
    const unsigned other = next(&random) % blocks;
    if ((next(&random) & 1) != 0 && state->block[other].bytes > state->block[which].bytes) which = other;
    const uintptr_t begin = state->block[which].begin;
    const size_t words = state->block[which].bytes / kWord;
    if (words == 0) continue;
    const size_t first = next(&random) % words;
    const size_t lines = 1 + next(&random) % kLongestRun;
    const unsigned times = 1 + next(&random) % kMostTimes;
    const int to_store = next(&random) % 4 != 0;
    for (unsigned time = 0; time < times; ++time)
      for (size_t line = 0; line < lines && first + line * (kLine / kWord) < words; ++line) {
        atomic_int* const word = (atomic_int*)(begin + (first + line * (kLine / kWord)) * kWord);
        if (to_store)
          atomic_fetch_or(word, 0);
        else
          (void)atomic_load(word);
        ++taken;
      }
  }
  atomic_fetch_add(&state->taken, taken);
}

static void fail(const char* what) {
  fprintf(stderr, "adversary: %s: %s\n", what, mg_error());
  exit(2);
}

static void unleash(void) {
  static int is_unleashed;
  if (is_unleashed) return;
  is_unleashed = 1;
  for (unsigned p = __wrap_mg_processors(); p < __real_mg_processors(); ++p)
    if (__real_mg_spawn(p, take_lines, shared_state) != 0) fail("a processor cannot be started");
}

static void dismiss(void) {
  atomic_store(&shared_state->stop, 1);
  for (unsigned p = __wrap_mg_processors(); p < __real_mg_processors(); ++p) mg_join(p);
  fprintf(stderr, "adversary: has taken %lu lines\n", atomic_load(&shared_state->taken));
}

void* __wrap_mg_alloc(size_t size, const mg_alloc_options* options) {
  char* const block = __real_mg_alloc(size, options);
  if (block == NULL || shared_state == NULL) return block;
  const unsigned number = atomic_fetch_add(&shared_state->reserved, 1);
  if (number >= kMostBlocks) return block;
  shared_state->block[number].begin = ((uintptr_t)block + kWord - 1) / kWord * kWord;
  shared_state->block[number].bytes = size > kWord ? size - kWord : 0;
  while (atomic_load(&shared_state->blocks) != number) {
  }
  atomic_store(&shared_state->blocks, number + 1);
  return block;
}

void __wrap_mg_free(void* block) {
  (void)block;
}

int __wrap_mg_spawn(unsigned processor, mg_function function, void* argument) {
  unleash();
  return __real_mg_spawn(processor, function, argument);
}

int __wrap_mg_join_all(void) {
  int status = 0;
  for (unsigned p = 0; p < __wrap_mg_processors() && status == 0; ++p)
    if (p != mg_processor()) status = mg_join(p);
  return status;
}

int __wrap_mg_spawn_all(mg_function function, void* argument) {
  unleash();
  for (unsigned p = 1; p < __wrap_mg_processors(); ++p) {
    const int status = __real_mg_spawn(p, function, argument);
    if (status != 0) return status;
  }
  function(argument);
  return __wrap_mg_join_all();
}

int __wrap_main(int argc, char** argv, char** environment) {
  if (__real_mg_nodes() < 2) fail("it needs a node of its own, so 2 or more");
  adversary* const state = __real_mg_alloc(sizeof *state, NULL);
  if (state == NULL) fail("no memory");
  const char* const seed = getenv("ADVERSARY_SEED");
  state->seed = seed != NULL ? strtoul(seed, NULL, 10) : 1;
  shared_state = state;
  atexit(dismiss);
  return __real_main(argc, argv, environment);
}
