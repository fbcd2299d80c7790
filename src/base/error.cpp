#include "base/error.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <system_error>

#include "base/stack_text.h"

namespace multigrain {
namespace {

unsigned g_node = 0;

// Returns a line with the beginning that all lines of this node have.
StackText start_line() {
  StackText line;
  line.text("multigrain: node ").number(g_node).text(": ");
  return line;
}

void print_line(const char* what, uint64_t a, uint64_t b, uint64_t c) {
  StackText line = start_line();
  line.text(what);
  for (const uint64_t value : {a, b, c}) {
    if (value == kNoNumber) break;
    line.text(" ").number(value);
  }
  line.write_out();
}

}  // namespace

tl::unexpected<Error> fail_errno(int code, std::string_view what) {
  return fail("{}: {}", what, std::generic_category().message(code));
}

void panic(const char* what, uint64_t a, uint64_t b, uint64_t c) {
  print_line(what, a, b, c);
  std::abort();
}

void die(int status, const char* what, uint64_t a, uint64_t b) {
  print_line(what, a, b, kNoNumber);
  ::_exit(status);
}

void die(int status, std::initializer_list<const char*> pieces) {
  StackText line = start_line();
  for (const char* piece : pieces) line.text(piece);
  line.write_out();
  ::_exit(status);
}

void set_panic_node(unsigned node) {
  g_node = node;
}

}  // namespace multigrain
