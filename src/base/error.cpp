#include "base/error.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <system_error>

namespace multigrain {
namespace {

unsigned g_node = 0;

// A line assembled on the stack: panic runs in signal handlers, where stdio and the heap are out of bounds.
class Line {
 public:
  void text(const char* s) {
    while (*s != '\0' && length_ < sizeof buffer_) buffer_[length_++] = *s++;
  }
  void number(uint64_t value) {
    char digits[20];
    size_t n = 0;
    do {
      digits[n++] = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value != 0);
    while (n != 0 && length_ < sizeof buffer_) buffer_[length_++] = digits[--n];
  }
  void write_out() {
    // One write, so that lines of different nodes do not mix. Nothing can be done if it fails.
    [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, buffer_, length_);
  }

 private:
  char buffer_[512];
  size_t length_ = 0;
};

void complain(const char* what, uint64_t a, uint64_t b, uint64_t c) {
  Line line;
  line.text("multigrain: node ");
  line.number(g_node);
  line.text(": ");
  line.text(what);
  for (uint64_t value : {a, b, c}) {
    if (value == kNoNumber) break;
    line.text(" ");
    line.number(value);
  }
  line.text("\n");
  line.write_out();
}

}  // namespace

tl::unexpected<Error> fail_errno(int code, std::string_view what) {
  return fail("{}: {}", what, std::generic_category().message(code));
}

void panic(const char* what, uint64_t a, uint64_t b, uint64_t c) {
  complain(what, a, b, c);
  std::abort();
}

void die(int status, const char* what, uint64_t a, uint64_t b) {
  complain(what, a, b, kNoNumber);
  ::_exit(status);
}

void die(int status, std::initializer_list<const char*> pieces) {
  Line line;
  line.text("multigrain: node ");
  line.number(g_node);
  line.text(": ");
  for (const char* piece : pieces) line.text(piece);
  line.text("\n");
  line.write_out();
  ::_exit(status);
}

void set_panic_node(unsigned node) {
  g_node = node;
}

}  // namespace multigrain
