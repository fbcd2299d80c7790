/* 40 small functions with a data race, and 40 without one that come near to it, for mgrun --check-races and, as one program of
 * POSIX threads, for clang -fsanitize=thread. Four threads run each function, between two barriers, on memory of its own. A race
 * is there in every schedule: delays choose the likely one, and nothing else.
 *
 * race_cases racy|clean [NUMBER [LATE]]    runs all functions of the kind, or one (0: all). The thread LATE begins each when the
 *                                          others have come as far as they can. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 4
#define OBJECTS 8

typedef struct Area {
  _Alignas(64) volatile uint64_t w[16];
  volatile uint32_t half[16];
  volatile unsigned char bytes[64];
  char text[128];
  _Atomic uint64_t a[8];
  volatile struct {
    unsigned x : 3, y : 5;
    unsigned char z;
  } bits;
  void* volatile pointer;
  volatile uint64_t guarded;
} Area;

/* What orders threads: a set of objects for each function. */
#ifdef RACES_POSIX
#include <pthread.h>
#include <semaphore.h>
typedef struct Flag {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  unsigned value;
} Flag;
typedef struct Objects {
  pthread_mutex_t lock[OBJECTS];
  pthread_cond_t cond[2];
  sem_t sem[OBJECTS];
  Flag flag[OBJECTS];
  pthread_barrier_t all, two;
} Objects;
static Objects o;
static Area* area;
static void lock(int i) {
  pthread_mutex_lock(&o.lock[i]);
}
static int try_lock(int i) {
  return pthread_mutex_trylock(&o.lock[i]) == 0;
}
static void unlock(int i) {
  pthread_mutex_unlock(&o.lock[i]);
}
static void barrier(void) {
  pthread_barrier_wait(&o.all);
}
static void barrier_of_two(void) {
  pthread_barrier_wait(&o.two);
}
static void cond_wait(int i, int l) {
  pthread_cond_wait(&o.cond[i], &o.lock[l]);
}
static void cond_broadcast(int i) {
  pthread_cond_broadcast(&o.cond[i]);
}
static void post(int i) {
  sem_post(&o.sem[i]);
}
static void wait_for(int i) {
  sem_wait(&o.sem[i]);
}
static void flag_set(int i, unsigned value) {
  pthread_mutex_lock(&o.flag[i].mutex);
  o.flag[i].value = value;
  pthread_cond_broadcast(&o.flag[i].changed);
  pthread_mutex_unlock(&o.flag[i].mutex);
}
static void flag_wait(int i, unsigned value) {
  pthread_mutex_lock(&o.flag[i].mutex);
  while (o.flag[i].value != value) pthread_cond_wait(&o.flag[i].changed, &o.flag[i].mutex);
  pthread_mutex_unlock(&o.flag[i].mutex);
}
static void* allocate(size_t size) {
  return malloc(size);
}
static void release(void* block) {
  free(block);
}
static void make_objects(void) {
  for (int i = 0; i < OBJECTS; ++i) {
    pthread_mutex_init(&o.lock[i], NULL);
    sem_init(&o.sem[i], 0, 0);
    pthread_mutex_init(&o.flag[i].mutex, NULL);
    pthread_cond_init(&o.flag[i].changed, NULL);
  }
  pthread_cond_init(&o.cond[0], NULL);
  pthread_cond_init(&o.cond[1], NULL);
  pthread_barrier_init(&o.all, NULL, THREADS);
  pthread_barrier_init(&o.two, NULL, 2);
}
#else
#include <multigrain/multigrain.h>
typedef struct Objects {
  mg_lock_t lock[OBJECTS];
  mg_cond_t cond[2];
  mg_sem_t sem[OBJECTS];
  mg_flag_t flag[OBJECTS];
  mg_barrier_t all, two;
} Objects;
static Objects o;
static Area* area;
static void lock(int i) {
  mg_lock(o.lock[i]);
}
static int try_lock(int i) {
  return mg_trylock(o.lock[i]);
}
static void unlock(int i) {
  mg_unlock(o.lock[i]);
}
static void barrier(void) {
  mg_barrier(o.all);
}
static void barrier_of_two(void) {
  mg_barrier(o.two);
}
static void cond_wait(int i, int l) {
  mg_cond_wait(o.cond[i], o.lock[l]);
}
static void cond_broadcast(int i) {
  mg_cond_broadcast(o.cond[i]);
}
static void post(int i) {
  mg_sem_post(o.sem[i]);
}
static void wait_for(int i) {
  mg_sem_wait(o.sem[i]);
}
static void flag_set(int i, unsigned value) {
  mg_flag_set(o.flag[i], value);
}
static void flag_wait(int i, unsigned value) {
  mg_flag_wait(o.flag[i], value);
}
static void* allocate(size_t size) {
  return mg_alloc(size, NULL);
}
static void release(void* block) {
  mg_free(block);
}
static void make_objects(void) {
  for (int i = 0; i < OBJECTS; ++i) {
    o.lock[i] = mg_lock_create();
    o.sem[i] = mg_sem_create(0);
    o.flag[i] = mg_flag_create();
  }
  o.cond[0] = mg_cond_create();
  o.cond[1] = mg_cond_create();
  o.all = mg_barrier_create(THREADS);
  o.two = mg_barrier_create(2);
}
#endif

