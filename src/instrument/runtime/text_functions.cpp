// These are wrappers of the C library's functions that read numbers and words from text. The text may be shared, and so
// may the objects to which results are stored. The C library gets private memory, which the wrappers copy afterwards.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "instrument/runtime/entry.h"
#include "instrument/runtime/memory_functions.h"
#include "instrument/runtime/private_copies.h"

namespace multigrain::checks {
namespace {

// Calls strtol or one of its relatives.
template <typename Value, typename... Base>
Value number_in(const char* text, char** end, Value (*read)(const char*, char**, Base...), Base... base) {
  const Text copy(text);
  char* stop = nullptr;
  const Value value = read(copy, &stop, base...);
  if (end != nullptr) store_shared(end, copy.original(stop));
  return value;
}

// The places to which a call of scanf's family stores its results.
class Results {
 public:
  Results(const char* format, va_list arguments) { read(Text(format), arguments); }

  [[nodiscard]] const char* format() const { return format_.c_str(); }

  // Calls call(format, pointer ...) with private pointers, and then stores the changes to the program's objects.
  template <typename Call>
  int through(Call&& call) {
    const int count = hand_over(call, std::make_index_sequence<kMost>());
    const int error = errno;
    for (Copied& one : copied_) {
      if (!one.text) {
        if (one.bytes != one.before) __multigrain_store(one.to, one.bytes.size(), one.bytes.data());
      } else if (one.allocated != nullptr) {
        const size_t length = one.wide ? (std::wcslen(static_cast<wchar_t*>(one.allocated)) + 1) * sizeof(wchar_t)
                                       : std::strlen(static_cast<char*>(one.allocated)) + 1;
        __multigrain_memcpy(one.to, one.allocated, length);
        std::free(one.allocated);
      }
    }
    errno = error;
    return count;
  }

 private:
  static constexpr size_t kMost = 64;  // results of one call

  struct Copied {
    void* to;
    bool text;  // its length is not known, so the C library allocates it
    bool wide = false;
    void* allocated = nullptr;
    std::vector<std::byte> bytes, before;  // for results that are no text: the value now, and before the call
  };

  template <typename Call, size_t... I>
  int hand_over(Call&& call, std::index_sequence<I...>) {
    // The addresses of the copies are final only now.
    for (size_t i = 0; i < copied_.size(); ++i)
      pointers_[place_[i]] = copied_[i].text ? static_cast<void*>(&copied_[i].allocated) : copied_[i].bytes.data();
    return call(format(), pointers_[I]...);
  }

  void read(const char* format, va_list arguments) {
    const std::string_view all(format);
    for (size_t at = 0; at < all.size();) {
      if (all[at] != '%' || (at + 1 < all.size() && all[at + 1] == '%')) {
        const size_t plain = all[at] == '%' ? 2 : 1;
        format_ += all.substr(at, plain);
        at += plain;
        continue;
      }
      at = conversion(all, at, arguments);
    }
  }

  // Handles the conversion that begins at `at`. Returns where it ends. A conversion that scanf does not understand is
  // passed to it as it is.
  size_t conversion(std::string_view all, size_t at, va_list arguments) {
    const auto is = [&](size_t i, std::string_view which) {
      return i < all.size() && which.find(all[i]) != which.npos;
    };
    const size_t begin = at++;
    bool ignored = false;
    for (; is(at, "*'I"); ++at) ignored |= all[at] == '*';
    size_t width = 0;
    for (; is(at, "0123456789"); ++at)
      width = std::min<size_t>(width * 10 + static_cast<size_t>(all[at] - '0'), 1u << 20);
    if (is(at, "$")) die(1, "scanf with numbered arguments and results in shared memory: use private memory");
    const size_t modifiers = at;
    const bool allocates = is(at, "m");
    if (allocates) ++at;
    const size_t length_begin = at;
    while (is(at, "hlLqjzt")) ++at;
    const std::string_view length = all.substr(length_begin, at - length_begin);
    if (at >= all.size()) {
      format_ += all.substr(begin);
      return at;
    }
    const char kind = all[at++];
    if (kind == '[') {
      if (is(at, "^")) ++at;
      if (is(at, "]")) ++at;
      while (at < all.size() && all[at] != ']') ++at;
      at = std::min(at + 1, all.size());
    }
    const std::string_view whole = all.substr(begin, at - begin);
    if (ignored) {
      format_ += whole;
      return at;
    }
    if (used_ == kMost) die(1, "scanf with more results in one call than access checks have room for:", kMost);
    void* const to = va_arg(arguments, void*);
    const size_t place = used_++;
    pointers_[place] = to;
    if (!is_shared(to)) {
      format_ += whole;
      return at;
    }
    const bool is_text = std::string_view("s[S").find(kind) != std::string_view::npos && !allocates;
    Copied one{to, is_text, kind == 'S' || (length == "l" && is_text), nullptr, {}, {}};
    if (is_text) {
      format_ += all.substr(begin, modifiers - begin);
      format_ += 'm';
      format_ += all.substr(modifiers, begin + whole.size() - modifiers);
    } else {
      one.bytes.resize(allocates ? sizeof(void*) : size_of(kind, length, width));
      __multigrain_load(to, one.bytes.size(), one.bytes.data());
      one.before = one.bytes;
      format_ += whole;
    }
    copied_.push_back(std::move(one));
    place_.push_back(place);
    return at;
  }

