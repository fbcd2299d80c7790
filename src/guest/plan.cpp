#include "guest/plan.h"

#include <signal.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "guest/areas.h"

namespace multigrain::guest {
namespace {

// A longer string is too long for every call: it is given up to here, and the kernel says that it is too long.
constexpr size_t kLongestString = PATH_MAX + 1;

// Returns the length of a string, counting only bytes that may matter; nullopt if the string cannot be read.
std::optional<size_t> string_length(uint64_t address) {
  size_t length = 0;
  while (length < kLongestString) {
    // A page can be read as a whole, or not at all.
    char piece[256];
    const size_t chunk =
        std::min({sizeof piece, kLongestString - length, size_t{kPageSize - (address + length) % kPageSize}});
    if (!read_guest(address + length, piece, chunk)) return std::nullopt;
    const size_t found = strnlen(piece, chunk);
    length += found;
    if (found < chunk) break;
  }
  return length;
}

bool can_be_read(uint64_t address) {
  char byte = 0;
  return read_guest(address, byte);
}

// Returns the error of a call for which there is no form.
long refusal(long number) {
  switch (number) {
    case SYS_ioctl:
      return -ENOTTY;
    case SYS_setsockopt:
    case SYS_getsockopt:
      return -ENOPROTOOPT;
    default:
      return -EINVAL;
  }
}

// Returns which argument has the position in the file, which moves on with each part of a call; 0 if none has.
size_t position_argument(long number, const std::array<uint64_t, 6>& arguments) {
  switch (number) {
    case SYS_pread64:
    case SYS_pwrite64:
    case SYS_preadv:
    case SYS_pwritev:
      return 3;
    case SYS_preadv2:
    case SYS_pwritev2:
      return arguments[3] == ~uint64_t{0} ? 0 : 3;  // the file's own position
    default:
      return 0;
  }
}

}  // namespace

long Plan::make(const Call& call, uint64_t done) {
  number_ = call.number;
  std::ranges::copy(call.arguments, arguments_.begin());
  Form form = form_of(number_, call.arguments);
  if (!form.is_known) {
    is_refused_ = true;
    return refusal(number_);
  }
  // A sigevent for a notification by a thread has an address in it.
  int notify = 0;
  constexpr uint64_t kNotifyAt = 12;  // sigev_notify
  if (number_ == SYS_mq_notify && arguments_[1] != 0 && read_guest(arguments_[1] + kNotifyAt, notify) &&
      notify == SIGEV_THREAD)
    form.arguments[1] = {.kind = Kind::kNested, .from = notify_shape()};
  if (const size_t position = position_argument(number_, arguments_); position != 0) arguments_[position] += done;
  blocks_.reserve(8);
  links_.reserve(8);
  for (size_t i = 0; i < form.count; ++i) {
    if (form.arguments[i].kind == Kind::kValue || arguments_[i] == 0) continue;
    if (const long code = plan_argument(i, form.arguments[i], done); code != 0) return code;
  }
  return 0;
}

long Plan::plan_argument(size_t index, const Shape& shape, uint64_t done) {
  switch (shape.kind) {
    case Kind::kString:
      return plan_string(index, arguments_[index]);
    case Kind::kBytes:
      return plan_bytes(index, shape, done);
    case Kind::kVector:
      return plan_vector(index, shape, done);
    case Kind::kMessage:
      return plan_message(index, shape, done);
    case Kind::kMessages:
      return plan_messages(index, shape);
    case Kind::kNested:
      return plan_nested(index, shape);
    case Kind::kValue:
      break;
  }
  return 0;
}

long Plan::plan_string(size_t index, uint64_t address) {
  const Link link{.in = Link::kArgument, .at = static_cast<uint32_t>(index), .to = 0};
  const auto length = string_length(address);
  if (!length) {
    lose(link);
    return 0;
  }
  Block block;
  block.is_string = true;
  block.size = static_cast<uint32_t>(*length + 1);
  block.source = address;
  return add(link, block);
}

std::optional<uint64_t> Plan::count_of(const Shape& shape, uint64_t address) const {
  switch (shape.count) {
    case Count::kOne:
      return 1;
    case Count::kLong:
      return arguments_[shape.from];
    case Count::kInt:
      return static_cast<uint64_t>(std::max(static_cast<int>(arguments_[shape.from]), 0));
    case Count::kBits: {
      // More descriptors than a process can have do not matter.
      constexpr int kMostBits = 1 << 20;
      const int bits = std::clamp(static_cast<int>(arguments_[shape.from]), 0, kMostBits);
      return static_cast<uint64_t>((bits + 63) / 64);
    }
    case Count::kPointed: {
      int count = 0;
      if (arguments_[shape.from] == 0 || !read_guest(arguments_[shape.from], count)) return 0;
      return static_cast<uint64_t>(std::max(count, 0));
    }
    case Count::kInside: {
      uint32_t count = 0;
      if (!read_guest(address + shape.from, count)) return std::nullopt;
      return count;
    }
  }
  return 0;
}

long Plan::plan_bytes(size_t index, const Shape& shape, uint64_t done) {
  uint64_t address = arguments_[index];
  const Link link{.in = Link::kArgument, .at = static_cast<uint32_t>(index), .to = 0};
  const auto counted = count_of(shape, address);
  if (!counted) {
    lose(link);
    return 0;
  }
  uint64_t units = *counted;
  if (shape.is_up_to) {
    address += done * shape.unit;
    units -= done;
    arguments_[shape.from] -= done;
  }
  const uint64_t most = (kMostData - shape.before) / shape.unit;
  if (units > most) {
    if (!shape.is_up_to && !shape.is_what_is_there) return -ENOMEM;
    units = most;
    if (shape.is_up_to) {
      arguments_[shape.from] = most;
      cut_to_ = most;
    }
  }
  Block block;
  block.way = shape.way;
  block.is_what_is_there = shape.is_what_is_there;
  block.may_stay = shape.may_stay;
  block.size = static_cast<uint32_t>(shape.before + units * shape.unit);
  block.source = address;
  if (shape.way != Way::kIn) block.target = address;
  if (shape.way == Way::kOut) {
    // The kernel says EFAULT before it takes the data that it would have to store.
    if (block.size > 0 && !can_be_read(address)) {
      lose(link);
      return 0;
    }
    if (shape.is_up_to) {
      block.valid = Block::Valid::kResult;
      block.before = shape.before;
      block.unit = shape.unit;
    }
  }
  return add(link, block);
}

long Plan::plan_nested(size_t index, const Shape& shape) {
  const NestedShape& nested = nested_shape(shape.from);
  const uint64_t address = arguments_[index];
  const Link link{.in = Link::kArgument, .at = static_cast<uint32_t>(index), .to = 0};
  std::byte* const copy = keep(nested.size);
  if (!read_guest(address, copy, nested.size)) {
    lose(link);
    return 0;
  }
  Block block;
  block.way = shape.way;
  block.size = nested.size;
  block.source = reinterpret_cast<uint64_t>(copy);
  if (shape.way != Way::kIn) block.target = address;
  if (const long code = add(link, block); code != 0) return code;
  uint64_t inner = 0;
  std::memcpy(&inner, copy + nested.address_at, sizeof inner);
  if (inner == 0) return 0;
  uint32_t count = 1;
  if (nested.count_size != 0) {
    count = 0;
    std::memcpy(&count, copy + nested.count_at, nested.count_size);
  }
  const uint64_t size = uint64_t{count} * nested.bytes;
  if (size > kMostData) return -ENOMEM;
  Block data;
  data.way = nested.way;
  data.is_what_is_there = nested.way == Way::kBoth;
  data.size = static_cast<uint32_t>(size);
  data.source = inner;
  if (nested.way != Way::kIn) data.target = inner;
  return add({.in = static_cast<int>(blocks_.size()) - 1, .at = nested.address_at, .to = 0}, data);
}

long Plan::add(Link link, Block block) {
  bytes_ += block.size;
  if (bytes_ > kMostBytes) return -ENOMEM;
  link.to = static_cast<int>(blocks_.size());
  links_.push_back(link);
  blocks_.push_back(block);
  return 0;
}

void Plan::lose(Link link) {
  link.to = Link::kNowhere;
  links_.push_back(link);
}

std::byte* Plan::keep(size_t bytes) {
  return static_cast<std::byte*>(memory_.allocate(bytes, alignof(uint64_t)));
}

}  // namespace multigrain::guest
