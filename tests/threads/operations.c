/* What each atomic operation returns and leaves, on one object after another: in the memory of other nodes as on one
 * machine. Compiled by mgcc -fmultigrain-threads, so all of it runs through the runtime's functions. */
#include <multigrain/multigrain.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(condition)                                                                                  \
  do {                                                                                                      \
    if (!(condition)) {                                                                                     \
      fprintf(stderr, "%s:%d: processor %u: not so: %s\n", __FILE__, __LINE__, mg_processor(), #condition); \
      _Exit(1);                                                                                             \
    }                                                                                                       \
  } while (0)

#define TEST_INTEGERS(T)                                                                                         \
  static void test_##T(T* at) {                                                                                  \
    __atomic_store_n(at, (T)5, __ATOMIC_RELEASE);                                                                \
    REQUIRE(__atomic_load_n(at, __ATOMIC_ACQUIRE) == (T)5);                                                      \
    REQUIRE(__atomic_fetch_add(at, (T) - 7, __ATOMIC_RELAXED) == (T)5 && *at == (T) - 2);                        \
    REQUIRE(__atomic_fetch_max(at, (T)3, __ATOMIC_SEQ_CST) == (T) - 2 && *at == ((T) - 2 < 0 ? (T)3 : (T) - 2)); \
    __atomic_store_n(at, (T) - 2, __ATOMIC_SEQ_CST);                                                             \
    REQUIRE(__atomic_fetch_min(at, (T)3, __ATOMIC_SEQ_CST) == (T) - 2 && *at == ((T) - 2 < 0 ? (T) - 2 : (T)3)); \
    __atomic_store_n(at, (T)12, __ATOMIC_SEQ_CST);                                                               \
    REQUIRE(__atomic_and_fetch(at, (T)10, __ATOMIC_ACQ_REL) == (T)8);                                            \
    REQUIRE(__atomic_fetch_or(at, (T)3, __ATOMIC_SEQ_CST) == (T)8 && *at == (T)11);                              \
    REQUIRE(__atomic_fetch_xor(at, (T)1, __ATOMIC_SEQ_CST) == (T)11 && *at == (T)10);                            \
    REQUIRE(__atomic_fetch_nand(at, (T)6, __ATOMIC_SEQ_CST) == (T)10 && *at == (T)~2);                           \
    REQUIRE(__atomic_exchange_n(at, (T)1, __ATOMIC_SEQ_CST) == (T)~2);                                           \
    REQUIRE(__atomic_sub_fetch(at, (T)2, __ATOMIC_SEQ_CST) == (T) - 1);                                          \
    T expected = 9;                                                                                              \
    REQUIRE(!__atomic_compare_exchange_n(at, &expected, (T)4, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));       \
    REQUIRE(expected == (T) - 1);                                                                                \
    REQUIRE(__atomic_compare_exchange_n(at, &expected, (T)4, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));        \
    REQUIRE(*at == (T)4 && __sync_bool_compare_and_swap(at, (T)4, (T)6) &&                                       \
            __sync_lock_test_and_set(at, (T)1) == (T)6);                                                         \
    __sync_lock_release(at);                                                                                     \
    REQUIRE(*at == 0);                                                                                           \
  }
TEST_INTEGERS(int8_t)
TEST_INTEGERS(uint8_t)
TEST_INTEGERS(int16_t)
TEST_INTEGERS(uint16_t)
TEST_INTEGERS(int32_t)
TEST_INTEGERS(uint32_t)
TEST_INTEGERS(int64_t)
TEST_INTEGERS(uint64_t)
__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;
TEST_INTEGERS(int128)
TEST_INTEGERS(uint128)

typedef struct {
  _Atomic float single;
  _Atomic double real;
  _Atomic(long double) extended;
  _Atomic(char*) pointer;
  _Atomic _Bool flag;
} others;

static void test_others(others* at) {
  at->single = 1.5F;
  at->single += 2;
  REQUIRE(at->single == 3.5F);
  at->real = 1.25;
  REQUIRE(__c11_atomic_fetch_add(&at->real, 2, __ATOMIC_SEQ_CST) == 1.25 && at->real == 3.25);
  at->real *= 2;
  REQUIRE(at->real == 6.5 && __c11_atomic_fetch_sub(&at->real, 0.5, __ATOMIC_SEQ_CST) == 6.5 && at->real == 6);
  at->extended = 7;
  at->extended += 1;
  REQUIRE(at->extended == 8);
  static char text[4];
  at->pointer = text;
  REQUIRE(atomic_fetch_add(&at->pointer, 2) == text && at->pointer == text + 2);
  REQUIRE(!atomic_exchange(&at->flag, true) && at->flag);
}

/* An object of the thread's own, and one whose address is handed on. */
static __attribute__((noinline)) void increment(_Atomic int* at) {
  ++*at;
}
static _Thread_local _Atomic int own;

static void test_private(void) {
  _Atomic int here = 1;
  here += 2;
  ++own;
  increment(&here);
  increment(&own);
  REQUIRE(here == 4 && own == 2);
  own = 0;
}

static uint128 in_global;
static others others_in_global;

typedef struct {
  uint128 integer;
  others others;
  mg_lock_t lock;
} shared;
static shared* allocated;
static mg_lock_t lock_of_global;

static void test_all(void* at, others* other) {
  test_int8_t(at), test_uint8_t(at), test_int16_t(at), test_uint16_t(at), test_int32_t(at), test_uint32_t(at);
  test_int64_t(at), test_uint64_t(at), test_int128(at), test_uint128(at);
  test_others(other);
  memset(other, 0, sizeof *other);
}

static void work(void* unused) {
  (void)unused;
  uint128 local = 0;
  others other = {0};
  test_all(&local, &other);
  test_private();
  mg_lock(lock_of_global);
  test_all(&in_global, &others_in_global);
  mg_unlock(lock_of_global);
  mg_lock(allocated->lock);
  test_all(&allocated->integer, &allocated->others);
  mg_unlock(allocated->lock);
  atomic_thread_fence(memory_order_seq_cst);
  atomic_thread_fence(memory_order_release);
  atomic_signal_fence(memory_order_seq_cst);
}

int main(void) {
  allocated = mg_alloc(sizeof *allocated, NULL);
  allocated->lock = mg_lock_create();
  lock_of_global = mg_lock_create();
  REQUIRE(mg_share_globals() == 0);
  REQUIRE(mg_spawn_all(work, NULL) == 0);
  return 0;
}
