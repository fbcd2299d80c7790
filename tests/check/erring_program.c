/* The first argument chooses a mistake, or what looks like one; check_test.cpp says what mgrun --check is to say of it. Lines
 * that a report names are marked. */
#include <multigrain/multigrain.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char* block;
static mg_lock_t lock[3];
static mg_barrier_t barrier;
static volatile int written_by_all;

static void overflow_small(void) {
  block = mg_alloc(20, NULL);
  block[23] = 1;
  mg_free(block);  // line: free of overflown
}

static void overflow_by_another(void* unused) {
  (void)unused;
  if (mg_processor() == 1) memset(block, 7, 104);
  mg_barrier(barrier);
}
static void overflow_remote(void) {
  block = mg_alloc(100, NULL);  // line: remote block
  mg_spawn_all(overflow_by_another, NULL);
}

static void overflow_large(void) {
  block = mg_alloc(3 * 4096, NULL);  // line: large block
  block[3 * 4096] = 1;
}

static void underflow(void) {
  char* const before = mg_alloc(48, NULL);
  block = mg_alloc(48, NULL);
  block[-1] = 1;
  mg_free(before);
  mg_free(block);
}

static void far_overflow(void) {
  block = mg_alloc(24, NULL);
  memset(block, 1, 100);
  mg_free(block);
}

static void write_after_free(void) {
  block = mg_alloc(64, NULL);  // line: freed block
  mg_free(block);              // line: early free
  block[5] = 1;
}

static void late_writer(void* unused) {
  (void)unused;
  if (mg_processor() == 0) mg_free(block);  // line: free by 0
  mg_barrier(barrier);
  if (mg_processor() == 1) block[9] = 3;
}
static void write_after_remote_free(void) {
  block = mg_alloc(3 * 4096, NULL);
  mg_spawn_all(late_writer, NULL);
}

static void double_free(void) {
  block = mg_alloc(64, NULL);  // line: doubly freed
  mg_free(block);              // line: first free
  mg_free(block);              // line: second free
}

static void second_free(void* unused) {
  (void)unused;
  mg_free(block);  // line: remote second free
}
static void double_free_remote(void) {
  block = mg_alloc(64, NULL);
  mg_free(block);
  mg_spawn(1, second_free, NULL);
  mg_join(1);
}

static void free_inside(void) {
  block = mg_alloc(64, NULL);
  mg_free(block + 16);  // line: free inside
}

static void free_private(void) {
  static int variable;
  mg_free(&variable);  // line: free of a global
}

static void in_order(int first, int second) {
  mg_lock(lock[first]);   // line: first lock
  mg_lock(lock[second]);  // line: second lock
  mg_unlock(lock[second]);
  mg_unlock(lock[first]);
}
static void two_orders(void* unused) {
  (void)unused;
  if (mg_processor() == 0) in_order(0, 1);
  mg_barrier(barrier);
  if (mg_processor() == 1) in_order(1, 0);
}
static void three_orders(void* unused) {
  (void)unused;
  for (unsigned turn = 0; turn < 3; ++turn) {
    if (mg_processor() == turn) in_order((int)turn, (int)(turn + 1) % 3);
    mg_barrier(barrier);
  }
}
static void both_orders_alone(void* unused) {
  (void)unused;
  if (mg_processor() != 1) return;
  in_order(0, 1);
  in_order(1, 0);
}
static void orders_under_a_gate(void* unused) {
  (void)unused;
  mg_lock(lock[2]);
  if (mg_processor() == 0)
    in_order(0, 1);
  else
    in_order(1, 0);
  mg_unlock(lock[2]);
}
static void one_order(void* unused) {
  (void)unused;
  for (int i = 0; i < 100; ++i) {
    in_order(0, 1);
    in_order(1, 2);
    in_order(0, 2);
  }
}
static void try_other_order(void* unused) {
  (void)unused;
  const int first = mg_processor() == 0 ? 0 : 1;
  for (int i = 0; i < 100; ++i) {
    mg_lock(lock[first]);
    if (mg_trylock(lock[1 - first])) mg_unlock(lock[1 - first]);
    mg_unlock(lock[first]);
  }
}

static void barrier_with_lock(void* unused) {
  (void)unused;
  if (mg_processor() == 1) mg_lock(lock[0]);  // line: lock before barrier
  mg_barrier(barrier);                        // line: barrier with lock
  if (mg_processor() == 1) mg_unlock(lock[0]);
}

static void write_global(void* unused) {
  (void)unused;
  ++written_by_all;
}

static void heap_worker(void* unused) {
  char* mine[64] = {0};
  (void)unused;
  for (int i = 0; i < 4000; ++i) {
    char** const one = &mine[i % 64];
    const size_t size = (size_t)(i * 37 % 5000) + 1;
    mg_free(*one);
    *one = mg_alloc(size, NULL);
    for (size_t byte = 0; byte < size; ++byte)
      if ((*one)[byte] != 0) exit(3);
    memset(*one, 1 + i % 200, size);
  }
  for (int i = 0; i < 64; i += 2) mg_free(mine[i]);
  mg_barrier(barrier);
}

/* Each processor frees what the next one has allocated and written. */
static char** handed;
static void hand_over(void* unused) {
  const unsigned me = mg_processor(), all = mg_processors();
  (void)unused;
  for (int round = 0; round < 50; ++round) {
    const size_t size = (size_t)(100 + 150 * round);
    handed[me] = mg_alloc(size, NULL);
    memset(handed[me], 5, size);
    mg_barrier(barrier);
    char* const other = handed[(me + 1) % all];
    memset(other, 6, size);
    mg_free(other);
    mg_barrier(barrier);
  }
}

int main(int argc, char** argv) {
  const char* const what = argc > 1 ? argv[1] : "";
  for (int i = 0; i < 3; ++i) lock[i] = mg_lock_create();
  barrier = mg_barrier_create(0);
#define CASE(name) \
  if (strcmp(what, #name) == 0) return name(), 0
#define ON_ALL(name) \
  if (strcmp(what, #name) == 0) return mg_spawn_all(name, NULL), 0
  CASE(overflow_small);
  CASE(overflow_remote);
  CASE(overflow_large);
  CASE(underflow);
  CASE(far_overflow);
  CASE(write_after_free);
  CASE(write_after_remote_free);
  CASE(double_free);
  CASE(double_free_remote);
  CASE(free_inside);
  CASE(free_private);
  ON_ALL(two_orders);
  ON_ALL(three_orders);
  ON_ALL(both_orders_alone);
  ON_ALL(orders_under_a_gate);
  ON_ALL(one_order);
  ON_ALL(try_other_order);
  ON_ALL(barrier_with_lock);
  ON_ALL(write_global);
  ON_ALL(heap_worker);
  if (strcmp(what, "hand_over") == 0) {
    handed = mg_alloc(mg_processors() * sizeof *handed, NULL);
    return mg_spawn_all(hand_over, NULL), 0;
  }
  if (strcmp(what, "end_with_lock") == 0) {
    mg_lock(lock[1]);  // line: lock at the end
    return 0;
  }
  if (strcmp(what, "nothing_started") == 0) return 0;
  if (strcmp(what, "own_status") == 0) {
    overflow_small();
    return 5;
  }
  return 1;
}
