// Processors are started and joined many times, one by one and all at once, with the errors that mg_spawn promises.
#include <cerrno>

#include "program.h"

namespace {

constexpr unsigned kRounds = 20;

uint64_t* cells;
int* errors;
mg_flag_t go;

void add(void* argument) {
  *static_cast<uint64_t*>(argument) += mg_processor();
}

void wait_for_go(void*) {
  mg_flag_wait(go, 1);
}

void add_to_own(void*) {
  cells[mg_processor()] += 1000;
}

// Processors are started from node 0 only.
void spawn_elsewhere(void*) {
  *errors = mg_spawn(0, add, nullptr);
}

}  // namespace

int main() {
  const unsigned all = mg_processors();
  cells = program::shared<uint64_t>(all);
  errors = program::shared<int>(1);
  go = mg_flag_create();

  REQUIRE(mg_spawn(all, add, cells) == -EINVAL);
  REQUIRE(mg_spawn(0, add, cells) == -EBUSY);
  REQUIRE(mg_join(all) == -EINVAL);
  for (unsigned round = 0; round < kRounds; ++round) {
    for (unsigned p = 1; p < all; ++p) REQUIRE(mg_spawn(p, add, &cells[p]) == 0);
    if (round % 2 == 0) {
      REQUIRE(mg_join_all() == 0);
    } else {
      for (unsigned p = all - 1; p > 0; --p) REQUIRE(mg_join(p) == 0);
    }
    for (unsigned p = 1; p < all; ++p) REQUIRE(cells[p] == uint64_t{round + 1} * p);
  }
  for (unsigned p = 1; p < all; ++p) REQUIRE(mg_join(p) == 0);  // idle: at once

  if (all > 1) {
    REQUIRE(mg_spawn(all - 1, wait_for_go, nullptr) == 0);
    REQUIRE(mg_spawn(all - 1, wait_for_go, nullptr) == -EBUSY);
    mg_flag_set(go, 1);
    REQUIRE(mg_join(all - 1) == 0);
  }
  if (mg_nodes() > 1) {
    REQUIRE(mg_spawn(all - 1, spawn_elsewhere, nullptr) == 0);
    REQUIRE(mg_join(all - 1) == 0);
    REQUIRE(*errors == -EPERM);
  }
  program::run_on_all(add_to_own);
  program::run_on_all(add_to_own);
  for (unsigned p = 0; p < all; ++p) REQUIRE(cells[p] == uint64_t{kRounds} * p + 2000);
  return 0;
}
