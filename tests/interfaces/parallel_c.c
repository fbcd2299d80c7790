/* The loops for C (multigrain/parallel.h): the program is its own verdict. */
#include <multigrain/parallel.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kMost = 5000 };

static void check(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "parallel_c: %s\n", what);
  exit(1);
}

struct numbers {
  uint32_t visits[kMost];
  uint32_t by[kMost]; /* by which processor */
};

static void visit(size_t begin, size_t end, void* argument) {
  struct numbers* const numbers = argument;
  for (size_t i = begin; i < end; ++i) {
    ++numbers->visits[i];
    numbers->by[i] = mg_processor();
  }
}

struct total {
  uint64_t sum;
  uint64_t count;
};
static void add(size_t begin, size_t end, void* argument, void* result) {
  const struct numbers* const numbers = argument;
  struct total* const total = result;
  for (size_t i = begin; i < end; ++i) total->sum += i * numbers->visits[i];
  total->count += end - begin;
}
static void combine(void* into, const void* from) {
  struct total* const total = into;
  total->sum += ((const struct total*)from)->sum;
  total->count += ((const struct total*)from)->count;
}

static void each_is_visited_once(struct numbers* numbers, size_t begin, size_t end, size_t chunk) {
  for (size_t i = 0; i < kMost; ++i) numbers->visits[i] = 0;
  check(mg_parallel_for(begin, end, chunk, visit, numbers) == 0, "mg_parallel_for() has failed");
  for (size_t i = 0; i < kMost; ++i)
    check(numbers->visits[i] == (i >= begin && i < end), "an iteration was not made once");
  if (chunk != 0) return;
  for (unsigned p = 0; p < mg_processors(); ++p) {
    const mg_range part = mg_part_of(begin, end, p, mg_processors());
    for (size_t i = part.begin; i < part.end; ++i) check(numbers->by[i] == p, "a part is another processor's");
  }
}

int main(void) {
  struct numbers* const numbers = mg_alloc(sizeof *numbers, NULL);
  each_is_visited_once(numbers, 0, kMost, 0);
  each_is_visited_once(numbers, 3, 5, 0); /* fewer than processors, if there are more than two */
  each_is_visited_once(numbers, 7, 7, 0);
  each_is_visited_once(numbers, 10, kMost - 1, 7);
  each_is_visited_once(numbers, 0, 3, 100);
  each_is_visited_once(numbers, 9, 9, 4);
  for (size_t i = 0; i < kMost; ++i) numbers->visits[i] = 1;
  struct total total = {0, 0};
  check(mg_parallel_reduce(5, kMost, add, numbers, combine, &total, sizeof total) == 0,
        "mg_parallel_reduce() has failed");
  check(total.count == kMost - 5, "the count");
  check(total.sum == (uint64_t)kMost * (kMost - 1) / 2 - 10, "the sum");
  check(mg_parallel_for(2, 1, 0, visit, numbers) == -EINVAL, "a range that ends before it begins is accepted");
  total.sum = 17;
  check(mg_parallel_reduce(2, 1, add, numbers, combine, &total, sizeof total) == -EINVAL && total.sum == 17,
        "a range that ends before it begins is reduced");
  check(mg_parallel_reduce(1, 1, add, numbers, combine, &total, 0) == 0 && total.sum == 17, "an empty range is not");
  mg_free(numbers);
  printf("done\n");
  return 0;
}
