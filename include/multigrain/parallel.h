/** \file
 * Multigrain: loops for C whose iterations are divided among all processors. C++ has mg::parallel_for and more
 * (multigrain/parallel.hpp), and what C programs write as OpenMP runs as it is (mgcc -fopenmp), tasks too.
 *
 *     static void add(size_t begin, size_t end, void* argument) {
 *       struct vectors* const v = argument;
 *       for (size_t i = begin; i < end; ++i) v->sum[i] = v->a[i] + v->b[i];
 *     }
 *     ...
 *     mg_parallel_for(0, n, 0, add, v);
 *
 * Called on processor 0 while no other processor runs, as mg_spawn_all(), of which these are made: what was written before is
 * seen in the loop, and what the loop wrote is seen afterwards. `argument` is what mg_spawn_all() takes: it points to shared
 * memory, to globals or to the heap. Not for signal handlers. */
#ifndef MULTIGRAIN_PARALLEL_H
#define MULTIGRAIN_PARALLEL_H

#include <errno.h>
#include <multigrain/multigrain.h>
#include <stddef.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Indices from begin up to, and without, end. */
typedef struct mg_range {
  size_t begin;
  size_t end;
} mg_range;

/** The part of [begin, end) that is that of number `part` of `parts` (less than it): contiguous, in order, and of sizes that
 * differ by one at most. Any thread may call it. */
static inline mg_range mg_part_of(size_t begin, size_t end, unsigned part, unsigned parts) {
  const size_t each = (end - begin) / parts;
  const size_t more = (end - begin) % parts; /* so many parts have one more */
  const size_t first = begin + part * each + (part < more ? part : more);
  const mg_range range = {first, first + each + (part < more ? 1 : 0)};
  return range;
}

/** Works on the iterations from begin up to, and without, end. */
typedef void (*mg_loop_function)(size_t begin, size_t end, void* argument);
/** The same, and adds what it finds to the caller's `*result`. */
typedef void (*mg_reduce_function)(size_t begin, size_t end, void* argument, void* result);
/** Adds `*from` to `*into`. */
typedef void (*mg_combine_function)(void* into, const void* from);

/** What processors are told of a loop; the functions below make it. */
struct mg_loop_ {
  mg_range range;
  size_t chunk;
  mg_loop_function function;
  mg_reduce_function reduce;
  void* argument;
  mg_lock_t lock; /* of `next` */
  size_t next;
  size_t bytes; /* of a result */
  char* results;
};

static inline void mg_run_fixed_(void* argument) {
  struct mg_loop_* const loop = (struct mg_loop_*)argument;
  const mg_range mine = mg_part_of(loop->range.begin, loop->range.end, mg_processor(), mg_processors());
  if (mine.begin == mine.end) return;
  if (loop->reduce != NULL)
    loop->reduce(mine.begin, mine.end, loop->argument, loop->results + mg_processor() * loop->bytes);
  else
    loop->function(mine.begin, mine.end, loop->argument);
}

static inline void mg_run_chunks_(void* argument) {
  struct mg_loop_* const loop = (struct mg_loop_*)argument;
  for (;;) {
    size_t first, count;
    mg_lock(loop->lock);
    first = loop->next;
    count = loop->range.end - first < loop->chunk ? loop->range.end - first : loop->chunk;
    loop->next = first + count;
    mg_unlock(loop->lock);
    if (count == 0) return;
    loop->function(first, first + count, loop->argument);
  }
}

/** Calls function(first, last, argument) on all processors for parts that together are [begin, end), and returns when all have
 * ended. With `chunk` 0 each processor has one part, the same in each loop over the same range, so that pages stay where they
 * are. Otherwise processors take `chunk` iterations each time that they have nothing to do: for iterations that take very
 * different times. Returns 0, or as mg_spawn_all() does, or -ENOMEM; -EINVAL: end lies before begin. */
static inline int mg_parallel_for(size_t begin, size_t end, size_t chunk, mg_loop_function function, void* argument) {
  struct mg_loop_* loop;
  int status;
  if (end < begin) return -EINVAL;
  loop = (struct mg_loop_*)mg_alloc(sizeof *loop, NULL);
  if (loop == NULL) return -ENOMEM;
  memset(loop, 0, sizeof *loop);
  loop->range.begin = loop->next = begin;
  loop->range.end = end;
  loop->chunk = chunk;
  loop->function = function;
  loop->argument = argument;
  if (chunk != 0) loop->lock = mg_lock_create();
  status = mg_spawn_all(chunk != 0 ? mg_run_chunks_ : mg_run_fixed_, loop);
  if (chunk != 0) mg_lock_destroy(loop->lock);
  mg_free(loop);
  return status;
}

/** Calls function(first, last, argument, result) on all processors, once on each that has iterations, where `*result` is a copy
 * of what the caller's is at first, `bytes` of it: 0 for a sum. Then combine(result, ...) adds those to the caller's, in the order
 * of the processors. So the result is the same in each run with as many processors. Returns as mg_parallel_for(); if that is not
 * 0, `*result` is what it was. */
static inline int mg_parallel_reduce(size_t begin, size_t end, mg_reduce_function function, void* argument,
                                     mg_combine_function combine, void* result, size_t bytes) {
  /* Each result is at an address that is good for any type. */
  const size_t each = (bytes + 63) / 64 * 64;
  const unsigned processors = mg_processors();
  struct mg_loop_* loop;
  unsigned p;
  int status;
  if (end < begin) return -EINVAL;
  loop = (struct mg_loop_*)mg_alloc(sizeof *loop, NULL);
  if (loop == NULL) return -ENOMEM;
  memset(loop, 0, sizeof *loop);
  loop->results = (char*)mg_alloc(processors * each, NULL);
  if (loop->results == NULL) {
    mg_free(loop);
    return -ENOMEM;
  }
  loop->range.begin = begin;
  loop->range.end = end;
  loop->reduce = function;
  loop->argument = argument;
  loop->bytes = each;
  for (p = 0; p < processors; ++p) memcpy(loop->results + p * each, result, bytes);
  status = mg_spawn_all(mg_run_fixed_, loop);
  for (p = 0; status == 0 && p < processors; ++p) combine(result, loop->results + p * each);
  mg_free(loop->results);
  mg_free(loop);
  return status;
}

#ifdef __cplusplus
}
#endif
#endif
