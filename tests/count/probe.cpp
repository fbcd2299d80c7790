// Prints why this program is not counted; nothing if it is. What says that it is comes from the build: a note, a symbol.
#include <cstdio>

#include "count/note.h"
#include "runtime/counted_program.h"

#ifdef MULTIGRAIN_HAS_NOTE
asm(MG_COUNT_NOTE);
#endif

int main() {
  const std::string why = multigrain::counting::why_not_counted();
  std::puts(why.c_str());
  return multigrain::counting::program_is_counted() == why.empty() ? 0 : 3;
}
