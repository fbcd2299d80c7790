#include "guest/package.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "guest/areas.h"
#include "guest/entry.h"

namespace multigrain::guest {
namespace {

// This address is in the kernel's half, where a process can have nothing.
constexpr uint64_t kFaults = 0xffff'8000'0000'0000;
// Offsets below this are arguments.
constexpr uint32_t kArguments = 6;
constexpr size_t kSmallAlignment = 16;

constexpr size_t round_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

// Reads as many bytes as can be read from there, and returns how many. A page can be read as a whole, or not at all.
size_t read_what_is_there(uint64_t address, std::byte* to, size_t bytes) {
  if (read_guest(address, to, bytes)) return bytes;
  size_t done = 0;
  while (done < bytes) {
    const size_t chunk = std::min(size_t{kPageSize - (address + done) % kPageSize}, bytes - done);
    if (!read_guest(address + done, to + done, chunk)) break;
    done += chunk;
  }
  return done;
}

}  // namespace

long Package::pack(const Call& call, uint64_t done) {
  if (const long code = plan_.make(call, done); code != 0) return code;
  if (!lay_out()) return -ENOMEM;
  for (Block& block : plan_.blocks()) fill(block);
  connect();
  before_.assign(bytes_ + header().both, bytes_ + header().written);
  return 0;
}

bool Package::reserve(size_t bytes) {
  if (bytes <= sizeof small_) return true;
  large_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, round_up(bytes, kAlignment))));
  if (large_ == nullptr) return false;
  bytes_ = large_.get();
  return true;
}

bool Package::lay_out() {
  size_t end = sizeof(Header) + plan_.links().size() * sizeof(WireLink);
  const auto place = [&end](Block& block) {
    end = round_up(end, block.size < kAlignment ? kSmallAlignment : kAlignment);
    block.offset = static_cast<uint32_t>(end);
    end += block.size;
  };
  const auto part = [&](auto&& belongs) {
    end = round_up(end, kSmallAlignment);
    const size_t begin = end;
    for (Block& block : plan_.blocks())
      if (belongs(block)) place(block);
    return static_cast<uint32_t>(begin);
  };
  Header laid{};
  laid.number = plan_.number();
  std::ranges::copy(plan_.arguments(), laid.arguments);
  laid.links = static_cast<uint32_t>(plan_.links().size());
  laid.data = part([](const Block& block) { return block.way == Way::kIn; });
  laid.both = part([](const Block& block) { return block.way == Way::kBoth; });
  const auto is_counted = [](const Block& block) {
    return block.way == Way::kOut && block.valid == Block::Valid::kResult;
  };
  laid.written = part([&](const Block& block) { return block.way == Way::kOut && !is_counted(block); });
  part(is_counted);
  laid.end = static_cast<uint32_t>(round_up(end, kSmallAlignment));
  if (const auto counted = std::ranges::find_if(plan_.blocks(), is_counted); counted != plan_.blocks().end()) {
    laid.counted = counted->offset;
    laid.before = counted->before;
    laid.unit = counted->unit;
  }
  if (!reserve(laid.end)) return false;
  header() = laid;
  return true;
}

void Package::fill(Block& block) {
  if (block.way == Way::kOut) return;
  std::byte* to = bytes_ + block.offset;
  if (block.is_what_is_there) {
    const size_t read = read_what_is_there(block.source, to, block.size);
    std::memset(to + read, 0, block.size - read);
    block.is_lost = read == 0 && block.size > 0;
    block.present = static_cast<uint32_t>(read);
    return;
  }
  block.present = block.size;
  if (block.pieces > 0) {
    for (uint32_t i = 0; i < block.pieces && !block.is_lost; ++i) {
      const Piece& piece = plan_.pieces()[block.first_piece + i];
      block.is_lost = !read_guest(piece.address, to, piece.size);
      to += piece.size;
    }
    return;
  }
  block.is_lost = block.size > 0 && !read_guest(block.source, to, block.size);
  // The string has been read twice, and may have changed in between.
  if (block.is_string) to[block.size - 1] = std::byte{0};
}

void Package::connect() {
  std::span<WireLink> wire = links();
  for (size_t i = 0; i < wire.size(); ++i) {
    const Link& link = plan_.links()[i];
    const auto& blocks = plan_.blocks();
    const bool is_lost = link.to == Link::kNowhere || blocks[static_cast<size_t>(link.to)].is_lost;
    wire[i].target = is_lost ? kNowhere : blocks[static_cast<size_t>(link.to)].offset;
    wire[i].place = link.in == Link::kArgument ? link.at : blocks[static_cast<size_t>(link.in)].offset + link.at;
  }
}

std::span<const std::byte> Package::request() const {
  return {bytes_, header().written};
}

bool Package::take_request(std::span<const std::byte> request) {
  Header given;
  if (request.size() < sizeof given) return false;
  std::memcpy(&given, request.data(), sizeof given);
  if (given.end > Plan::kMostBytes * 2 || request.size() > given.end || !reserve(given.end)) return false;
  std::memcpy(bytes_, request.data(), request.size());
  if (!is_sound(request.size())) return false;
  // Where the call does not write, there must not be what another call has left here.
  std::memset(bytes_ + given.written, 0, given.end - given.written);
  return true;
}

