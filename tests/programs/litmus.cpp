// Litmus tests of the memory model across nodes.
//
// Every test is run in two forms. In the synchronised one each access is in a critical section of the variable's lock
// (or ordered by flags): such programs are free of data races, and release consistency promises them sequential
// consistency (mgs.txt, section 3.2), so the outcome that sequential consistency forbids must never appear. In the
// unsynchronised form processors race; release consistency then allows every outcome built from values that were
// written, and the program only says what it saw. A value that nobody wrote is an error in both.
//
// Many instances of the test's variables run through between two barriers, with random delays, in three placements:
// both variables in one page, in two pages at home on different nodes, and neighbours in one word.
#include <CLI/CLI.hpp>
#include <cstring>
#include <string>

#include "program.h"

namespace {

constexpr unsigned kInstances = 32;
constexpr unsigned kRoles = 4;
constexpr unsigned kRegisters = 2;

// Variables are as wide as the placement lets them be.
using Variable = int16_t;

enum class Placement { kOnePage, kTwoPages, kOneWord };
constexpr Placement kPlacements[] = {Placement::kOnePage, Placement::kTwoPages, Placement::kOneWord};
constexpr const char* kPlacementNames[] = {"one page", "two pages", "one word"};

struct Context {
  unsigned role;
  unsigned instance;
  bool synchronised;
};

// One instance's results, as each role saw them.
struct Outcome {
  int r[kRoles][kRegisters];
  int x;  // the final values
  int y;
};

struct Test {
  const char* name;
  unsigned roles;
  void (*body)(const Context&);
  bool (*is_forbidden)(const Outcome&);
  const char* forbidden;
  int greatest;  // values are 0 .. greatest
};

// Written by main() before the processors start.
unsigned iterations;
Variable* variables[2];  // x, y
size_t distance[2];      // from instance to instance, in Variables
mg_lock_t locks[2];
mg_flag_t flags[2];
mg_barrier_t barrier;
char* results;  // each role's in a page of its own
unsigned current_test;
unsigned current_placement;
bool synchronised_form;
uint64_t total;  // instances; these are processor 0's, on main()'s node
uint64_t seen_forbidden;

Variable* variable(unsigned which, unsigned instance) {
  return variables[which] + instance * distance[which];
}

int load(const Context& context, unsigned which) {
  if (context.synchronised) mg_lock(locks[which]);
  const int value = __atomic_load_n(variable(which, context.instance), __ATOMIC_RELAXED);
  if (context.synchronised) mg_unlock(locks[which]);
  return value;
}

void store(const Context& context, unsigned which, int value) {
  if (context.synchronised) mg_lock(locks[which]);
  __atomic_store_n(variable(which, context.instance), static_cast<Variable>(value), __ATOMIC_RELAXED);
  if (context.synchronised) mg_unlock(locks[which]);
}

// What a role read in an instance.
int* registers(unsigned role, unsigned instance) {
  return static_cast<int*>(static_cast<void*>(results + role * mg_page_size())) + instance * kRegisters;
}

int& result(const Context& context, unsigned index) {
  return registers(context.role, context.instance)[index];
}

constexpr unsigned kX = 0;
constexpr unsigned kY = 1;

void message_passing(const Context& c) {
  if (c.role == 0) {
    store(c, kX, 1);
    store(c, kY, 1);
  } else {
    result(c, 0) = load(c, kY);
    result(c, 1) = load(c, kX);
  }
}

// The same with a flag for y and another for the answer, so that the reader always comes second.
void message_passing_by_flag(const Context& c) {
  const Context racing = {c.role, c.instance, false};
  if (c.role == 0) {
    store(racing, kX, 1);
    if (c.synchronised) {
      mg_flag_set(flags[0], c.instance + 1);
      mg_flag_wait(flags[1], c.instance + 1);
    }
    store(racing, kY, 1);
  } else {
    if (c.synchronised) mg_flag_wait(flags[0], c.instance + 1);
    result(c, 0) = 1;
    result(c, 1) = load(racing, kX);
    if (c.synchronised) mg_flag_set(flags[1], c.instance + 1);
  }
}

void store_buffering(const Context& c) {
  store(c, c.role == 0 ? kX : kY, 1);
  result(c, 0) = load(c, c.role == 0 ? kY : kX);
}

void load_buffering(const Context& c) {
  result(c, 0) = load(c, c.role == 0 ? kX : kY);
  store(c, c.role == 0 ? kY : kX, 1);
}

void coherence_read_read(const Context& c) {
  if (c.role == 0) {
    store(c, kX, 1);
    store(c, kX, 2);
  } else {
    result(c, 0) = load(c, kX);
    result(c, 1) = load(c, kX);
  }
}

// The last of a processor's own stores to one place must stay, whatever is written beside it.
void coherence_write_write(const Context& c) {
  store(c, c.role, 1);
  store(c, c.role, 2);
}

void independent_reads(const Context& c) {
  switch (c.role) {
    case 0:
      store(c, kX, 1);
      break;
    case 1:
      store(c, kY, 1);
      break;
    case 2:
      result(c, 0) = load(c, kX);
      result(c, 1) = load(c, kY);
      break;
    default:
      result(c, 0) = load(c, kY);
      result(c, 1) = load(c, kX);
  }
}

void write_to_read(const Context& c) {
  switch (c.role) {
    case 0:
      store(c, kX, 1);
      break;
    case 1:
      result(c, 0) = load(c, kX);
      if (result(c, 0) == 1) store(c, kY, 1);
      break;
    default:
      result(c, 0) = load(c, kY);
      result(c, 1) = load(c, kX);
  }
}

const Test kTests[] = {
    {"message passing", 2, message_passing, [](const Outcome& o) { return o.r[1][0] == 1 && o.r[1][1] == 0; },
     "y=1 seen, then x=0", 1},
    {"message passing, flag", 2, message_passing_by_flag, [](const Outcome& o) { return o.r[1][1] == 0; },
     "flag seen, then x=0", 1},
    {"store buffering", 2, store_buffering, [](const Outcome& o) { return o.r[0][0] == 0 && o.r[1][0] == 0; },
     "both read 0", 1},
    {"load buffering", 2, load_buffering, [](const Outcome& o) { return o.r[0][0] == 1 && o.r[1][0] == 1; },
     "both read 1", 1},
    {"coherence, read-read", 2, coherence_read_read, [](const Outcome& o) { return o.r[1][1] < o.r[1][0]; },
     "x goes backwards", 2},
    {"coherence, write-write", 2, coherence_write_write, [](const Outcome& o) { return o.x != 2 || o.y != 2; },
     "x or y is not 2 at the end", 2},
    {"independent reads", 4, independent_reads,
     [](const Outcome& o) { return o.r[2][0] == 1 && o.r[2][1] == 0 && o.r[3][0] == 1 && o.r[3][1] == 0; },
     "readers disagree on the order", 1},
    {"write-to-read causality", 3, write_to_read, [](const Outcome& o) { return o.r[2][0] == 1 && o.r[2][1] == 0; },
     "y=1 seen, then x=0", 1},
};
// Each processor writes a variable of its own, which is no race: what is forbidden is so without locks as well.
constexpr unsigned kWriteWrite = 5;

uint64_t next_random(uint64_t& state) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return state >> 33;
}

