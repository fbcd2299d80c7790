#include "poll_kernels.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

unsigned long collatz(unsigned long n) {
  unsigned long times = 0;
  while (n != 1) {
    n = n % 2 == 0 ? n / 2 : 3 * n + 1;
    ++times;
  }
  return times;
}

unsigned long tangled(unsigned long n) {
  unsigned long times = 0;
  if (n % 2 != 0) goto odd;
even:
  if (n % 2 != 0) goto odd;
  n /= 2;
  ++times;
odd:
  if (n == 1) return times;
  if (n % 2 == 0) goto even;
  n = 3 * n + 1;
  ++times;
  goto even;
}

unsigned bounded(unsigned seed) {
  for (int i = 0; i < 300; ++i) seed = seed * 1664525u + (seed >> 7);
  return seed;
}
unsigned bounded_nest(unsigned seed) {
  for (unsigned i = 0; i < 15; ++i)
    for (unsigned j = 0; j < 20; ++j) seed = seed * 1664525u + (seed >> 7) + i;
  return seed;
}

unsigned long lowest_zero(unsigned long n, unsigned long bit) {
  for (; n & bit; bit >>= 1) n ^= bit;
  return n ^ bit;
}

void scatter(unsigned* to, unsigned long mask, unsigned long times) {
  unsigned long state = 1;
  for (unsigned long i = 0; i < times; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    to[state >> 40 & mask] += 1;
  }
}

void scatter_chains(unsigned* to, unsigned long mask, unsigned long times) {
  unsigned long state = 1;
  for (unsigned long i = 0; i < times; ++i) {
    to[i & mask] += 1;
    do {
      state = state * 6364136223846793005u + 1442695040888963407u;
      to[state >> 40 & mask] += 1;
    } while (state == 0);
  }
}

static float table[1 << 14];
void add(int length, float x) {
  for (int i = 0; i < length; ++i) table[i] += x;
}
void add_rows(int rows, int length, float x) {
  for (int row = 0; row < rows; ++row)
    for (int i = 0; i < length; ++i) table[i] = table[i] * x + 1;
}

/* Not a tail call, which would become a loop. */
__attribute__((noinline)) unsigned long calls(unsigned depth, unsigned width) {
  if (depth == 0) return 1;
  const unsigned long left = calls(depth - 1, width ^ depth);
  const unsigned long right = width % 2 == 0 ? calls(depth - 1, width / 2) : 0;
  return left + right + 1;
}

void scale(double* numbers, long length, double by) {
  for (long i = 0; i < length; ++i) numbers[i] *= by;
}

void wait_for(const int* flag) {
  while (__atomic_load_n(flag, __ATOMIC_RELAXED) == 0) {
  }
}