bool Package::is_sound(size_t bytes) {
  const Header& given = header();
  const size_t links_end = sizeof(Header) + size_t{given.links} * sizeof(WireLink);
  const bool is_ordered = links_end <= given.data && given.data <= given.both && given.both <= given.written &&
                          given.written <= given.end && given.written == bytes && given.counted <= given.end &&
                          (given.counted == 0 || given.counted >= given.written);
  if (!is_ordered) return false;
  return std::ranges::all_of(links(), [&given](const WireLink& link) {
    const bool is_place =
        link.place < kArguments || (link.place >= given.data && link.place <= given.written - sizeof(uint64_t));
    return is_place && (link.target == kNowhere || (link.target >= given.data && link.target <= given.end));
  });
}

std::byte* Package::contents(size_t argument) {
  for (const WireLink& link : links())
    if (link.place == argument) return link.target == kNowhere ? nullptr : bytes_ + link.target;
  return nullptr;
}

long Package::carry_out(ThreadBlock& thread) {
  for (const WireLink& link : links()) {
    const uint64_t address = link.target == kNowhere ? kFaults : reinterpret_cast<uint64_t>(bytes_ + link.target);
    if (link.place < kArguments)
      header().arguments[link.place] = address;
    else
      std::memcpy(bytes_ + link.place, &address, sizeof address);
  }
  return pass_call(header().number, header().arguments, thread);
}

std::span<const std::byte> Package::reply(long result) const {
  const Header& made = header();
  size_t end = made.end;
  if (result < 0)
    end = made.written;
  else if (made.counted != 0 && static_cast<uint64_t>(result) < Plan::kMostBytes)
    end = std::min<size_t>(end, made.counted + made.before + static_cast<size_t>(result) * made.unit);
  return {bytes_ + made.both, end - made.both};
}

bool Package::take_reply(std::span<const std::byte> reply) {
  const Header& made = header();
  if (reply.size() > made.end - made.both || reply.size() < made.written - made.both) return false;
  if (!reply.empty()) std::memcpy(bytes_ + made.both, reply.data(), reply.size());
  return true;
}

long Package::unpack(long result) {
  // The addresses that carry_out() has stored are no changes by the call.
  for (const WireLink& link : links())
    if (link.place >= header().both && link.place < header().written)
      std::memcpy(bytes_ + link.place, &before_[link.place - header().both], sizeof(uint64_t));
  bool is_stored = true;
  for (const Block& block : plan_.blocks())
    if (!block.is_lost && !store(block, result) && !block.may_stay) is_stored = false;
  return is_stored || result < 0 ? result : -EFAULT;
}

size_t Package::valid_bytes(const Block& block, long result) const {
  if (result < 0) return 0;
  const auto count = static_cast<uint64_t>(result);
  switch (block.valid) {
    case Block::Valid::kAll:
      return block.size;
    case Block::Valid::kResult:
      return count >= block.size ? block.size : std::min<size_t>(block.size, block.before + count * block.unit);
    case Block::Valid::kMessage: {
      if (count <= block.message) return 0;
      uint32_t length = 0;
      const size_t at =
          plan_.blocks()[block.header].offset + block.message * sizeof(mmsghdr) + offsetof(mmsghdr, msg_len);
      std::memcpy(&length, bytes_ + at, sizeof length);
      return std::min<size_t>(length, block.size);
    }
  }
  return 0;
}

bool Package::store(const Block& block, long result) const {
  if (block.way == Way::kBoth) return block.target == 0 || store_changes(block);
  if (block.way != Way::kOut) return true;
  const size_t bytes = valid_bytes(block, result);
  if (bytes == 0) return true;
  return block.pieces > 0 ? scatter(block, bytes) : write_guest(block.target, bytes_ + block.offset, bytes);
}

// Stores only the bytes that have changed: another thread may have written those between them meanwhile.
bool Package::store_changes(const Block& block) const {
  const std::byte* const now = bytes_ + block.offset;
  const std::byte* const before = before_.data() + (block.offset - header().both);
  size_t at = 0;
  while (true) {
    at = static_cast<size_t>(std::mismatch(now + at, now + block.present, before + at).first - now);
    if (at == block.present) return true;
    size_t end = at;
    while (end < block.present && now[end] != before[end]) ++end;
    if (!write_guest(block.target + at, now + at, end - at)) return false;
    at = end;
  }
}

bool Package::scatter(const Block& block, size_t bytes) const {
  const std::byte* from = bytes_ + block.offset;
  for (uint32_t i = 0; i < block.pieces && bytes > 0; ++i) {
    const Piece& piece = plan_.pieces()[block.first_piece + i];
    const size_t size = std::min<size_t>(piece.size, bytes);
    if (!write_guest(piece.address, from, size)) return false;
    from += size;
    bytes -= size;
  }
  return true;
}

}  // namespace multigrain::guest