  static size_t size_of(char kind, std::string_view length, size_t width) {
    switch (kind) {
      case 'c':
      case 'C':
        return std::max<size_t>(width, 1) * (kind == 'C' || length == "l" ? sizeof(wchar_t) : 1);
      case 'p':
        return sizeof(void*);
      case 'a':
      case 'e':
      case 'f':
      case 'g':
      case 'A':
      case 'E':
      case 'F':
      case 'G':
        return length == "L" || length == "ll" || length == "q" ? sizeof(long double)
               : length == "l"                                  ? sizeof(double)
                                                                : sizeof(float);
      default:
        return length == "hh" ? 1 : length == "h" ? 2 : length.empty() ? sizeof(int) : sizeof(long);
    }
  }

  std::string format_;
  void* pointers_[kMost] = {};
  size_t used_ = 0;
  std::vector<Copied> copied_;
  std::vector<size_t> place_;  // the index of each copied result among the pointers
};

}  // namespace
}  // namespace multigrain::checks

using namespace multigrain::checks;

MG_ENTRY long __multigrain_strtol(const char* text, char** end, int base) {
  return number_in(text, end, std::strtol, base);
}
MG_ENTRY unsigned long __multigrain_strtoul(const char* text, char** end, int base) {
  return number_in(text, end, std::strtoul, base);
}
MG_ENTRY long long __multigrain_strtoll(const char* text, char** end, int base) {
  return number_in(text, end, std::strtoll, base);
}
MG_ENTRY unsigned long long __multigrain_strtoull(const char* text, char** end, int base) {
  return number_in(text, end, std::strtoull, base);
}
MG_ENTRY float __multigrain_strtof(const char* text, char** end) {
  return number_in(text, end, std::strtof);
}
MG_ENTRY double __multigrain_strtod(const char* text, char** end) {
  return number_in(text, end, std::strtod);
}
MG_ENTRY long double __multigrain_strtold(const char* text, char** end) {
  return number_in(text, end, std::strtold);
}

MG_ENTRY intmax_t __multigrain_strtoimax(const char* text, char** end, int base) {
  return number_in(text, end, strtoimax, base);
}
MG_ENTRY uintmax_t __multigrain_strtoumax(const char* text, char** end, int base) {
  return number_in(text, end, strtoumax, base);
}
MG_ENTRY float __multigrain___strtof_l(const char* text, char** end, void* locale) {
  return number_in(text, end, strtof_l, static_cast<locale_t>(locale));
}
MG_ENTRY double __multigrain___strtod_l(const char* text, char** end, void* locale) {
  return number_in(text, end, strtod_l, static_cast<locale_t>(locale));
}
MG_ENTRY long double __multigrain___strtold_l(const char* text, char** end, void* locale) {
  return number_in(text, end, strtold_l, static_cast<locale_t>(locale));
}
MG_ENTRY int __multigrain_atoi(const char* text) {
  return std::atoi(Text(text));
}
MG_ENTRY long __multigrain_atol(const char* text) {
  return std::atol(Text(text));
}
MG_ENTRY long long __multigrain_atoll(const char* text) {
  return std::atoll(Text(text));
}
MG_ENTRY double __multigrain_atof(const char* text) {
  return std::atof(Text(text));
}
MG_ENTRY long __multigrain_a64l(const char* text) {
  return a64l(Text(text));
}

MG_ENTRY int __multigrain_vfscanf(FILE* stream, const char* format, va_list arguments) {
  return Results(format, arguments).through([&](const char* private_format, auto... pointers) {
    return std::fscanf(stream, private_format, pointers...);
  });
}
MG_ENTRY int __multigrain_vscanf(const char* format, va_list arguments) {
  return __multigrain_vfscanf(stdin, format, arguments);
}
MG_ENTRY int __multigrain_vsscanf(const char* text, const char* format, va_list arguments) {
  const Text copy(text);
  return Results(format, arguments).through([&](const char* private_format, auto... pointers) {
    return std::sscanf(copy, private_format, pointers...);
  });
}
MG_ENTRY int __multigrain_fscanf(FILE* stream, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int count = __multigrain_vfscanf(stream, format, arguments);
  va_end(arguments);
  return count;
}
MG_ENTRY int __multigrain_scanf(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int count = __multigrain_vscanf(format, arguments);
  va_end(arguments);
  return count;
}
MG_ENTRY int __multigrain_sscanf(const char* text, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int count = __multigrain_vsscanf(text, format, arguments);
  va_end(arguments);
  return count;
}
