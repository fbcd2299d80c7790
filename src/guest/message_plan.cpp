// Plans the packages of calls whose data is scattered in the guest's memory (readv and the like), and of messages of
// sockets. In the package the data lies together, so the kernel is given one iovec.
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "guest/plan.h"

namespace multigrain::guest {

// Describes iovecs and the data to which they point.
struct Plan::Vector {
  Way way = Way::kIn;
  uint64_t address = 0;  // the address of the iovecs
  uint64_t count = 0;    // number of iovecs; afterwards, in the package
  uint64_t done = 0;     // bytes to leave out
  uint64_t room = 0;     // bytes for which there is room
  bool is_message = false;
  // Planning sets these: the data's block, if it has one, and whether there was no room for all.
  int block = Link::kNowhere;
  bool is_cut = false;
  uint64_t size = 0;
};

long Plan::plan_iovecs(Link place, Vector& vector) {
  // The kernel itself refuses too many of them, before it looks at the address.
  if (vector.count == 0 || vector.count > IOV_MAX) {
    lose(place);
    return 0;
  }
  auto* const given = reinterpret_cast<iovec*>(keep(vector.count * sizeof(iovec)));
  if (!read_guest(vector.address, given, vector.count * sizeof(iovec))) {
    lose(place);
    return 0;
  }
  auto* const one = reinterpret_cast<iovec*>(keep(sizeof(iovec)));
  *one = {};
  const auto* const negative =
      std::find_if(given, given + vector.count, [](const iovec& io) { return io.iov_len > SSIZE_MAX; });
  const auto first_piece = static_cast<uint32_t>(pieces_.size());
  bool is_lost = negative != given + vector.count;
  if (is_lost) one->iov_len = negative->iov_len;
  uint64_t left_out = vector.done;
  for (uint64_t i = 0; i < vector.count && !is_lost; ++i) {
    const uint64_t skipped = std::min<uint64_t>(left_out, given[i].iov_len);
    left_out -= skipped;
    const uint64_t wanted = given[i].iov_len - skipped;
    const uint64_t size = std::min(wanted, vector.room - vector.size);
    vector.is_cut = size < wanted;
    if (wanted == 0) continue;
    if (size == 0) break;
    const uint64_t address = reinterpret_cast<uint64_t>(given[i].iov_base) + skipped;
    char byte = 0;
    if (!read_guest(address, byte)) {
      // The data before it is transferred, as by the kernel; but a message is sent as a whole or not at all.
      is_lost = vector.size == 0 || vector.is_message;
      if (is_lost) one->iov_len = size;
      break;
    }
    pieces_.push_back({address, size});
    vector.size += size;
    if (vector.is_cut) break;
  }
  vector.count = 1;
  Block header;
  header.size = sizeof(iovec);
  header.source = reinterpret_cast<uint64_t>(one);
  const auto header_block = static_cast<int>(blocks_.size());
  if (const long code = add(place, header); code != 0) return code;
  const Link base{.in = header_block, .at = offsetof(iovec, iov_base), .to = 0};
  if (is_lost) {
    lose(base);
    return 0;
  }
  one->iov_len = vector.size;
  Block data;
  data.way = vector.way;
  data.size = static_cast<uint32_t>(vector.size);
  data.first_piece = first_piece;
  data.pieces = static_cast<uint32_t>(pieces_.size()) - first_piece;
  data.valid = Block::Valid::kResult;
  data.unit = 1;
  vector.block = static_cast<int>(blocks_.size());
  return add(base, data);
}

long Plan::plan_vector(size_t index, const Shape& shape, uint64_t done) {
  Vector vector{
      .way = shape.way, .address = arguments_[index], .count = arguments_[shape.from], .done = done, .room = kMostData};
  const long code = plan_iovecs({.in = Link::kArgument, .at = static_cast<uint32_t>(index), .to = 0}, vector);
  arguments_[shape.from] = vector.count;
  if (vector.is_cut) cut_to_ = vector.size;
  return code;
}

// Plans what a msghdr points to. The msghdr lies `offset` bytes behind the begin of block `in`, and `header` is the
// host's copy, from which the block is filled.
long Plan::plan_header(int in, size_t offset, Way way, std::byte* header, uint64_t done, uint64_t room) {
  auto& message = *reinterpret_cast<msghdr*>(header);
  const auto at = [offset](size_t field) { return static_cast<uint32_t>(offset + field); };
  const Way both = way == Way::kIn ? Way::kIn : Way::kBoth;
  if (message.msg_name != nullptr) {
    const Link link{.in = in, .at = at(offsetof(msghdr, msg_name)), .to = 0};
    Block name;
    name.way = both;
    name.is_what_is_there = both == Way::kBoth;
    // The kernel cuts longer names, and refuses negative lengths.
    name.size =
        static_cast<uint32_t>(std::clamp<int>(static_cast<int>(message.msg_namelen), 0, sizeof(sockaddr_storage)));
    name.source = reinterpret_cast<uint64_t>(message.msg_name);
    if (both == Way::kBoth) name.target = name.source;
    if (const long code = add(link, name); code != 0) return code;
  }
  if (done > 0) {
    // The control data went with the first part.
    message.msg_control = nullptr;
    message.msg_controllen = 0;
  }
  if (message.msg_control != nullptr) {
    const Link link{.in = in, .at = at(offsetof(msghdr, msg_control)), .to = 0};
    constexpr size_t kMostControl = size_t{64} << 10;
    if (message.msg_controllen > kMostControl && way == Way::kIn) {
      lose(link);  // the kernel has a lower limit
    } else {
      message.msg_controllen = std::min(message.msg_controllen, kMostControl);
      Block control;
      control.way = both;
      control.is_what_is_there = both == Way::kBoth;
      control.size = static_cast<uint32_t>(message.msg_controllen);
      control.source = reinterpret_cast<uint64_t>(message.msg_control);
      if (both == Way::kBoth) control.target = control.source;
      if (const long code = add(link, control); code != 0) return code;
    }
  }
  Vector vector{.way = way,
                .address = reinterpret_cast<uint64_t>(message.msg_iov),
                .count = message.msg_iovlen,
                .done = done,
                .room = room,
                .is_message = true};
  const long code = plan_iovecs({.in = in, .at = at(offsetof(msghdr, msg_iov)), .to = 0}, vector);
  message.msg_iovlen = vector.count;
  cut_to_ = vector.is_cut ? vector.size : 0;
  return code;
}

long Plan::plan_message(size_t index, const Shape& shape, uint64_t done) {
  const Link link{.in = Link::kArgument, .at = static_cast<uint32_t>(index), .to = 0};
  std::byte* const header = keep(sizeof(msghdr));
  if (!read_guest(arguments_[index], header, sizeof(msghdr))) {
    lose(link);
    return 0;
  }
  Block block;
  // In the header of a message that is received, the kernel stores lengths and flags.
  block.way = shape.way == Way::kIn ? Way::kIn : Way::kBoth;
  block.size = sizeof(msghdr);
  block.source = reinterpret_cast<uint64_t>(header);
  if (shape.way != Way::kIn) block.target = arguments_[index];
  const auto in = static_cast<int>(blocks_.size());
  if (const long code = add(link, block); code != 0) return code;
  return plan_header(in, 0, shape.way, header, done, kMostData);
}

long Plan::plan_messages(size_t index, const Shape& shape) {
  const Link link{.in = Link::kArgument, .at = static_cast<uint32_t>(index), .to = 0};
  const uint64_t count = std::min<uint64_t>(static_cast<uint32_t>(arguments_[shape.from]), IOV_MAX);
  std::byte* const headers = keep(std::max<size_t>(count * sizeof(mmsghdr), 1));
  if (!read_guest(arguments_[index], headers, count * sizeof(mmsghdr))) {
    lose(link);
    return 0;
  }
  Block block;
  block.way = Way::kBoth;
  block.source = reinterpret_cast<uint64_t>(headers);
  block.target = arguments_[index];
  block.size = static_cast<uint32_t>(count * sizeof(mmsghdr));
  const auto in = static_cast<int>(blocks_.size());
  if (const long code = add(link, block); code != 0) return code;
  uint64_t i = 0;
  for (; i < count; ++i) {
    const size_t at = i * sizeof(mmsghdr);
    const uint64_t bytes_before = bytes_;
    const size_t blocks_before = blocks_.size();
    const size_t links_before = links_.size();
    const uint64_t room = kMostData > bytes_ ? kMostData - bytes_ : 0;
    if (room == 0) break;
    if (const long code = plan_header(in, at, shape.way, headers + at, 0, room); code != 0) return code;
    if (cut_to_ != 0 && i > 0) {
      // The message waits for the guest's next call.
      bytes_ = bytes_before;
      blocks_.resize(blocks_before);
      links_.resize(links_before);
      cut_to_ = 0;
      break;
    }
    for (size_t added = blocks_before; added < blocks_.size(); ++added) {
      if (blocks_[added].way != Way::kOut) continue;
      blocks_[added].valid = Block::Valid::kMessage;
      blocks_[added].header = static_cast<uint32_t>(in);
      blocks_[added].message = static_cast<uint32_t>(i);
    }
    if (cut_to_ != 0) {
      ++i;
      break;
    }
  }
  if (i < count) arguments_[shape.from] = i;
  return 0;
}

}  // namespace multigrain::guest
