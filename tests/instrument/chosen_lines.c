// Processors write a few words of the same pages under locks, between barriers: pages that Multigrain moves to lines if the
// choice is its own. Ends with status 1 if a value is wrong.
//
// Usage: chosen_lines [named | handed-before | handed-after | threads | threads-elsewhere | locks]
//   named          the memory is allocated with the page protocol of the run
//   handed-before  a function without checks is handed an address of it at the beginning
//   handed-after   or at the end
//   threads        the program starts a thread of its own
//   threads-elsewhere  the last processor does
//   locks          processors meet at no barrier, and write a few words alone
#include <multigrain/multigrain.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kPages = 8, kCounters = 512 * kPages, kStep = 128, kRounds = 6, kTurns = 40, kLocks = 8 };

struct Shared {
  pthread_mutex_t mutex;    // which locks nothing
  long counter[kCounters];  // each kStep-th is used
  long dense[kCounters];    // every processor writes its part, whole
};

static struct Shared* shared;
static mg_lock_t lock[kLocks];
static mg_barrier_t barrier;

static void fail(const char* what, long index, long value, long expected) {
  fprintf(stderr, "%s %ld is %ld, not %ld\n", what, index, value, expected);
  exit(1);
}

static void* rest(void* unused) {
  return unused;
}

static int start_a_thread(void) {
  pthread_t thread;
  return pthread_create(&thread, NULL, rest, NULL) == 0 && pthread_join(thread, NULL) == 0;
}

static void work(void* starts_a_thread) {
  const long me = mg_processor(), all = mg_processors();
  if (starts_a_thread != NULL && me == all - 1 && !start_a_thread()) exit(1);
  for (long round = 1; round <= kRounds; ++round) {
    for (long turn = 0; turn < kTurns; ++turn) {
      for (long i = 0; i < kCounters; i += kStep) {
        mg_lock(lock[i / kStep % kLocks]);
        shared->counter[i] += me + 1;
        shared->counter[i + 1] = shared->counter[i];
        mg_unlock(lock[i / kStep % kLocks]);
      }
      mg_barrier(barrier);  // so that each turn is an interval, however long a node keeps the locks
    }
    for (long i = me * kCounters / all; i < (me + 1) * kCounters / all; ++i) shared->dense[i] = round * i;
    mg_barrier(barrier);
    const long each = round * kTurns * all * (all + 1) / 2;
    for (long i = 0; i < kCounters; i += kStep) {
      if (shared->counter[i] != each) fail("counter", i, shared->counter[i], each);
      if (shared->counter[i + 1] != each) fail("copy", i, shared->counter[i + 1], each);
    }
    for (long i = 0; i < kCounters; ++i)
      if (shared->dense[i] != round * i) fail("element", i, shared->dense[i], round * i);
    mg_barrier(barrier);
  }
}

static void work_without_barriers(void* unused) {
  (void)unused;
  for (long turn = 0; turn < kRounds * kTurns * 10; ++turn)
    for (long i = 0; i < kCounters; i += kStep) {
      mg_lock(lock[i / kStep % kLocks]);
      if (shared->counter[i + 1] != shared->counter[i]) fail("copy", i, shared->counter[i + 1], shared->counter[i]);
      ++shared->counter[i];
      shared->counter[i + 1] = shared->counter[i];
      mg_unlock(lock[i / kStep % kLocks]);
    }
}

int main(int argc, char** argv) {
  const char* const what = argc > 1 ? argv[1] : "";
  mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
  if (strcmp(what, "named") == 0) options.protocol = MG_PROTOCOL_HLRC;
  shared = mg_alloc(sizeof *shared, &options);
  if (shared == NULL) return 1;
  for (int i = 0; i < kLocks; ++i) lock[i] = mg_lock_create();
  barrier = mg_barrier_create(mg_processors());
  if (strcmp(what, "handed-before") == 0 && pthread_mutex_init(&shared->mutex, NULL) != 0) return 1;
  if (strcmp(what, "threads") == 0 && !start_a_thread()) return 1;
  if (strcmp(what, "locks") == 0) {
    mg_spawn_all(work_without_barriers, NULL);
    const long each = kRounds * kTurns * 10L * mg_processors();
    for (long i = 0; i < kCounters; i += kStep)
      if (shared->counter[i] != each) fail("counter", i, shared->counter[i], each);
  } else {
    mg_spawn_all(work, strcmp(what, "threads-elsewhere") == 0 ? shared : NULL);
  }
  if (strcmp(what, "handed-after") == 0 && pthread_mutex_init(&shared->mutex, NULL) != 0) return 1;
  printf("right\n");
  return 0;
}
