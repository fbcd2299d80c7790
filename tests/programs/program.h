// The test programs share this. They are ordinary Multigrain programs: their exit status is the verdict.
#pragma once

#include <multigrain/multigrain.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

// Ends the run when the condition does not hold, on any node. It does not call exit(), because handlers and destructors
// of static objects belong to node 0.
#define REQUIRE(condition)                                                                                       \
  do {                                                                                                           \
    if (!(condition)) {                                                                                          \
      std::fprintf(stderr, "%s:%d: processor %u: not so: %s\n", __FILE__, __LINE__, mg_processor(), #condition); \
      std::fflush(stderr);                                                                                       \
      std::_Exit(1);                                                                                             \
    }                                                                                                            \
  } while (false)

namespace program {

template <typename T>
T* shared(size_t count, mg_home home = MG_HOME_DEFAULT, unsigned node = 0) {
  mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
  options.home = home;
  options.node = node;
  void* const block = mg_alloc(count * sizeof(T), &options);
  REQUIRE(block != nullptr);
  return static_cast<T*>(block);
}

inline void run_on_all(mg_function slave) {
  REQUIRE(mg_spawn_all(slave, nullptr) == 0);
}

inline bool first_of_node() {
  return mg_processor() % mg_processors_per_node() == 0;
}

// Returns a different byte for each place and round, which is never 0.
inline unsigned char pattern(size_t place, unsigned round) {
  return static_cast<unsigned char>(1 + (place * 31 + place / 251 + round * 97) % 255);
}

}  // namespace program
