/* A program for translation_test.py, which compiles it with -fmultigrain-translate: accesses of all kinds to shared memory whose
 * pages other processors take away meanwhile. It prints what is wrong, and ends with status 1 then. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "multigrain/multigrain.h"

enum { kPages = 8, kWords = 128, kText = 3000 };

typedef struct Shared {
  uint64_t words[kPages][kWords]; /* pages of 1 KiB: one each */
  char bytes[16384];
  mg_barrier_t barrier;
  mg_lock_t lock;
  uint64_t sum;
  uint64_t rounds[kWords], locked[kWords];
} Shared;

static Shared* g_shared;
static unsigned g_pages = kPages;
static uint64_t g_milliseconds;

static void fail(const char* what, uint64_t found, uint64_t wanted) {
  printf("processor %u: %s: %llu, not %llu\n", mg_processor(), what, (unsigned long long)found,
         (unsigned long long)wanted);
  fflush(stdout);
  exit(1);
}

/* Each processor counts in a word of its own on every page for some time, and releases now and then, which takes the pages from all
 * other nodes while their processors count there. A count that is lost was made through a mapping that was gone. */
static void shoot_down(void* argument) {
  (void)argument;
  const unsigned self = mg_processor();
  const uint64_t until = mg_time_ns() + g_milliseconds * 1000000;
  uint64_t round = 0, locked = 0;
  for (; round % 64 != 0 || mg_time_ns() < until; ++round) {
    for (unsigned page = 0; page < g_pages; ++page) {
      volatile uint64_t* const word = &g_shared->words[page][self];
      *word = *word + 1;
      if (*word != round + 1) fail("a count", *word, round + 1);
    }
    if (round % 32 == self % 32) mg_release();
    if (round % 256 == 5) {
      ++locked;
      mg_lock(g_shared->lock);
      g_shared->sum += 1;
      mg_unlock(g_shared->lock);
    }
  }
  g_shared->rounds[self] = round;
  g_shared->locked[self] = locked;
  mg_barrier(g_shared->barrier);
  uint64_t sum = 0;
  for (unsigned p = 0; p < mg_processors(); ++p) {
    sum += g_shared->locked[p];
    for (unsigned page = 0; page < g_pages; ++page)
      if (g_shared->words[page][p] != g_shared->rounds[p])
        fail("another one's count", g_shared->words[page][p], g_shared->rounds[p]);
  }
  if (g_shared->sum != sum) fail("the sum under the lock", g_shared->sum, sum);
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void delay(int signal) {
  (void)signal;
  const uint64_t until = now_ns() + 40000;
  while (now_ns() < until) {
  }
}

/* The same, while a signal interrupts each processor all the time, for longer than it takes to compare a page with its twin: often
 * between the look-up of an address and the access. */
static void shoot_down_between(void* argument) {
  g_pages = 2;
  struct sigaction action = {0};
  action.sa_handler = delay;
  action.sa_flags = SA_RESTART;
  if (sigaction(SIGUSR1, &action, NULL) != 0) fail("sigaction", (uint64_t)errno, 0);
  struct sigevent event = {0};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGUSR1;
  event._sigev_un._tid = gettid();
  timer_t timer;
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) fail("timer_create", (uint64_t)errno, 0);
  const struct itimerspec often = {{0, 100000}, {0, 100000}};
  timer_settime(timer, 0, &often, NULL);
  shoot_down(argument);
  timer_delete(timer);
}

typedef struct Odd {
  char before;
  uint64_t value __attribute__((packed));
  char name[40];
} Odd;

/* Accesses that lie in two pages, copies, and texts. Each node's first processor has a part of the bytes, which begins on an odd
 * address. */
static void accesses(void* argument) {
  (void)argument;
  const unsigned nodes = mg_nodes(), node = mg_processor() / mg_processors_per_node();
  const int is_first = mg_processor() % mg_processors_per_node() == 0;
  char* const mine = g_shared->bytes + node * kText + 3;
  for (unsigned round = 0; round < 20; ++round) {
    if (is_first) {
      for (unsigned i = 0; i + sizeof(Odd) < kText; i += sizeof(Odd)) {
        Odd odd = {(char)round, (uint64_t)round << 40 | i, "translated"};
        memcpy(mine + i, &odd, sizeof odd);
        Odd* const there = (Odd*)(mine + i);
        there->value += node;
      }
    }
    mg_barrier(g_shared->barrier);
    const char* const theirs = g_shared->bytes + (node + 1) % nodes * kText + 3;
    for (unsigned i = 0; i + sizeof(Odd) < kText; i += sizeof(Odd)) {
      const Odd* const there = (const Odd*)(theirs + i);
      const uint64_t value = ((uint64_t)round << 40 | i) + (node + 1) % nodes;
      if (there->value != value) fail("a value in two pages", there->value, value);
      Odd copy = *there;
      if (copy.value != value || strcmp(copy.name, "translated") != 0) fail("a copy", copy.value, value);
      if (strlen(there->name) != 10) fail("the length of a text", strlen(there->name), 10);
    }
    mg_barrier(g_shared->barrier);
  }
}

/* The kernel and the C library get and give private copies. */
static void calls(void* argument) {
  (void)argument;
  if (mg_processor() + 1 == mg_processors()) {
    char name[] = "/tmp/multigrain-translated-XXXXXX";
    const int fd = mkstemp(name);
    memset(g_shared->bytes, 'x', kText);
    if (write(fd, g_shared->bytes, kText) != kText) fail("write", (uint64_t)errno, 0);
    if (pread(fd, g_shared->bytes + 5000, kText, 0) != kText) fail("pread", (uint64_t)errno, 0);
    unlink(name);
    close(fd);
    snprintf(g_shared->bytes + 10000, 100, "%s %d", "printed", 7);
  }
  mg_barrier(g_shared->barrier);
  for (unsigned i = 0; i < kText; ++i)
    if (g_shared->bytes[5000 + i] != 'x') fail("a byte that was read", (uint64_t)g_shared->bytes[5000 + i], 'x');
  if (strcmp(g_shared->bytes + 10000, "printed 7") != 0) fail("what was printed", 0, 1);
}

int main(int argc, char** argv) {
  const char* const what = argc > 1 ? argv[1] : "";
  g_milliseconds = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
  g_shared = mg_alloc(sizeof *g_shared, NULL);
  if (g_shared == NULL) return 2;
  g_shared->barrier = mg_barrier_create(0);
  g_shared->lock = mg_lock_create();
  mg_function function = strcmp(what, "shoot-down") == 0           ? shoot_down
                         : strcmp(what, "shoot-down-between") == 0 ? shoot_down_between
                         : strcmp(what, "accesses") == 0           ? accesses
                         : strcmp(what, "calls") == 0              ? calls
                                                                   : NULL;
  if (strcmp(what, "wild") == 0) {
    volatile uint64_t* const nothing = (uint64_t*)((char*)g_shared + ((uint64_t)1 << 38));
    printf("%llu\n", (unsigned long long)*nothing);
    return 0;
  }
  if (strcmp(what, "globals") == 0) return mg_share_globals() == 0 ? 0 : (puts(mg_error()), 3);
  if (function == NULL) return 2;
  for (unsigned p = 1; p < mg_processors(); ++p)
    if (mg_spawn(p, function, NULL) != 0) return 2;
  function(NULL);
  mg_join_all();
  puts("right");
  return 0;
}
