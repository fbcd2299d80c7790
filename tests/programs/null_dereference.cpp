// A null dereference is the program's own SIGSEGV, on any node: with an argument, on the last processor.
#include "program.h"

namespace {
int* volatile nothing = nullptr;
void slave(void*) {
  *nothing = 1;
}
}  // namespace

int main(int argc, char**) {
  if (argc == 1) {
    slave(nullptr);
  } else {
    REQUIRE(mg_spawn(mg_processors() - 1, slave, nullptr) == 0);
    REQUIRE(mg_join(mg_processors() - 1) == 0);
  }
  return 0;
}