/* Long enough, mostly, for the other threads to have come as far as they can. */
static void later(void) {
  usleep(30000);
}
static uint64_t keep(uint64_t value) {
  __asm__ volatile("" : : "r"(value));
  return value;
}
typedef void (*Case)(int me, Area* s);
#define LOAD(object, order) atomic_load_explicit(&(object), memory_order_##order)
#define STORE(object, value, order) atomic_store_explicit(&(object), value, memory_order_##order)
#define ADD(object, value, order) atomic_fetch_add_explicit(&(object), value, memory_order_##order)

/* --- Racy */

static void racy_01_two_writers(int me, Area* s) {
  if (me < 2) s->w[0] = me;
}
static void racy_02_reader_and_writer(int me, Area* s) {
  if (me == 0) s->w[0] = 1;
  if (me == 1) keep(s->w[0]);
}
static void racy_03_counter(int me, Area* s) {
  s->w[0] += me;
}
static void racy_04_two_locks(int me, Area* s) {
  lock(me % 2);
  s->w[0] += 1;
  unlock(me % 2);
}
static void racy_05_writer_has_lock(int me, Area* s) {
  if (me == 0) {
    lock(0);
    s->w[0] = 1;
    unlock(0);
  }
  if (me == 1) keep(s->w[0]);
}
static void racy_06_reader_has_lock(int me, Area* s) {
  if (me == 0) s->w[0] = 1;
  if (me == 1) {
    lock(0);
    keep(s->w[0]);
    unlock(0);
  }
}
static void racy_07_word_and_its_half(int me, Area* s) {
  if (me == 0) s->w[0] = 1;
  if (me == 1) keep(((volatile uint32_t*)s->w)[1]);
}
static void racy_08_byte_and_its_word(int me, Area* s) {
  if (me == 0) ((volatile unsigned char*)s->w)[5] = 1;
  if (me == 1) keep(s->w[0]);
}
typedef struct {
  uint32_t value;
} __attribute__((packed)) Unaligned;
static void racy_09_across_two_words(int me, Area* s) {
  if (me == 0) ((volatile Unaligned*)(s->text + 6))->value = 1;
  if (me == 1) keep((uint64_t)((volatile char*)s->text)[9]);
}
static void racy_10_copied_while_written(int me, Area* s) {
  if (me == 0) memcpy(s->text, s->text + 64, 40);
  if (me == 1) ((volatile char*)s->text)[64 + 39] = 1;
}
static void racy_11_set_while_read(int me, Area* s) {
  if (me == 0) memset(s->text, 1, 100);
  if (me == 1) keep((uint64_t)((volatile char*)s->text)[99]);
}
static void racy_12_moved_onto_what_is_read(int me, Area* s) {
  if (me == 0) memmove(s->text + 8, s->text, 64);
  if (me == 1) keep((uint64_t)((volatile char*)s->text)[71]);
}
typedef struct {
  uint64_t first[6];
  uint32_t last;
} Record;
static void racy_13_structure_and_its_member(int me, Area* s) {
  Record* const record = (Record*)s->text;
  if (me == 0) record[1] = record[0];
  if (me == 1) *(volatile uint32_t*)&record[0].last = 7;
}
static void racy_14_double_checked(int me, Area* s) {
  if (s->w[0] == 0) {
    lock(0);
    if (s->w[0] == 0) s->w[0] = me + 1;
    unlock(0);
  }
}
static void racy_15_plain_flag(int me, Area* s) {
  if (me == 0) {
    s->w[8] = 42;
    s->half[0] = 1;
  }
  if (me == 1)
    for (int i = 0; i < 1000 && s->half[0] == 0; ++i) continue;
}
static void racy_16_no_barrier_between_phases(int me, Area* s) {
  s->w[me] = me;
  keep(s->w[(me + 1) % THREADS]);
}
static void racy_17_barrier_of_others(int me, Area* s) {
  if (me == 0) s->w[0] = 1;
  if (me < 2) barrier_of_two();
  if (me == 2) keep(s->w[0]);
}
static void racy_18_many_readers(int me, Area* s) {
  if (me != 0) keep(s->w[0]);
  if (me == 0) s->w[0] = 1;
}
static void racy_19_relaxed_flag(int me, Area* s) {
  if (me == 0) {
    s->w[0] = 1;
    STORE(s->a[0], 1, relaxed);
  }
  if (me == 1) {
    while (LOAD(s->a[0], relaxed) == 0) usleep(100);
    keep(s->w[0]);
  }
}
static void racy_20_relaxed_load(int me, Area* s) {
  if (me == 0) {
    s->w[0] = 1;
    STORE(s->a[0], 1, release);
  }
  if (me == 1) {
    while (LOAD(s->a[0], relaxed) == 0) usleep(100);
    keep(s->w[0]);
  }
}
static void racy_21_relaxed_store(int me, Area* s) {
  if (me == 0) {
    s->w[0] = 1;
    STORE(s->a[0], 1, relaxed);
  }
  if (me == 1) {
    while (LOAD(s->a[0], acquire) == 0) usleep(100);
    keep(s->w[0]);
  }
}
static void racy_22_atomic_and_plain_read(int me, Area* s) {
  if (me == 0) ADD(s->a[0], 1, seq_cst);
  if (me == 1) keep(*(volatile uint64_t*)(void*)&s->a[0]);
}
static void racy_23_atomic_and_plain_write(int me, Area* s) {
  if (me == 0) keep(LOAD(s->a[0], seq_cst));
  if (me == 1) *(volatile uint64_t*)(void*)&s->a[0] = 1;
}
static void racy_24_after_the_unlock(int me, Area* s) {
  lock(0);
  s->guarded = me;
  unlock(0);
  s->w[0] = me;
}
static void racy_25_lock_not_taken(int me, Area* s) {
  if (me == 0) {
    lock(0);
    post(0);
    s->w[0] = 1;
    wait_for(1);
    unlock(0);
  }
  if (me == 1) {
    wait_for(0);
    const int taken = try_lock(0);
    s->w[0] = 2;
    if (taken) unlock(0);
    post(1);
  }
}
static void racy_26_written_after_the_post(int me, Area* s) {
  if (me == 0) {
    post(0);
    s->w[0] = 1;
  }
  if (me == 1) {
    wait_for(0);
    keep(s->w[0]);
  }
}
static void racy_27_written_after_the_flag(int me, Area* s) {
  if (me == 0) {
    flag_set(0, 1);
    later();
    s->w[0] = 1;
  }
  if (me == 1) {
    flag_wait(0, 1);
    keep(s->w[0]);
  }
}
static void racy_28_read_after_the_condition(int me, Area* s) {
  if (me == 0) {
    lock(0);
    s->w[1] = 1;
    cond_broadcast(0);
    unlock(0);
    s->w[0] = 1;
  }
  if (me == 1) {
    lock(0);
    while (s->w[1] == 0) cond_wait(0, 0);
    unlock(0);
    keep(s->w[0]);
  }
}
static void racy_29_slot_of_a_queue(int me, Area* s) {
  lock(0);
  const uint64_t at = s->w[8]++ % 2;
  unlock(0);
  s->w[at] = me;
}
static void racy_30_neighbouring_bits(int me, Area* s) {
  if (me == 0) s->bits.x = 1;
  if (me == 1) s->bits.y = 2;
}
static void racy_31_one_byte_too_many(int me, Area* s) {
  for (int i = 0; i <= 8; ++i) s->bytes[me * 8 + i] = 1;
}
static void racy_32_list(int me, Area* s) {
  if (me > 1) return;
  void** const node = (void**)&s->w[me * 4];
  node[0] = s->pointer;
  s->pointer = node;
}
static void racy_33_freed_while_read(int me, Area* s) {
  if (me == 0) {
    volatile uint64_t* const block = allocate(64);
    block[0] = 5;
    s->pointer = (void*)block;
    flag_set(0, 1);
    later();
    release((void*)block);
  }
  if (me == 1) {
    flag_wait(0, 1);
    keep(*(volatile uint64_t*)s->pointer);
    flag_set(1, 1);
  }
}
static void racy_34_relaxed_count_of_references(int me, Area* s) {
  s->w[me] = me;
  if (ADD(s->a[0], 1, relaxed) == THREADS - 1)
    for (int i = 0; i < THREADS; ++i) keep(s->w[i]);
}
static void racy_35_copied_out_too_late(int me, Area* s) {
  if (me == 0)
    while (LOAD(s->a[0], relaxed) == 0) usleep(100);
  lock(0);
  s->w[0] = me;
  unlock(0);
  /* So somebody has the lock after this thread, and that orders nothing which comes behind. */
  if (me == 3) STORE(s->a[0], 1, relaxed), keep(s->w[0]);
}
static void racy_36_sixteen_bytes(int me, Area* s) {
  typedef uint64_t Pair __attribute__((vector_size(16)));
  if (me == 0) *(volatile Pair*)s->text = (Pair){1, 2};
  if (me == 1) keep(((volatile uint64_t*)s->text)[1]);
}
static __attribute__((noinline)) void deeper(volatile uint64_t* word, int depth) {
  if (depth == 0)
    *word = 1;
  else
    deeper(word, depth - 1);
  keep(depth);
}
static void racy_37_deep_in_calls(int me, Area* s) {
  if (me == 0) deeper(&s->w[0], 6);
  if (me == 1) deeper(&s->w[0], 3);
}
static void racy_38_made_by_both(int me, Area* s) {
  if (me < 2 && s->pointer == NULL) s->pointer = (void*)&s->w[me];
}
static void racy_39_fence_on_one_side(int me, Area* s) {
  if (me == 0) {
    s->w[0] = 1;
    STORE(s->a[0], 1, relaxed);
  }
  if (me == 1) {
    while (LOAD(s->a[0], relaxed) == 0) usleep(100);
    atomic_thread_fence(memory_order_acquire);
    keep(s->w[0]);
  }
}
static void racy_40_reads_under_different_locks(int me, Area* s) {
  if (me == 0 || me == 1) {
    lock(me);
    keep(s->w[0]);
    unlock(me);
  }
  if (me == 2) {
    later();
    lock(0);
    s->w[0] = 1;
    unlock(0);
  }
}

