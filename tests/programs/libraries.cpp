// The variables of the program's own shared libraries are copied with those of the executable.
#include "own_library.h"
#include "program.h"

namespace {

int* seen;

void look(void*) {
  seen[mg_processor()] = library_counter + library_setting() * 100 + static_cast<int>(library_names.size()) * 10000;
  REQUIRE(library_names.at(1) == "a name that is long enough to be on the heap");
}

}  // namespace

int main() {
  int* const numbers = program::shared<int>(1000);
  for (int i = 0; i < 1000; ++i) numbers[i] = i;
  for (int round = 0; round < 3; ++round) REQUIRE(library_sum(numbers, 1000) == 999000);

  seen = program::shared<int>(mg_processors());
  library_counter = 7;
  library_setting() = 8;
  library_names = {"short", "a name that is long enough to be on the heap"};
  program::run_on_all(look);
  for (unsigned p = 0; p < mg_processors(); ++p) REQUIRE(seen[p] == 20807);
  return 0;
}
