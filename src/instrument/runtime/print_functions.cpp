// These are wrappers of printf and its relatives. The strings that a format prints, and the integers to which %n
// stores, may be shared, whether they are the call's own arguments or in a list that the program has forwarded, and
// whether the format is a constant or not. So a wrapper reads the format as the C library does, and takes the arguments
// out of the list. If one of them is shared, it passes the C library a list of its own, with private copies.
#include <err.h>
#include <syslog.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "instrument/runtime/entry.h"
#include "instrument/runtime/memory_functions.h"
#include "instrument/runtime/private_copies.h"

// The C library's headers declare these functions only for programs that use _FORTIFY_SOURCE.
extern "C" {
int __vfprintf_chk(FILE* stream, int flag, const char* format, va_list arguments);
int __vdprintf_chk(int fd, int flag, const char* format, va_list arguments);
int __vsprintf_chk(char* to, int flag, size_t room, const char* format, va_list arguments);
int __vsnprintf_chk(char* to, size_t size, int flag, size_t room, const char* format, va_list arguments);
int __vasprintf_chk(char** to, int flag, const char* format, va_list arguments);
}

namespace multigrain::checks {
namespace {

class PrintArguments {
 public:
  PrintArguments(const char* format, va_list arguments) : format_(format) {
    va_copy(original_, arguments);
    if (format == nullptr) return;
    read_format();
    va_list list;
    va_copy(list, arguments);
    fetch(list);
    va_end(list);
    replace_shared();
  }
  ~PrintArguments() { va_end(original_); }
  PrintArguments(const PrintArguments&) = delete;
  PrintArguments& operator=(const PrintArguments&) = delete;

  // Calls call(format, list), and then stores the counts of %n.
  template <typename Call>
  int through(Call&& call) {
    if (!any_shared_) return call(format_.data(), original_);
    make_list();
    va_list list;
    static_assert(sizeof list == sizeof(List));
    // The offsets say that all register arguments are used up, so every argument is taken from memory.
    const List fields{48, 176, words_.data(), nullptr};
    std::memcpy(list, &fields, sizeof fields);
    const int result = call(format_.data(), list);
    const int error = errno;
    for (Argument& argument : arguments_)
      if (argument.counted_for != nullptr)
        __multigrain_store(argument.counted_for, argument.count_size, &argument.count);
    errno = error;
    return result;
  }

 private:
  // A va_list in the binary interface of x86-64.
  struct List {
    unsigned general_offset, floating_offset;
    void* memory;
    void* registers;
  };
  struct alignas(16) TwoWords {
    uint64_t word[2];
  };

  enum class Kind : uint8_t { kWord, kDouble, kLongDouble, kString, kWideString, kCount };
  static constexpr size_t kNone = SIZE_MAX;
  static constexpr size_t kMostArguments = 4096;  // NL_ARGMAX
  struct Argument {
    Kind kind = Kind::kWord;
    bool used = false;
    uint64_t word = 0;
    long double extended = 0;
    size_t limit = 0;  // the number of a string's characters that are read at most
    unsigned count_size = 0;
    void* counted_for = nullptr;
    long long count = 0;
  };
  // A string conversion whose precision is an argument. The members are the indices of both arguments.
  struct Limit {
    size_t string, precision;
  };

  Argument* argument(size_t i) {
    if (i >= kMostArguments) return nullptr;
    if (i >= arguments_.size()) arguments_.resize(i + 1);
    return &arguments_[i];
  }

  // Returns the kind of argument that a conversion with this length takes. "%%", "%m" and conversions that the C
  // library does not know take none.
  static std::optional<Kind> kind_of(char conversion, std::string_view length) {
    switch (conversion) {
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
      case 'a':
      case 'A':
        return length == "L" || length == "ll" || length == "q" ? Kind::kLongDouble : Kind::kDouble;
      case 's':
        return length == "l" ? Kind::kWideString : Kind::kString;
      case 'S':
        return Kind::kWideString;
      case 'n':
        return Kind::kCount;
      case 'd':
      case 'i':
      case 'o':
      case 'u':
      case 'x':
      case 'X':
      case 'c':
      case 'C':
      case 'p':
        return Kind::kWord;
      default:
        return std::nullopt;
    }
  }