/* --- Clean */

static void clean_01_counter(int me, Area* s) {
  for (int i = 0; i < 20; ++i) {
    lock(0);
    s->w[0] += me;
    unlock(0);
  }
}
static void clean_02_words(int me, Area* s) {
  for (int i = 0; i < 9; ++i) s->w[me] += i;
}
static void clean_03_halves(int me, Area* s) {
  for (int i = 0; i < 9; ++i) s->half[me] += i;
}
static void clean_04_bytes(int me, Area* s) {
  for (int i = 0; i < 9; ++i) s->bytes[me] += i;
}
static void clean_05_bits_in_other_bytes(int me, Area* s) {
  if (me == 0) s->bits.x = 1;
  if (me == 1) s->bits.z = 2;
}
static void clean_06_unaligned_neighbours(int me, Area* s) {
  ((volatile Unaligned*)(s->text + 3 + 4 * me))->value = me;
}
static void clean_07_copies_of_neighbours(int me, Area* s) {
  memcpy(s->text + 13 * me, s->text + 64 + 13 * me, 13);
}
static void clean_08_phases(int me, Area* s) {
  for (int i = 0; i < 9; ++i) {
    s->w[me] = i;
    barrier();
    keep(s->w[(me + 1) % THREADS]);
    barrier();
  }
}
static void clean_09_all_read(int me, Area* s) {
  if (me == 0) s->w[0] = 1;
  barrier();
  for (int i = 0; i < 9; ++i) keep(s->w[0]);
  barrier();
  if (me == 1) s->w[0] = 2;
}
static void clean_10_handed_on_by_a_lock(int me, Area* s) {
  for (int done = 0; !done;) {
    lock(0);
    if (s->guarded == (uint64_t)me) {
      s->w[0] += 1;
      s->guarded = me + 1;
      done = 1;
    }
    unlock(0);
    if (!done) usleep(100);
  }
}
static void clean_11_written_outside_the_lock_before(int me, Area* s) {
  if (me == 0) s->w[0] = 1;
  if (me == 0) {
    lock(0);
    s->guarded = 1;
    unlock(0);
  }
  for (int seen = 0; me == 1 && !seen;) {
    lock(0);
    seen = s->guarded != 0;
    unlock(0);
    if (seen) s->w[0] = 2;
  }
}
static void clean_12_try_lock(int me, Area* s) {
  for (int i = 0; i < 20; ++i) {
    if (!try_lock(0)) continue;
    s->w[0] += me;
    unlock(0);
  }
}
static void clean_13_semaphores_to_and_fro(int me, Area* s) {
  for (int i = 0; i < 9 && me < 2; ++i) {
    if (me == 1) wait_for(0);
    s->w[0] += 1;
    post(me == 0 ? 0 : 1);
    if (me == 0) wait_for(1);
  }
}
static void clean_14_flag(int me, Area* s) {
  if (me == 0) {
    s->w[0] = 1;
    flag_set(0, 1);
  } else {
    flag_wait(0, 1);
    keep(s->w[0]);
  }
}
static void clean_15_flags_in_a_row(int me, Area* s) {
  if (me != 0) flag_wait(0, me);
  s->w[0] += 1;
  flag_set(0, me + 1);
  flag_wait(0, THREADS);
}
static void clean_16_condition(int me, Area* s) {
  if (me == 0) {
    s->w[0] = 1;
    lock(0);
    s->guarded = 1;
    cond_broadcast(0);
    unlock(0);
  } else {
    lock(0);
    while (s->guarded == 0) cond_wait(0, 0);
    unlock(0);
    keep(s->w[0]);
  }
}
static void clean_17_release_and_acquire(int me, Area* s) {
  if (me == 0) {
    s->w[0] = 1;
    STORE(s->a[0], 1, release);
  }
  if (me == 1) {
    while (LOAD(s->a[0], acquire) == 0) usleep(100);
    keep(s->w[0]);
  }
}
static void clean_18_release_sequence(int me, Area* s) {
  if (me == 0) {
    s->w[0] = 1;
    STORE(s->a[0], 1, release);
  }
  if (me == 1) {
    while (LOAD(s->a[0], relaxed) == 0) usleep(100);
    ADD(s->a[0], 1, relaxed);
  }
  if (me == 2) {
    while (LOAD(s->a[0], acquire) != 2) usleep(100);
    keep(s->w[0]);
  }
}
static void clean_19_fences(int me, Area* s) {
  if (me == 0) {
    s->w[0] = 1;
    atomic_thread_fence(memory_order_release);
    STORE(s->a[0], 1, relaxed);
  }
  if (me == 1) {
    while (LOAD(s->a[0], relaxed) == 0) usleep(100);
    atomic_thread_fence(memory_order_acquire);
    keep(s->w[0]);
  }
}
static void clean_20_relaxed_counter(int me, Area* s) {
  for (int i = 0; i < 9; ++i) ADD(s->a[0], (uint64_t)me, relaxed);
}
static void clean_21_sequential(int me, Area* s) {
  if (me > 1) return;
  STORE(s->a[me], 1, seq_cst);
  if (LOAD(s->a[1 - me], seq_cst) == 0) s->w[0] += 1;
}
static void clean_22_spin_lock(int me, Area* s) {
  for (int i = 0; i < 9; ++i) {
    for (uint64_t free = 0;
         !atomic_compare_exchange_strong_explicit(&s->a[0], &free, 1, memory_order_acquire, memory_order_relaxed);
         free = 0)
      usleep(100);
    s->w[0] += me;
    STORE(s->a[0], 0, release);
  }
}
static void clean_23_tickets(int me, Area* s) {
  for (int i = 0; i < 9; ++i) {
    const uint64_t mine = ADD(s->a[0], 1, relaxed);
    while (LOAD(s->a[1], acquire) != mine) usleep(100);
    s->w[0] += me;
    STORE(s->a[1], mine + 1, release);
  }
}
static void clean_24_double_checked(int me, Area* s) {
  if (LOAD(s->a[0], acquire) == 0) {
    lock(0);
    if (LOAD(s->a[0], relaxed) == 0) {
      s->w[0] = me;
      STORE(s->a[0], 1, release);
    }
    unlock(0);
  }
  keep(s->w[0]);
}
static void clean_25_barrier_of_two(int me, Area* s) {
  if (me > 1) return;
  s->w[me] = me;
  barrier_of_two();
  keep(s->w[1 - me]);
}
static void clean_26_memory_used_again(int me, Area* s) {
  (void)s;
  for (int i = 0; i < 30; ++i) {
    volatile uint64_t* const block = allocate(256);
    for (int k = 0; k < 32; ++k) block[k] = me;
    release((void*)block);
  }
}
static void clean_27_queue(int me, Area* s) {
  for (int i = 0; i < 4; ++i) {
    lock(0);
    const uint64_t at = s->guarded++;
    unlock(0);
    s->half[at] = me;
  }
}
static void clean_28_sum(int me, Area* s) {
  uint64_t sum = 0;
  for (int i = 0; i < 8; ++i) sum += s->w[8 + i];
  lock(0);
  s->w[0] += sum + me;
  unlock(0);
}
static void clean_29_in_three_steps(int me, Area* s) {
  if (me == 0) {
    s->w[0] = 1;
    post(0);
  }
  if (me == 1) {
    wait_for(0);
    flag_set(0, 1);
  }
  if (me == 2) {
    flag_wait(0, 1);
    s->w[0] = 2;
  }
}
static void clean_30_count_of_references(int me, Area* s) {
  s->w[me] = me;
  if (ADD(s->a[0], 1, acq_rel) == THREADS - 1)
    for (int i = 0; i < THREADS; ++i) keep(s->w[i]);
}
static void clean_31_list(int me, Area* s) {
  void** const node = (void**)&s->w[me * 4];
  lock(0);
  node[0] = s->pointer;
  s->pointer = node;
  unlock(0);
}
static void clean_32_exchanged_pointer(int me, Area* s) {
  if (me == 0) {
    s->w[0] = 1;
    atomic_exchange_explicit(&s->a[0], 1, memory_order_release);
  }
  for (int seen = 0; me == 1 && !seen;) {
    seen = atomic_exchange_explicit(&s->a[0], 0, memory_order_acquire) != 0;
    if (seen) keep(s->w[0]);
  }
}
static void clean_33_sixteen_bytes(int me, Area* s) {
  typedef uint64_t Pair __attribute__((vector_size(16)));
  ((volatile Pair*)s->text)[me] = (Pair){1, 2};
}
static void clean_34_writer_after_readers(int me, Area* s) {
  keep(s->w[0]);
  barrier();
  if (me == 2) s->w[0] = 1;
  barrier();
  keep(s->w[0]);
}
static void clean_35_locals(int me, Area* s) {
  (void)s;
  volatile uint64_t local[8];
  for (int i = 0; i < 8; ++i) local[i] = me;
  deeper(&local[me], 3);
}
static void clean_36_parts_then_whole(int me, Area* s) {
  for (int i = 0; i < 2; ++i) s->bytes[me * 2 + i] = 1;
  barrier();
  if (me == 0) *(volatile uint64_t*)(void*)s->bytes = 0;
  barrier();
  for (int i = 0; i < 2; ++i) s->bytes[me * 2 + i] = 2;
}
static void clean_37_whole_then_parts(int me, Area* s) {
  if (me == 0) memset(s->text, 0, sizeof s->text);
  barrier();
  memset(s->text + me * 5, me, 5);
}
static void clean_38_two_locks_one_for_each(int me, Area* s) {
  lock(me % 2);
  s->w[me % 2] += 1;
  unlock(me % 2);
}
static void clean_39_turns(int me, Area* s) {
  for (int i = 0; i < 3; ++i) {
    barrier();
    if (me == i) s->w[0] = i;
    barrier();
    keep(s->w[0]);
  }
}
static void clean_40_atomics_only(int me, Area* s) {
  for (int i = 0; i < 9; ++i) {
    STORE(s->a[0], (uint64_t)me, relaxed);
    keep(LOAD(s->a[0], relaxed));
  }
}

