// Reads the notation of calls.def and commands.def at compile time, so that a wrong form does not compile.
#pragma once

#include <linux/fiemap.h>
#include <mqueue.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "guest/form.h"

namespace multigrain::guest::notation {

struct Named {
  std::string_view name;
  size_t size;
};

// The types have these sizes in the kernel on x86-64.
inline constexpr Named kTypes[] = {
    {"int", 4},
    {"long", 8},
    {"dqblk", 72},
    {"epoll_event", sizeof(epoll_event)},
    {"fiemap_extent", sizeof(fiemap_extent)},
    {"flock", 32},
    {"ifreq", sizeof(ifreq)},
    {"itimerspec", sizeof(itimerspec)},
    {"itimerval", sizeof(itimerval)},
    {"mq_attr", sizeof(mq_attr)},
    {"msginfo", sizeof(msginfo)},
    {"msqid_ds", sizeof(msqid_ds)},
    {"pollfd", sizeof(pollfd)},
    {"rlimit", sizeof(rlimit)},
    {"rusage", sizeof(rusage)},
    {"sembuf", sizeof(sembuf)},
    {"semid_ds", sizeof(semid_ds)},
    {"seminfo", sizeof(seminfo)},
    {"shm_info", sizeof(struct shm_info)},
    {"shmid_ds", sizeof(shmid_ds)},
    {"shminfo", sizeof(shminfo)},
    {"sigevent", sizeof(sigevent)},
    {"siginfo", sizeof(siginfo_t)},
    {"sigset", 8},
    {"stat", sizeof(struct stat)},
    {"statfs", sizeof(struct statfs)},
    {"statx", sizeof(struct statx)},
    {"sysinfo", sizeof(struct sysinfo)},
    {"termio", 18},
    {"termios", 36},
    {"timespec", sizeof(timespec)},
    {"timeval", sizeof(timeval)},
    {"timex", sizeof(timex)},
    {"timezone", 8},
    {"tms", sizeof(tms)},
    {"user_cap_data", 24},
    {"utimbuf", 16},
    {"utsname", sizeof(utsname)},
};

// These structures have an address in them.
inline constexpr NestedShape kNested[] = {
    // This is the mask of pselect6, and its size.
    {"sigset_argument", 16, 0, Way::kIn, 8, 0, 0},
    {"sock_fprog", 16, 8, Way::kIn, 8, 2, 0},
    {"xattr_given", 16, 0, Way::kIn, 1, 4, 8},
    {"xattr_wanted", 16, 0, Way::kBoth, 1, 4, 8},
    {"ifconf", 16, 8, Way::kBoth, 1, 4, 0},
    // The sigevent of mq_notify with SIGEV_THREAD points to this, which the C library wants back.
    {"sigevent_thread", 64, 0, Way::kIn, 32, 0, 0},
};

class Reader {
 public:
  constexpr explicit Reader(std::string_view text) : text_(text) {}

  [[nodiscard]] constexpr bool is_done() const { return text_.empty(); }
  constexpr bool accept(char wanted) {
    if (text_.empty() || text_.front() != wanted) return false;
    text_.remove_prefix(1);
    return true;
  }
  constexpr std::optional<size_t> number() {
    size_t length = 0;
    size_t value = 0;
    while (length < text_.size() && text_[length] >= '0' && text_[length] <= '9')
      value = value * 10 + static_cast<size_t>(text_[length++] - '0');
    if (length == 0 || length > 5 || value > UINT16_MAX) return std::nullopt;
    text_.remove_prefix(length);
    return value;
  }
  constexpr std::string_view word() {
    size_t length = 0;
    while (length < text_.size() && (text_[length] == '_' || (text_[length] >= 'a' && text_[length] <= 'z'))) ++length;
    const std::string_view found = text_.substr(0, length);
    text_.remove_prefix(length);
    return found;
  }

