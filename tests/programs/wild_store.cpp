// A store into a part of the shared region that is not allocated is a SIGSEGV too, not a new page.
#include "program.h"

int main() {
  char* const block = program::shared<char>(100);
  block[0] = 1;
  char* volatile wild = block + (size_t{1} << 40);
  REQUIRE(mg_is_shared(wild));
  *wild = 1;
  return 0;
}