static const Case kRacy[] = {racy_01_two_writers,
                             racy_02_reader_and_writer,
                             racy_03_counter,
                             racy_04_two_locks,
                             racy_05_writer_has_lock,
                             racy_06_reader_has_lock,
                             racy_07_word_and_its_half,
                             racy_08_byte_and_its_word,
                             racy_09_across_two_words,
                             racy_10_copied_while_written,
                             racy_11_set_while_read,
                             racy_12_moved_onto_what_is_read,
                             racy_13_structure_and_its_member,
                             racy_14_double_checked,
                             racy_15_plain_flag,
                             racy_16_no_barrier_between_phases,
                             racy_17_barrier_of_others,
                             racy_18_many_readers,
                             racy_19_relaxed_flag,
                             racy_20_relaxed_load,
                             racy_21_relaxed_store,
                             racy_22_atomic_and_plain_read,
                             racy_23_atomic_and_plain_write,
                             racy_24_after_the_unlock,
                             racy_25_lock_not_taken,
                             racy_26_written_after_the_post,
                             racy_27_written_after_the_flag,
                             racy_28_read_after_the_condition,
                             racy_29_slot_of_a_queue,
                             racy_30_neighbouring_bits,
                             racy_31_one_byte_too_many,
                             racy_32_list,
                             racy_33_freed_while_read,
                             racy_34_relaxed_count_of_references,
                             racy_35_copied_out_too_late,
                             racy_36_sixteen_bytes,
                             racy_37_deep_in_calls,
                             racy_38_made_by_both,
                             racy_39_fence_on_one_side,
                             racy_40_reads_under_different_locks};