 private:
  std::string_view text_;
};

// Reads the count behind an address, as in "$2".
constexpr bool read_count(Reader& reader, Shape& shape) {
  struct {
    char sign;
    Count count;
  } constexpr kSigns[] = {
      {'$', Count::kLong}, {'%', Count::kInt}, {'&', Count::kBits}, {'^', Count::kPointed}, {'#', Count::kInside}};
  for (const auto& sign : kSigns) {
    if (!reader.accept(sign.sign)) continue;
    const auto from = reader.number();
    if (!from || (sign.count != Count::kInside && *from > 5) || *from > 255) return false;
    shape.count = sign.count;
    shape.from = static_cast<uint8_t>(*from);
    if (sign.count == Count::kBits) shape.unit = static_cast<uint16_t>(shape.unit * sizeof(long));
    return true;
  }
  return false;
}

// Reads a number of bytes, or the name of a type.
constexpr std::optional<size_t> read_size(Reader& reader) {
  if (const auto number = reader.number()) return number;
  const std::string_view name = reader.word();
  for (const Named& type : kTypes)
    if (type.name == name) return type.size;
  return std::nullopt;
}

// Reads what follows the sign of an address: [BEFORE +] SIZE [* COUNT] or [BEFORE +] COUNT, and the marks.
constexpr bool read_bytes(Reader& reader, Shape& shape) {
  shape.kind = Kind::kBytes;
  shape.unit = 1;
  if (!read_count(reader, shape)) {
    const auto size = read_size(reader);
    if (!size) return false;
    shape.unit = static_cast<uint16_t>(*size);
    if (reader.accept('+')) {
      shape.before = static_cast<uint16_t>(*size);
      shape.unit = 1;
      if (!read_count(reader, shape)) {
        const auto unit = read_size(reader);
        if (!unit || !reader.accept('*')) return false;
        shape.unit = static_cast<uint16_t>(*unit);
        if (!read_count(reader, shape)) return false;
      }
    } else if (reader.accept('*')) {
      if (!read_count(reader, shape)) return false;
    }
  }
  while (!reader.is_done()) {
    if (reader.accept('@'))
      shape.is_up_to = true;
    else if (reader.accept('?'))
      shape.is_what_is_there = true;
    else if (reader.accept('~'))
      shape.may_stay = true;
    else
      return false;
  }
  const bool counts_by_argument = shape.count == Count::kLong || shape.count == Count::kInt;
  return !shape.is_up_to || counts_by_argument;
}

constexpr std::optional<Shape> read_argument(std::string_view text) {
  Shape shape;
  if (text == "i") return shape;
  if (text == "s") {
    shape.kind = Kind::kString;
    return shape;
  }
  Reader reader(text);
  if (reader.accept('<'))
    shape.way = Way::kIn;
  else if (reader.accept('>'))
    shape.way = Way::kOut;
  else if (reader.accept('='))
    shape.way = Way::kBoth;
  else
    return std::nullopt;
  const Reader begin = reader;
  const std::string_view name = reader.word();
  if (name == "msghdr") {
    shape.kind = Kind::kMessage;
    return reader.is_done() ? std::optional(shape) : std::nullopt;
  }
  if (name == "iovec" || name == "mmsghdr") {
    shape.kind = name == "iovec" ? Kind::kVector : Kind::kMessages;
    const bool is_right = reader.accept('*') && read_count(reader, shape) && reader.is_done() &&
                          shape.count == (name == "iovec" ? Count::kLong : Count::kInt);
    return is_right ? std::optional(shape) : std::nullopt;
  }
  for (size_t i = 0; i < std::size(kNested); ++i) {
    if (kNested[i].name != name) continue;
    shape.kind = Kind::kNested;
    shape.from = static_cast<uint8_t>(i);
    return reader.is_done() ? std::optional(shape) : std::nullopt;
  }
  reader = begin;
  return read_bytes(reader, shape) ? std::optional(shape) : std::nullopt;
}

// Returns whether each count stands in an argument of the right kind.
constexpr bool is_consistent(const Form& form) {
  return std::ranges::all_of(form.arguments, [&](const Shape& shape) {
    if (shape.kind == Kind::kValue || shape.kind == Kind::kString || shape.kind == Kind::kMessage ||
        shape.kind == Kind::kNested || shape.count == Count::kOne)
      return true;
    if (shape.count == Count::kInside) return shape.from + 4 <= shape.before;
    if (shape.from >= form.count) return false;
    const Shape& other = form.arguments[shape.from];
    if (shape.count == Count::kPointed)
      return other.kind == Kind::kBytes && other.way == Way::kBoth && other.count == Count::kOne && other.unit == 4;
    return other.kind == Kind::kValue;
  });
}

// Returns nothing if the text is wrong.
constexpr std::optional<Form> read_form(std::string_view text) {
  Form form;
  form.is_known = true;
  if (text.empty()) return form;
  if (text.starts_with("by ")) {
    if (text.size() != 4 || text[3] < '0' || text[3] > '5') return std::nullopt;
    form.command = static_cast<int8_t>(text[3] - '0');
    return form;
  }
  while (true) {
    const size_t end = std::min(text.find(' '), text.size());
    const auto shape = read_argument(text.substr(0, end));
    if (!shape || form.count == form.arguments.size()) return std::nullopt;
    form.arguments[form.count++] = *shape;
    if (end == text.size()) break;
    text.remove_prefix(end + 1);
  }
  return is_consistent(form) ? std::optional(form) : std::nullopt;
}

// Reads a form. A wrong text does not compile.
consteval Form form(std::string_view text) {
  return read_form(text).value();
}

}  // namespace multigrain::guest::notation
