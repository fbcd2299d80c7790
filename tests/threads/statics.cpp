// Static variables of functions: each is initialised once, by one thread of all nodes, and the others see all of it. An
// initialiser that throws is tried again by the next thread.
#include <atomic>
#include <ctime>
#include <stdexcept>

#include "program.h"

namespace {

std::atomic<unsigned> made[8], thrown;
mg_barrier_t barrier;

// What an initialiser writes elsewhere, too.
unsigned beside[8][3000];

struct Object {
  explicit Object(unsigned which) : number(which) {
    made[which].fetch_add(1);
    const timespec moment{.tv_sec = 0, .tv_nsec = 2'000'000};
    nanosleep(&moment, nullptr);
    for (unsigned& one : beside[which]) one = which + 1;
    for (unsigned& one : inside) one = which + 2;
  }
  unsigned number;
  unsigned inside[3000];
};

template <unsigned kWhich>
Object& object() {
  static Object one(kWhich);
  return one;
}

template <unsigned kWhich>
void use() {
  mg_barrier(barrier);
  for (unsigned round = 0; round < 3; ++round) {
    Object& one = object<kWhich>();
    REQUIRE(one.number == kWhich && made[kWhich].load() == 1);
    for (const unsigned& each : one.inside) REQUIRE(each == kWhich + 2);
    for (const unsigned& each : beside[kWhich]) REQUIRE(each == kWhich + 1);
  }
}

unsigned fails_at_first() {
  if (thrown.load() < 2) {
    thrown.fetch_add(1);
    throw std::runtime_error("not yet");
  }
  return 9;
}

unsigned after_failures() {
  static const unsigned value = fails_at_first();
  return value;
}

void use_what_throws() {
  mg_barrier(barrier);
  while (true) {
    try {
      REQUIRE(after_failures() == 9);
      break;
    } catch (const std::runtime_error&) {
    }
  }
  mg_barrier(barrier);
  REQUIRE(thrown.load() == 2);
}

// The variable of one thread's own.
unsigned of_thread() {
  thread_local const unsigned mine = mg_processor() + 1;
  return mine;
}

void work(void*) {
  use<0>();
  use<1>();
  use<2>();
  use<3>();
  use_what_throws();
  REQUIRE(of_thread() == mg_processor() + 1);
  REQUIRE(object<7>().number == 7);
}

}  // namespace

int main() {
  barrier = mg_barrier_create(0);
  REQUIRE(object<7>().number == 7);  // before the globals are shared
  REQUIRE(mg_share_globals() == 0);
  program::run_on_all(&work);
  REQUIRE(made[7].load() == 1);
}