  void read_format() {
    const std::string_view all(format_.data());
    size_t next = 0;  // the next argument, if they are not numbered
    for (size_t at = all.find('%'); at < all.size(); at = all.find('%', at)) {
      ++at;
      const auto here = [&] { return at < all.size() ? all[at] : '\0'; };
      const auto is = [&](std::string_view which) { return at < all.size() && which.find(all[at]) != which.npos; };
      const auto digits = [&] {
        size_t value = 0;
        for (; is("0123456789"); ++at)
          value = std::min<size_t>(value * 10 + static_cast<size_t>(all[at] - '0'), SIZE_MAX / 16);
        return value;
      };
      // Reads a number such as "3$" in front of a conversion or behind a star.
      const auto position = [&]() -> size_t {
        const size_t before = at;
        const size_t value = digits();
        if (here() == '$' && value > 0) {
          ++at;
          return value - 1;
        }
        at = before;
        return kNone;
      };
      const auto star = [&] {
        const size_t numbered = position();
        const size_t which = numbered != kNone ? numbered : next++;
        if (Argument* const found = argument(which)) found->used = true;
        return which;
      };
      const size_t own = position();
      while (is("-+ #0'I")) ++at;
      if (here() == '*')
        ++at, star();
      else
        digits();
      size_t limit = SIZE_MAX, precision = kNone;
      if (here() == '.') {
        ++at;
        if (here() == '*')
          ++at, precision = star();
        else
          limit = digits();
      }
      const size_t length_begin = at;
      while (is("hlLqjztZ")) ++at;
      const std::string_view length = all.substr(length_begin, at - length_begin);
      if (at >= all.size()) return;
      const std::optional<Kind> kind = kind_of(all[at++], length);
      if (!kind) continue;
      const size_t which = own != kNone ? own : next++;
      Argument* const found = argument(which);
      if (found == nullptr) return;
      found->used = true;
      found->kind = *kind;
      found->limit = std::max(found->limit, precision != kNone ? 0 : limit);
      if (precision != kNone) limits_.push_back({which, precision});
      found->count_size = length == "hh" ? 1 : length == "h" ? 2 : length.empty() ? sizeof(int) : sizeof(long long);
    }
  }

  void fetch(va_list list) {
    for (Argument& each : arguments_) {
      if (each.kind == Kind::kDouble) {
        const double value = va_arg(list, double);
        std::memcpy(&each.word, &value, sizeof value);
      } else if (each.kind == Kind::kLongDouble) {
        each.extended = va_arg(list, long double);
      } else {
        each.word = va_arg(list, uint64_t);
      }
    }
    for (const Limit& limit : limits_) {
      const Argument* const precision = argument(limit.precision);
      Argument* const string = argument(limit.string);
      if (precision == nullptr || string == nullptr) continue;
      const int value = static_cast<int>(precision->word);  // negative: no precision
      string->limit = std::max(string->limit, value < 0 ? SIZE_MAX : static_cast<size_t>(value));
    }
  }

  void replace_shared() {
    for (Argument& each : arguments_) {
      void* const pointer = reinterpret_cast<void*>(each.word);
      if (each.kind < Kind::kString || !is_shared(pointer)) continue;
      any_shared_ = true;
      if (each.kind == Kind::kString) {
        each.word = address_of(texts_.emplace_back(static_cast<const char*>(pointer), each.limit).data());
      } else if (each.kind == Kind::kWideString) {
        each.word = address_of(wide_texts_.emplace_back(static_cast<const wchar_t*>(pointer), each.limit).data());
      } else {
        each.counted_for = pointer;
        __multigrain_load(pointer, each.count_size, &each.count);
      }
    }
    // The addresses of the counts are final only now.
    for (Argument& each : arguments_)
      if (each.counted_for != nullptr) each.word = address_of(&each.count);
  }

  void make_list() {
    size_t used = 0;
    const auto put = [&](uint64_t word) {
      if (used % 2 == 0) words_.push_back({});
      words_.back().word[used++ % 2] = word;
    };
    for (const Argument& each : arguments_) {
      if (each.kind != Kind::kLongDouble) {
        put(each.word);
        continue;
      }
      if (used % 2 != 0) put(0);
      uint64_t parts[2] = {};
      std::memcpy(parts, &each.extended, 10);
      put(parts[0]), put(parts[1]);
    }
    if (words_.empty()) words_.push_back({});
  }

