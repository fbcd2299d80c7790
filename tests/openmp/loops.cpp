// Loops of every schedule: each iteration once, in each direction, for variables of every type and next to their limits;
// ordered loops, loops whose iterations wait for each other, many loops one after the other without a barrier.
#include <climits>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "program.h"

namespace {

constexpr int kMost = 400;
long executed[kMost];

void expect_once(long count) {
  for (long i = 0; i < count; ++i) REQUIRE(executed[i] == 1);
  for (long i = count; i < kMost; ++i) REQUIRE(executed[i] == 0);
  memset(executed, 0, sizeof executed);
}

// The loop's variable goes from `first` in steps of `Step`, `count` times.
template <typename T, long Step>
void loop_of(T first, long count) {
  const T last = static_cast<T>(first + static_cast<T>(count - 1) * static_cast<T>(Step));
  const auto note = [&](T i) {
    const long number = Step > 0 ? static_cast<long>(static_cast<uint64_t>(i) - static_cast<uint64_t>(first)) / Step
                                 : static_cast<long>(static_cast<uint64_t>(first) - static_cast<uint64_t>(i)) / -Step;
    ++executed[number];
  };
#define LOOP(...)                                                     \
  do {                                                                \
    _Pragma("omp parallel") {                                         \
      if constexpr (Step > 0) {                                       \
        __VA_ARGS__ for (T i = first; i <= last; i += Step) note(i);  \
      } else {                                                        \
        __VA_ARGS__ for (T i = first; i >= last; i -= -Step) note(i); \
      }                                                               \
    }                                                                 \
    expect_once(count);                                               \
  } while (false)
  LOOP(_Pragma("omp for schedule(static)"));
  LOOP(_Pragma("omp for schedule(static, 3)"));
  LOOP(_Pragma("omp for schedule(dynamic)"));
  LOOP(_Pragma("omp for schedule(monotonic: dynamic, 7)"));
  LOOP(_Pragma("omp for schedule(guided, 2)"));
  LOOP(_Pragma("omp for schedule(runtime)"));
#undef LOOP
}

template <typename T>
void loops_of() {
  for (const long count : {1L, 2L, 5L, 64L, 333L}) {
    loop_of<T, 1>(0, count);
    loop_of<T, 7>(5, count);
    loop_of<T, 1>(static_cast<T>(std::numeric_limits<T>::max() - static_cast<T>(count)), count);
    loop_of<T, -3>(static_cast<T>(std::numeric_limits<T>::min() + static_cast<T>(3 * count)), count);
  }
}

void loops_of_every_runtime_schedule() {
  for (const omp_sched_t kind : {omp_sched_static, omp_sched_dynamic, omp_sched_guided, omp_sched_auto})
    for (const int chunk : {0, 1, 5, 1000}) {
      omp_set_schedule(kind, chunk);
#pragma omp parallel for schedule(runtime)
      for (int i = 0; i < kMost; ++i) ++executed[i];
      expect_once(kMost);
    }
}

void many_loops_without_barriers() {
  static long counts[50][20];
#pragma omp parallel
  for (int loop = 0; loop < 50; ++loop) {
#pragma omp for schedule(dynamic) nowait
    for (int i = 0; i < 20; ++i) ++counts[loop][i];
  }
  for (const auto& loop : counts)
    for (const long count : loop) REQUIRE(count == 1);
}

void ordered_loops() {
  static int order[300];
  for (int round = 0; round < 3; ++round) {
    int at = 0, last = 0;
#pragma omp parallel
    {
#pragma omp for ordered schedule(dynamic, 4) lastprivate(last)
      for (int i = 0; i < 100; ++i) {
        last = i;
        if (i % 3 == 0) continue;
#pragma omp ordered
        order[at++] = i;
      }
#pragma omp for ordered schedule(static) nowait
      for (int i = 100; i < 130; ++i) {
#pragma omp ordered
        order[at++] = i;
      }
#pragma omp for ordered schedule(guided)
      for (int i = 130; i < 150; ++i) {
#pragma omp ordered
        order[at++] = i;
      }
    }
    REQUIRE(at == 116 && last == 99);
    for (int i = 1; i < at; ++i) REQUIRE(order[i - 1] < order[i]);
  }
}

void iterations_that_wait_for_each_other() {
  constexpr int kSide = 24;
  static long table[kSide][kSide];
  for (int i = 0; i < kSide; ++i) table[i][0] = table[0][i] = 1;
#pragma omp parallel for ordered(2) schedule(dynamic)
  for (int i = 1; i < kSide; ++i)
    for (int j = 1; j < kSide; ++j) {
#pragma omp ordered depend(sink : i - 1, j) depend(sink : i, j - 1)
      table[i][j] = (table[i - 1][j] + table[i][j - 1]) % 1000003;
#pragma omp ordered depend(source)
    }
  static long expected[kSide][kSide];
  for (int i = 0; i < kSide; ++i)
    for (int j = 0; j < kSide; ++j)
      expected[i][j] = i == 0 || j == 0 ? 1 : (expected[i - 1][j] + expected[i][j - 1]) % 1000003;
  REQUIRE(memcmp(table, expected, sizeof table) == 0);
}

void collapsed_and_last() {
  static int seen[10][11];
  int last = 0;
#pragma omp parallel for collapse(2) schedule(dynamic, 3) lastprivate(last)
  for (int i = 0; i < 10; ++i)
    for (int j = 10; j >= 0; --j) {
      ++seen[i][j];
      last = 100 * i + j;
    }
  for (const auto& row : seen)
    for (const int count : row) REQUIRE(count == 1);
  REQUIRE(last == 900);
}

}  // namespace

static void run(int, char**) {
  loops_of<int32_t>();
  loops_of<uint32_t>();
  loops_of<int64_t>();
  loops_of<uint64_t>();
  loops_of_every_runtime_schedule();
  many_loops_without_barriers();
  ordered_loops();
  iterations_that_wait_for_each_other();
  collapsed_and_last();
}
