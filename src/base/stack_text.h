// A StackText is a line, for standard error or for the system, that is put together on the stack. It is for signal
// handlers and for threads in the middle of a library, where stdio, locks and the heap must not be used.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace multigrain {

// Text beyond 512 bytes is cut off. Async-signal-safe.
class StackText {
 public:
  StackText& text(std::string_view s) {
    for (const char c : s)
      if (length_ + 1 < sizeof buffer_) buffer_[length_++] = c;
    return *this;
  }
  StackText& number(uint64_t value) {
    char digits[20];
    size_t n = 0;
    do {
      digits[n++] = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value != 0);
    while (n != 0) text({&digits[--n], 1});
    return *this;
  }
  // Appends for instance "0x7f12".
  StackText& hexadecimal(uint64_t value) {
    char digits[16];
    size_t n = 0;
    do {
      digits[n++] = "0123456789abcdef"[value % 16];
      value /= 16;
    } while (value != 0);
    text("0x");
    while (n != 0) text({&digits[--n], 1});
    return *this;
  }
  // Returns the text so far. It is valid until something is added.
  [[nodiscard]] const char* c_str() {
    buffer_[length_] = '\0';
    return buffer_;
  }
  // Ends the line, and writes it. May be called once.
  void write_out() {
    buffer_[length_++] = '\n';
    // There is one write, so that lines of different nodes do not mix. Nothing can be done if it fails.
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, buffer_, length_);
  }

 private:
  char buffer_[512];
  size_t length_ = 0;
};

}  // namespace multigrain