  Text format_;
  va_list original_;
  bool any_shared_ = false;
  std::vector<Argument> arguments_;
  std::vector<Limit> limits_;
  std::deque<Text> texts_;
  std::deque<WideText> wide_texts_;
  std::vector<TwoWords> words_;
};

constexpr int kNotFortified = -1;

int print(FILE* stream, int flag, const char* format, va_list arguments) {
  return PrintArguments(format, arguments).through([&](const char* text, va_list list) {
    return flag == kNotFortified ? std::vfprintf(stream, text, list) : __vfprintf_chk(stream, flag, text, list);
  });
}
int print_to_file(int fd, int flag, const char* format, va_list arguments) {
  return PrintArguments(format, arguments).through([&](const char* text, va_list list) {
    return flag == kNotFortified ? vdprintf(fd, text, list) : __vdprintf_chk(fd, flag, text, list);
  });
}
// Prints into memory from malloc.
int print_new(char** to, int flag, const char* format, va_list arguments) {
  char* made = nullptr;
  const int length = PrintArguments(format, arguments).through([&](const char* text, va_list list) {
    return flag == kNotFortified ? vasprintf(&made, text, list) : __vasprintf_chk(&made, flag, text, list);
  });
  if (length >= 0) store_shared(to, made);
  return length;
}
// Prints into `size` bytes of shared memory.
int print_shared(char* to, size_t size, int flag, const char* format, va_list arguments) {
  char* text = nullptr;
  const int length = print_new(&text, flag, format, arguments);
  if (length < 0 || size == 0) {
    if (length >= 0) std::free(text);
    return length;
  }
  const size_t kept = std::min<size_t>(static_cast<size_t>(length), size - 1);
  text[kept] = 0;
  const int error = errno;
  __multigrain_memcpy(to, text, kept + 1);
  std::free(text);
  errno = error;
  return length;
}

}  // namespace
}  // namespace multigrain::checks

using namespace multigrain::checks;

#define MG_WITH_LIST(last, call) \
  va_list arguments;             \
  va_start(arguments, last);     \
  const int count = call;        \
  va_end(arguments);             \
  return count

MG_ENTRY int __multigrain_vfprintf(FILE* stream, const char* format, va_list arguments) {
  return print(stream, kNotFortified, format, arguments);
}
MG_ENTRY int __multigrain_vprintf(const char* format, va_list arguments) {
  return print(stdout, kNotFortified, format, arguments);
}
MG_ENTRY int __multigrain_vdprintf(int fd, const char* format, va_list arguments) {
  return print_to_file(fd, kNotFortified, format, arguments);
}
MG_ENTRY int __multigrain_vsnprintf(char* to, size_t size, const char* format, va_list arguments) {
  if (touches_shared(to, size)) return print_shared(to, size, kNotFortified, format, arguments);
  return PrintArguments(format, arguments).through([&](const char* text, va_list list) {
    return std::vsnprintf(to, size, text, list);
  });
}
MG_ENTRY int __multigrain_vsprintf(char* to, const char* format, va_list arguments) {
  if (is_shared(to)) return print_shared(to, kViewEnd - address_of(to), kNotFortified, format, arguments);
  // The size of private memory is not known here, so the C library prints there itself.
  return PrintArguments(format, arguments).through([&](const char* text, va_list list) {
    return std::vsprintf(to, text, list);
  });
}
MG_ENTRY int __multigrain_vasprintf(char** to, const char* format, va_list arguments) {
  return print_new(to, kNotFortified, format, arguments);
}
MG_ENTRY int __multigrain_printf(const char* format, ...) {
  MG_WITH_LIST(format, __multigrain_vprintf(format, arguments));
}
MG_ENTRY int __multigrain_fprintf(FILE* stream, const char* format, ...) {
  MG_WITH_LIST(format, __multigrain_vfprintf(stream, format, arguments));
}
MG_ENTRY int __multigrain_dprintf(int fd, const char* format, ...) {
  MG_WITH_LIST(format, __multigrain_vdprintf(fd, format, arguments));
}
MG_ENTRY int __multigrain_snprintf(char* to, size_t size, const char* format, ...) {
  MG_WITH_LIST(format, __multigrain_vsnprintf(to, size, format, arguments));
}
MG_ENTRY int __multigrain_sprintf(char* to, const char* format, ...) {
  MG_WITH_LIST(format, __multigrain_vsprintf(to, format, arguments));
}
MG_ENTRY int __multigrain_asprintf(char** to, const char* format, ...) {
  MG_WITH_LIST(format, __multigrain_vasprintf(to, format, arguments));
}

