// This tests tasks: each is called once, sees what was written before it, and is seen by who waits for it; they are taken
// by every processor. The argument is how often all of it is done.
#include <multigrain/tasks.hpp>

#include "program.h"

namespace {

// A tree of tasks without groups: each leaf marks its place, which nobody else writes.
void mark(mg::tasks& on, uint32_t* place, uint32_t count) {
  for (; count > 1; count -= count / 2)
    on.spawn([place = place + (count - count / 2), half = count / 2](mg::tasks& t) { mark(t, place, half); });
  ++*place;
}

uint64_t fibonacci_of(uint32_t n) {
  return n < 2 ? n : fibonacci_of(n - 1) + fibonacci_of(n - 2);
}

// Forks and joins: results travel back through shared memory.
void fibonacci(mg::tasks& on, uint32_t n, uint64_t* result) {
  if (n < 6) {
    *result = fibonacci_of(n);
    return;
  }
  const auto parts = mg::make_shared_array<uint64_t>(2);
  mg::task_group group(on);
  group.spawn([n, at = &parts[0]](mg::tasks& t) { fibonacci(t, n - 1, at); });
  fibonacci(on, n - 2, &parts[1]);
  group.wait();
  *result = parts[0] + parts[1];
}

void sort(mg::tasks& on, uint32_t* first, uint32_t* last) {
  while (last - first > 64) {
    const uint32_t pivot = first[(last - first) / 2];
    uint32_t* const middle = std::partition(first, last, [pivot](uint32_t n) { return n < pivot; });
    uint32_t* const above = std::partition(middle, last, [pivot](uint32_t n) { return n == pivot; });
    on.spawn([above, last](mg::tasks& t) { sort(t, above, last); });
    last = middle;
  }
  std::sort(first, last);
}

void sorts(unsigned round) {
  constexpr size_t kCount = 20000;
  const auto numbers = mg::make_shared_array<uint32_t>(kCount);
  uint32_t state = round + 1;
  uint64_t sum = 0;
  for (uint32_t& number : numbers) sum += number = (state = state * 1664525 + 1013904223) >> 18;
  mg::run_tasks(
      [numbers = numbers.span()](mg::tasks& on) { sort(on, numbers.data(), numbers.data() + numbers.size()); });
  for (size_t i = 0; i < kCount; ++i) {
    REQUIRE(i == 0 || numbers[i - 1] <= numbers[i]);
    sum -= numbers[i];
  }
  REQUIRE(sum == 0);
}

// Each of these waits for all others, so each processor has to take one.
void every_processor_takes_some() {
  const auto barrier = mg::make_unique<mg::barrier>();
  const auto came = mg::make_shared_array<uint32_t>(mg::processors());
  mg::run_tasks([barrier = barrier.get(), came = came.span()](mg::tasks& on) {
    for (unsigned p = 1; p < mg::processors(); ++p)
      on.spawn([barrier, came] {
        ++came[mg::processor()];
        barrier->arrive_and_wait();
      });
    barrier->arrive_and_wait();
  });
  for (unsigned p = 1; p < mg::processors(); ++p) REQUIRE(came[p] == 1);
}

// More tasks than a queue has room for; with pauses, so that those who take them fall asleep in between.
void many_from_one(unsigned round) {
  constexpr uint32_t kCount = 1500;
  const auto places = mg::make_shared_array<uint32_t>(kCount);
  mg::run_tasks([places = places.span(), round](mg::tasks& on) {
    mg::task_group group(on);
    for (uint32_t i = 0; i < kCount; ++i) {
      group.spawn([place = &places[i], i] { *place += i; });
      if ((i + round) % 500 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    group.wait();
    for (uint32_t i = 0; i < kCount; ++i) REQUIRE(places[i] == i);
    group.spawn([places] { places[0] = 7; });  // a group may be used again
  });
  REQUIRE(places[0] == 7);
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned rounds = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 2;
  for (unsigned i = 0; i < rounds; ++i) {
    mg::run_tasks([](mg::tasks&) {});
    every_processor_takes_some();
    constexpr uint32_t kLeaves = 700;
    const auto marks = mg::make_shared_array<uint32_t>(kLeaves);
    mg::run_tasks([marks = marks.data()](mg::tasks& on) { mark(on, marks, kLeaves); });
    for (const uint32_t count : marks) REQUIRE(count == 1);
    const auto result = mg::make_shared_array<uint64_t>(1);
    mg::run_tasks([at = result.data()](mg::tasks& on) { fibonacci(on, 14, at); });
    REQUIRE(result[0] == 377);
    sorts(i);
    many_from_one(i);
  }
  if (mg::nodes() > 1) {
    int code = 0;
    int* const at = static_cast<int*>(mg_alloc(sizeof(int), nullptr));
    mg::run_tasks([at](mg::tasks& on) {
      int local = 0;
      try {
        on.spawn([&local] { ++local; });
      } catch (const std::system_error& error) {
        *at = error.code().value();
      }
    });
    code = *at;
    REQUIRE(code == EINVAL);
    mg_free(at);
  }
  return 0;
}
