/* Handlers of signals that interrupt code with hazards published (docs/internals/fine-grain.md): for line protocols,
 * built by mgcc.
 *
 *   mgrun --nodes 2 --protocol dszoom handlers left | stores | jumps [ROUNDS]
 *
 * left    a handler leaves a loop that stores to shared memory by siglongjmp: the other node gets the loop's lines.
 * stores  a handler stores to private memory, again and again, while its thread stores to shared memory of which the
 *         other node takes the lines: no store of the thread is lost.
 * jumps   the same with a handler that jumps inside of itself.
 */
#define _GNU_SOURCE
#include <multigrain/multigrain.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

/* Rounds at least, of a store to each of the numbers, and signals at least that interrupt them. */
enum { kNumbers = 1024, kRounds = 30, kSignals = 50 };

static long* numbers;     /* shared */
static _Atomic int* stop; /* shared */
static mg_barrier_t barrier;
static const int* places; /* private */
static sigjmp_buf outside;
static long* volatile counts; /* private, of which the compiler does not know that */
static volatile sig_atomic_t handled;
static int jumps;

static void ring_every(long microseconds) {
  const struct itimerval every = {{0, microseconds}, {0, microseconds}};
  setitimer(ITIMER_REAL, &every, NULL);
}

static void leave(int signo) {
  (void)signo;
  siglongjmp(outside, 1);
}

__attribute__((noinline)) static void add_for_ever(long* to, const int* at) {
  for (unsigned long i = 0;; ++i) to[at[i % kNumbers]] += 1;
}

static int leave_loop(void) {
  if (sigsetjmp(outside, 1) != 0) return 1;
  ring_every(100000);
  add_for_ever(numbers, places);
  return 0;
}

static void store_all(void* unused) {
  (void)unused;
  mg_barrier(barrier);
  for (int i = 0; i < kNumbers; ++i) numbers[i] = i;
  mg_barrier(barrier);
}

static int left(void) {
  signal(SIGALRM, leave);
  const int result = leave_loop();
  ring_every(0);
  mg_barrier(barrier);
  mg_barrier(barrier);
  long sum = 0;
  for (int i = 0; i < kNumbers; ++i) sum += numbers[i];
  return result == 1 && sum == (long)kNumbers * (kNumbers - 1) / 2;
}

__attribute__((noinline)) static void add_to(long* to, int count) {
  for (int i = 0; i < count; ++i) to[(i * 7) % 16] += i;
}

static void count_signal(int signo, siginfo_t* info, void* context) {
  (void)signo, (void)info, (void)context;
  add_to(counts, 64);
  *counts += 1;
  if (jumps) {
    sigjmp_buf inside;
    if (sigsetjmp(inside, 0) == 0) siglongjmp(inside, 1);
    *counts += 1;
  }
  handled = handled + 1;
}

/* The other node: takes lines away, and leaves what is in them. */
static void take_lines(void* unused) {
  (void)unused;
  unsigned random = 1;
  while (!atomic_load(stop)) {
    random = random * 1103515245u + 12345u;
    __atomic_fetch_add(&numbers[random >> 8 & (kNumbers - 1)], 0, __ATOMIC_SEQ_CST);
  }
}

__attribute__((noinline)) static void add_everywhere(long* to, const int* at, int times) {
  for (int i = 0; i < times; ++i) to[at[i % kNumbers]] += 1;
}

static int stores(int least) {
  struct sigaction action, seen;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = count_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGALRM, &action, NULL);
  sigaction(SIGALRM, NULL, &seen);
  if (seen.sa_sigaction != count_signal || (seen.sa_flags & SA_SIGINFO) == 0) {
    fprintf(stderr, "sigaction does not report the program's handler\n");
    return 0;
  }
  memset(numbers, 0, kNumbers * sizeof *numbers);
  ring_every(500);
  int rounds = 0;
  for (; rounds < least || (handled < kSignals && rounds < 100 * least); ++rounds)
    add_everywhere(numbers, places, kNumbers);
  ring_every(0);
  atomic_store(stop, 1);
  int wrong = 0;
  for (int i = 0; i < kNumbers; ++i) wrong += numbers[i] != rounds;
  if (wrong != 0)
    fprintf(stderr, "handlers: %d of %d numbers are wrong after %d signals\n", wrong, kNumbers, (int)handled);
  return wrong == 0;
}

int main(int argc, char** argv) {
  const char* const what = argc > 1 ? argv[1] : "";
  if (mg_processors() != 2) {
    fprintf(stderr, "handlers: two nodes of one processor are needed\n");
    return 2;
  }
  numbers = mg_alloc(kNumbers * sizeof *numbers, NULL);
  stop = mg_alloc(64, NULL);
  barrier = mg_barrier_create(2);
  int* const order = malloc(kNumbers * sizeof *order);
  for (int i = 0; i < kNumbers; ++i) order[i] = i * 37 % kNumbers;
  places = order;
  counts = calloc(16, sizeof *counts);
  jumps = strcmp(what, "jumps") == 0;
  const int is_left = strcmp(what, "left") == 0;
  if (!is_left && !jumps && strcmp(what, "stores") != 0) {
    fprintf(stderr, "usage: handlers left|stores|jumps [ROUNDS]\n");
    return 2;
  }
  const int least = argc > 2 ? atoi(argv[2]) : kRounds;
  mg_spawn(1, is_left ? store_all : take_lines, NULL);
  const int right = is_left ? left() : stores(least);
  mg_join(1);
  return right ? 0 : 1;
}