static const Case kClean[] = {clean_01_counter,
                              clean_02_words,
                              clean_03_halves,
                              clean_04_bytes,
                              clean_05_bits_in_other_bytes,
                              clean_06_unaligned_neighbours,
                              clean_07_copies_of_neighbours,
                              clean_08_phases,
                              clean_09_all_read,
                              clean_10_handed_on_by_a_lock,
                              clean_11_written_outside_the_lock_before,
                              clean_12_try_lock,
                              clean_13_semaphores_to_and_fro,
                              clean_14_flag,
                              clean_15_flags_in_a_row,
                              clean_16_condition,
                              clean_17_release_and_acquire,
                              clean_18_release_sequence,
                              clean_19_fences,
                              clean_20_relaxed_counter,
                              clean_21_sequential,
                              clean_22_spin_lock,
                              clean_23_tickets,
                              clean_24_double_checked,
                              clean_25_barrier_of_two,
                              clean_26_memory_used_again,
                              clean_27_queue,
                              clean_28_sum,
                              clean_29_in_three_steps,
                              clean_30_count_of_references,
                              clean_31_list,
                              clean_32_exchanged_pointer,
                              clean_33_sixteen_bytes,
                              clean_34_writer_after_readers,
                              clean_35_locals,
                              clean_36_parts_then_whole,
                              clean_37_whole_then_parts,
                              clean_38_two_locks_one_for_each,
                              clean_39_turns,
                              clean_40_atomics_only};