void delay(uint64_t& random) {
  for (uint64_t n = next_random(random) % 4 == 0 ? next_random(random) % 400 : 0; n != 0; --n) __asm__ volatile("");
}

void reset() {
  for (unsigned i = 0; i < kInstances; ++i) {
    *variable(kX, i) = 0;
    *variable(kY, i) = 0;
  }
}

void evaluate(const Test& test) {
  for (unsigned i = 0; i < kInstances; ++i) {
    Outcome outcome{};
    for (unsigned role = 0; role < test.roles; ++role)
      std::memcpy(outcome.r[role], registers(role, i), sizeof(outcome.r[role]));
    outcome.x = *variable(kX, i);
    outcome.y = *variable(kY, i);
    for (const auto& values : outcome.r)
      for (const int value : values) REQUIRE(value >= 0 && value <= test.greatest);
    REQUIRE(outcome.x >= 0 && outcome.x <= test.greatest && outcome.y >= 0 && outcome.y <= test.greatest);
    ++total;
    if (test.is_forbidden(outcome)) ++seen_forbidden;
  }
}

// Roles are spread over the nodes as far as they go: role r on processor r P / roles.
void slave(void*) {
  const Test& test = kTests[current_test];
  const unsigned me = mg_processor();
  unsigned role = kRoles;
  for (unsigned r = 0; r < test.roles; ++r)
    if (r * mg_processors() / test.roles == me) role = r;
  uint64_t random = me * 7919 + current_test * 31 + current_placement;
  for (unsigned done = 0; done < iterations; done += kInstances) {
    if (me == 0) {
      reset();
      for (const mg_flag_t flag : flags) mg_flag_set(flag, 0);
    }
    mg_barrier(barrier);
    if (role < test.roles) {
      // Both in step and against each other.
      const bool backwards = !synchronised_form && next_random(random) % 4 == 0;
      std::memset(registers(role, 0), 0, kInstances * kRegisters * sizeof(int));
      for (unsigned i = 0; i < kInstances; ++i) {
        delay(random);
        test.body({role, backwards ? kInstances - 1 - i : i, synchronised_form});
      }
    }
    mg_barrier(barrier);
    if (me == 0) evaluate(test);
  }
}