static unsigned long counted;
unsigned long count_privately(unsigned long times) {
  for (unsigned long i = 0; i < times; ++i) {
    unsigned long old = __atomic_load_n(&counted, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&counted, &old, old + 1, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
  }
  return counted;
}

#define ORDER(name, ...)         \
  static void name(long* word) { \
    __VA_ARGS__;                 \
  }
ORDER(load_relaxed, (void)__atomic_load_n(word, __ATOMIC_RELAXED))
ORDER(load_acquire, (void)__atomic_load_n(word, __ATOMIC_ACQUIRE))
ORDER(load_consistent, (void)__atomic_load_n(word, __ATOMIC_SEQ_CST))
ORDER(store_relaxed, __atomic_store_n(word, 1, __ATOMIC_RELAXED))
ORDER(store_release, __atomic_store_n(word, 1, __ATOMIC_RELEASE))
ORDER(store_consistent, __atomic_store_n(word, 1, __ATOMIC_SEQ_CST))
ORDER(update_relaxed, __atomic_fetch_add(word, 1, __ATOMIC_RELAXED))
ORDER(update_acquire, __atomic_exchange_n(word, 1, __ATOMIC_ACQUIRE))
ORDER(update_release, __atomic_fetch_or(word, 1, __ATOMIC_RELEASE))
ORDER(update_both, __atomic_fetch_xor(word, 1, __ATOMIC_ACQ_REL))
ORDER(update_by_sync, __sync_fetch_and_add(word, 1))
ORDER(update_narrow, __atomic_fetch_add((unsigned char*)word, 1, __ATOMIC_RELEASE))
ORDER(lock_by_sync, (void)__sync_lock_test_and_set(word, 1))
ORDER(unlock_by_sync, __sync_lock_release(word))
static void exchange_relaxed(long* word) {
  long old = 0;
  __atomic_compare_exchange_n(word, &old, 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
static void exchange_release(long* word) {
  long old = 0;
  __atomic_compare_exchange_n(word, &old, 1, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}
long private_word; /* not static: or the optimiser sees that nobody loads it */
static void store_release_privately(long* word) {
  (void)word;
  __atomic_store_n(&private_word, 1, __ATOMIC_RELEASE);
}
ORDER(plain, *word = 1)
ORDER(fence_acquire, (void)word; atomic_thread_fence(memory_order_acquire))
ORDER(fence_release, (void)word; atomic_thread_fence(memory_order_release))
ORDER(fence_both, (void)word; atomic_thread_fence(memory_order_acq_rel))
ORDER(fence_consistent, (void)word; atomic_thread_fence(memory_order_seq_cst))
ORDER(fence_by_sync, (void)word; __sync_synchronize())
ORDER(fence_of_signals, (void)word; atomic_signal_fence(memory_order_seq_cst))
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void lock_and_unlock(long* word) {
  (void)word;
  pthread_mutex_lock(&mutex);
  pthread_mutex_unlock(&mutex);
}
#define ROW(name, fences) {#name, name, fences}
const struct ordered orders[] = {ROW(load_relaxed, 0),     ROW(load_acquire, 0),   ROW(load_consistent, 1),
                                 ROW(store_relaxed, 0),    ROW(store_release, 1),  ROW(store_consistent, 1),
                                 ROW(update_relaxed, 0),   ROW(update_acquire, 0), ROW(update_release, 1),
                                 ROW(update_both, 1),      ROW(update_by_sync, 1), ROW(update_narrow, 1),
                                 ROW(lock_by_sync, 1),     ROW(unlock_by_sync, 1), ROW(exchange_relaxed, 0),
                                 ROW(exchange_release, 1), ROW(plain, 0),          ROW(store_release_privately, 1),
                                 ROW(fence_acquire, 0),    ROW(fence_release, 1),  ROW(fence_both, 1),
                                 ROW(fence_consistent, 1), ROW(fence_by_sync, 1),  ROW(fence_of_signals, 0),
                                 ROW(lock_and_unlock, 1),  {NULL, NULL, 0}};

typedef float v2f __attribute__((vector_size(8)));
typedef double v2d __attribute__((vector_size(16)));
typedef unsigned char v16b __attribute__((vector_size(16)));
typedef double v4d __attribute__((vector_size(32)));
typedef long loose __attribute__((aligned(4)));
typedef v2d loose_vector __attribute__((aligned(8)));
#define STORE(name, type)                                          \
  static void name(unsigned char* to, const unsigned char* from) { \
    *(type*)to = *(type const*)from;                               \
  }
STORE(store_8, unsigned char)
STORE(store_16, short)
STORE(store_32, unsigned)
STORE(store_64, long)
STORE(store_128, unsigned __int128)
STORE(store_float, float)
STORE(store_double, double)
STORE(store_long_double, long double)
STORE(store_pointer, const void*)
STORE(store_2_floats, v2f)
STORE(store_2_doubles, v2d)
STORE(store_16_bytes, v16b)
STORE(store_4_doubles, v4d)
STORE(store_loose, loose)
STORE(store_loose_vector, loose_vector)
STORE(store_volatile, volatile int)
#define STORED(name, size, alignment) {#name, size, alignment, name}
const struct stored stores[] = {STORED(store_8, 1, 1),
                                STORED(store_16, 2, 2),
                                STORED(store_32, 4, 4),
                                STORED(store_64, 8, 8),
                                STORED(store_128, 16, 16),
                                STORED(store_float, 4, 4),
                                STORED(store_double, 8, 8),
                                STORED(store_long_double, 10, 16),
                                STORED(store_pointer, 8, 8),
                                STORED(store_2_floats, 8, 8),
                                STORED(store_2_doubles, 16, 16),
                                STORED(store_16_bytes, 16, 16),
                                STORED(store_4_doubles, 32, 32),
                                STORED(store_loose, 8, 4),
                                STORED(store_loose_vector, 16, 8),
                                STORED(store_volatile, 4, 4),
                                {NULL, 0, 0, NULL}};

void add_by_exchange(long* word, long addend) {
  long old = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &old, old + addend, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

void lock_by_exchange(int* word) {
  for (;;) {
    int expected = 0;
    if (__atomic_load_n(word, __ATOMIC_RELAXED) == 0 &&
        __atomic_compare_exchange_n(word, &expected, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
      return;
  }
}