#define COUNT (int)(sizeof kRacy / sizeof kRacy[0])
_Static_assert(sizeof kRacy == sizeof kClean, "as many racy ones as clean ones");

static int chosen = -1;
static int late = -1;
static int is_clean;

__attribute__((unused)) static void run_cases(int me) {
  for (int i = 0; i < COUNT; ++i) {
    if (chosen >= 0 && i != chosen) continue;
    barrier();
    /* Later than those that wait in the function. */
    for (int k = 0; me == late && k < 3; ++k) later();
    (is_clean ? kClean : kRacy)[i](me, &area[i]);
    barrier();
    /* Flags are at 0 again for the next one. */
    if (me == 0)
      for (int k = 0; k < 2; ++k) flag_set(k, 0);
    barrier();
  }
}

#if defined(RACES_POSIX) && defined(RACES_NEW_THREADS)
/* For a detector that does not tell the episodes of a barrier apart: new threads for each function. */
static int now;
static void* run_thread(void* me) {
  (is_clean ? kClean : kRacy)[now]((int)(intptr_t)me, &area[now]);
  return NULL;
}
static void run_all(void) {
  for (now = 0; now < COUNT; ++now) {
    if (chosen >= 0 && now != chosen) continue;
    make_objects();
    pthread_t thread[THREADS];
    for (intptr_t i = 0; i < THREADS; ++i) pthread_create(&thread[i], NULL, run_thread, (void*)i);
    for (int i = 0; i < THREADS; ++i) pthread_join(thread[i], NULL);
  }
}
#elif defined(RACES_POSIX)
static void* run_thread(void* me) {
  run_cases((int)(intptr_t)me);
  return NULL;
}
static void run_all(void) {
  pthread_t thread[THREADS];
  for (intptr_t i = 1; i < THREADS; ++i) pthread_create(&thread[i], NULL, run_thread, (void*)i);
  run_cases(0);
  for (int i = 1; i < THREADS; ++i) pthread_join(thread[i], NULL);
}
#else
static void run_processor(void* unused) {
  (void)unused;
  run_cases((int)mg_processor());
}
#endif

int main(int argc, char** argv) {
  if (argc < 2 || (strcmp(argv[1], "racy") != 0 && strcmp(argv[1], "clean") != 0)) {
    fprintf(stderr, "race_cases racy|clean [NUMBER [LATE]]\n");
    return 2;
  }
  is_clean = argv[1][0] == 'c';
  if (argc > 2) chosen = atoi(argv[2]) - 1;
  if (argc > 3) late = atoi(argv[3]);
  area = allocate(COUNT * sizeof *area);
  memset(area, 0, COUNT * sizeof *area);
  make_objects();
#ifdef RACES_POSIX
  run_all();
#else
  if (mg_processors() != THREADS) {
    fprintf(stderr, "race_cases: it needs %d processors, and the run has %u\n", THREADS, mg_processors());
    return 2;
  }
  if (mg_spawn_all(run_processor, NULL) != 0) {
    fprintf(stderr, "race_cases: %s\n", mg_error());
    return 1;
  }
#endif
  puts("done");
  return 0;
}