// These are the forms of _FORTIFY_SOURCE, which are also told how much room there is.
MG_ENTRY int __multigrain___vfprintf_chk(FILE* stream, int flag, const char* format, va_list arguments) {
  return print(stream, flag, format, arguments);
}
MG_ENTRY int __multigrain___vprintf_chk(int flag, const char* format, va_list arguments) {
  return print(stdout, flag, format, arguments);
}
MG_ENTRY int __multigrain___vdprintf_chk(int fd, int flag, const char* format, va_list arguments) {
  return print_to_file(fd, flag, format, arguments);
}
MG_ENTRY int __multigrain___vsnprintf_chk(char* to, size_t size, int flag, size_t room, const char* format,
                                          va_list arguments) {
  if (size <= room && touches_shared(to, size)) return print_shared(to, size, flag, format, arguments);
  return PrintArguments(format, arguments).through([&](const char* text, va_list list) {
    return __vsnprintf_chk(to, size, flag, room, text, list);
  });
}
MG_ENTRY int __multigrain___vsprintf_chk(char* to, int flag, size_t room, const char* format, va_list arguments) {
  if (!is_shared(to)) {
    return PrintArguments(format, arguments).through([&](const char* text, va_list list) {
      return __vsprintf_chk(to, flag, room, text, list);
    });
  }
  // The C library ends the program if the text does not fit. For that it needs a buffer of the same size.
  const size_t size = std::min<size_t>(room, kViewEnd - address_of(to));
  const std::unique_ptr<char[]> text(new (std::nothrow) char[std::min<size_t>(size, size_t{1} << 24)]);
  if (text == nullptr || size > size_t{1} << 24) return print_shared(to, size, flag, format, arguments);
  const int length = PrintArguments(format, arguments).through([&](const char* private_format, va_list list) {
    return __vsprintf_chk(text.get(), flag, size, private_format, list);
  });
  if (length >= 0) __multigrain_memcpy(to, text.get(), static_cast<size_t>(length) + 1);
  return length;
}
MG_ENTRY int __multigrain___vasprintf_chk(char** to, int flag, const char* format, va_list arguments) {
  return print_new(to, flag, format, arguments);
}
MG_ENTRY int __multigrain___printf_chk(int flag, const char* format, ...) {
  MG_WITH_LIST(format, __multigrain___vprintf_chk(flag, format, arguments));
}
MG_ENTRY int __multigrain___fprintf_chk(FILE* stream, int flag, const char* format, ...) {
  MG_WITH_LIST(format, __multigrain___vfprintf_chk(stream, flag, format, arguments));
}
MG_ENTRY int __multigrain___dprintf_chk(int fd, int flag, const char* format, ...) {
  MG_WITH_LIST(format, __multigrain___vdprintf_chk(fd, flag, format, arguments));
}
MG_ENTRY int __multigrain___snprintf_chk(char* to, size_t size, int flag, size_t room, const char* format, ...) {
  MG_WITH_LIST(format, __multigrain___vsnprintf_chk(to, size, flag, room, format, arguments));
}
MG_ENTRY int __multigrain___sprintf_chk(char* to, int flag, size_t room, const char* format, ...) {
  MG_WITH_LIST(format, __multigrain___vsprintf_chk(to, flag, room, format, arguments));
}
MG_ENTRY int __multigrain___asprintf_chk(char** to, int flag, const char* format, ...) {
  MG_WITH_LIST(format, __multigrain___vasprintf_chk(to, flag, format, arguments));
}

MG_ENTRY void __multigrain_vsyslog(int priority, const char* format, va_list arguments) {
  PrintArguments(format, arguments).through([&](const char* text, va_list list) {
    vsyslog(priority, text, list);
    return 0;
  });
}
MG_ENTRY void __multigrain_syslog(int priority, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  __multigrain_vsyslog(priority, format, arguments);
  va_end(arguments);
}
#define MG_WARNING(call)                                                                                            \
  va_list arguments;                                                                                                \
  va_start(arguments, format);                                                                                      \
  PrintArguments(format, arguments).through([&]([[maybe_unused]] const char* text, [[maybe_unused]] va_list list) { \
    call;                                                                                                           \
    return 0;                                                                                                       \
  });                                                                                                               \
  va_end(arguments)
MG_ENTRY void __multigrain_err(int status, const char* format, ...) {
  MG_WARNING(verr(status, format != nullptr ? text : nullptr, list));
}
MG_ENTRY void __multigrain_errx(int status, const char* format, ...) {
  MG_WARNING(verrx(status, format != nullptr ? text : nullptr, list));
}
MG_ENTRY void __multigrain_warn(const char* format, ...) {
  MG_WARNING(vwarn(format != nullptr ? text : nullptr, list));
}
MG_ENTRY void __multigrain_warnx(const char* format, ...) {
  MG_WARNING(vwarnx(format != nullptr ? text : nullptr, list));
}
