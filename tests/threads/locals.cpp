// Local variables whose addresses others know, in every kind of function: they must be where they are until the function
// ends, and the second stack must be as high after a function as before, however control left it. Compiled by
// mg++ -fmultigrain-threads.
#include <pthread.h>

#include <csetjmp>
#include <cstring>
#include <stdexcept>

#include "program.h"

extern "C" thread_local void* __safestack_unsafe_stack_ptr __attribute__((tls_model("initial-exec")));

namespace {

// The compiler knows nothing of what this does.
void* volatile kept;
[[gnu::noinline]] void let_out(void* address) {
  kept = address;
  __asm__ volatile("" ::: "memory");
}

const void* top() {
  return __safestack_unsafe_stack_ptr;
}

[[gnu::noinline]] int several(int argument) {
  int numbers[5] = {1, 2, 3, 4, 5};
  alignas(256) char wide[3] = {'a', 'b', 'c'};
  double other = argument;
  let_out(numbers);
  let_out(wide);
  REQUIRE(reinterpret_cast<uintptr_t>(wide) % 256 == 0);
  let_out(&other);
  *static_cast<double*>(kept) += 1;
  REQUIRE(kept >= top() && other == argument + 1);
  return numbers[argument % 5] + wide[argument % 3];
}

struct Large {
  long values[30];
};
[[gnu::noinline]] long by_value(Large large) {
  let_out(&large);
  static_cast<Large*>(kept)->values[3] = 7;
  return large.values[3] + large.values[29];
}

[[gnu::noinline]] long of_length(int length) {
  long sum = 0;
  for (int i = 1; i <= length; ++i) {
    long* before = nullptr;
    long array[i];
    let_out(array);
    before = static_cast<long*>(kept);
    std::memset(array, 0, sizeof array);
    before[i - 1] = i;
    sum += array[i - 1];
  }
  return sum;
}

[[gnu::noinline]] void fails(int depth) {
  int here[20];
  let_out(here);
  if (depth == 0) throw std::runtime_error("as expected");
  fails(depth - 1);
}

// It has nothing on the second stack itself, and must set it right nevertheless.
[[gnu::noinline]] bool catches() {
  try {
    fails(3);
  } catch (const std::runtime_error&) {
    return true;
  }
  return false;
}

[[gnu::noinline]] int catches_again(int times) {
  int caught = 0;
  let_out(&caught);
  for (int i = 0; i < times; ++i) {
    try {
      long array[i + 1];
      let_out(array);
      fails(2);
    } catch (const std::runtime_error&) {
      int* volatile at = &caught;
      ++*at;
    }
  }
  return caught;
}

std::jmp_buf where;
[[gnu::noinline]] void jumps(int depth) {
  char here[300];
  let_out(here);
  if (depth == 0) std::longjmp(where, 1);
  jumps(depth - 1);
}
[[gnu::noinline]] int is_jumped_to() {
  volatile int here = 1;
  let_out(const_cast<int*>(&here));
  if (setjmp(where) == 0) jumps(5);
  here = here + 1;
  return here;
}

[[gnu::noinline]] int recursive(int depth) {
  int here = depth;
  let_out(&here);
  if (depth == 0) return 0;
  const int below = recursive(depth - 1);
  return below + here;
}

void use_all() {
  const void* const before = top();
  REQUIRE(several(7) == 3 + 'b');
  Large large{};
  large.values[29] = 4;
  REQUIRE(by_value(large) == 11 && large.values[3] == 0);
  REQUIRE(of_length(40) == 820);
  for (int i = 0; i < 2000; ++i) REQUIRE(catches());
  REQUIRE(catches_again(2000) == 2000);
  for (int i = 0; i < 2000; ++i) REQUIRE(is_jumped_to() == 2);
  REQUIRE(recursive(100) == 5050);
  REQUIRE(top() == before);
}

void* in_thread(void*) {
  use_all();
  return nullptr;
}

}  // namespace

int main() {
  use_all();
  for (int round = 0; round < 3; ++round) {
    pthread_t thread;
    REQUIRE(pthread_create(&thread, nullptr, &in_thread, nullptr) == 0 && pthread_join(thread, nullptr) == 0);
  }
}