void place(Placement placement, Variable* const pages[2]) {
  // One word: x and y are neighbours, and so are the instances. Otherwise they are a cache line apart.
  constexpr size_t kLine = 64 / sizeof(Variable);
  variables[0] = pages[0];
  distance[0] = distance[1] = placement == Placement::kOneWord ? 2 : 2 * kLine;
  variables[1] = placement == Placement::kOnePage    ? pages[0] + kLine
                 : placement == Placement::kTwoPages ? pages[1]
                                                     : pages[0] + 1;
  std::memset(pages[0], 0, mg_page_size());
  std::memset(pages[1], 0, mg_page_size());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Litmus tests of Multigrain's memory model", "litmus");
  iterations = 256;
  app.add_option("--iterations", iterations, "instances of each test (default 256)")
      ->check(CLI::Range(1u, 100'000'000u));
  CLI11_PARSE(app, argc, argv);

  const size_t page = mg_page_size();
  Variable* const pages[2] = {program::shared<Variable>(page / sizeof(Variable), MG_HOME_NODE, 0),
                              program::shared<Variable>(page / sizeof(Variable), MG_HOME_NODE, mg_nodes() - 1)};
  static_assert(kInstances * kRegisters * sizeof(int) <= 4096);
  results = program::shared<char>(kRoles * page, MG_HOME_BLOCKED);
  for (int i = 0; i < 2; ++i) {
    locks[i] = mg_lock_create();
    flags[i] = mg_flag_create();
  }
  barrier = mg_barrier_create(0);

  bool failed = false;
  std::printf("%-24s%-11s%-30s%24s%24s\n", "test", "placement", "outcome", "synchronised: forbidden",
              "racing: allowed");
  for (current_test = 0; current_test < std::size(kTests); ++current_test) {
    const Test& test = kTests[current_test];
    if (test.roles > mg_processors()) {
      std::printf("%-24sleft out: needs %u processors\n", test.name, test.roles);
      continue;
    }
    for (current_placement = 0; current_placement < std::size(kPlacements); ++current_placement) {
      place(kPlacements[current_placement], pages);
      std::string seen[2];
      for (const bool racing : {false, true}) {
        synchronised_form = !racing;
        total = seen_forbidden = 0;
        program::run_on_all(slave);
        seen[racing] = std::to_string(seen_forbidden) + " of " + std::to_string(total);
        if (seen_forbidden != 0 && (!racing || current_test == kWriteWrite)) failed = true;
      }
      std::printf("%-24s%-11s%-30s%24s%24s\n", test.name, kPlacementNames[current_placement], test.forbidden,
                  seen[0].c_str(), seen[1].c_str());
    }
  }
  if (failed) {
    std::fflush(stdout);
    std::fprintf(stderr, "litmus: an outcome was seen that release consistency forbids\n");
    return 1;
  }
  return 0;
}
