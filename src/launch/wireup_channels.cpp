#include "launch/wireup_channels.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "fabric/wireup/launcher_wireup.h"
#include "launch/tell.h"

namespace multigrain {

Result<int> WireupChannels::open(NodeId node) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno(errno, fmt::format("cannot make a channel to node {}", node.value));
  auto& channel = channels_.try_emplace(node, FrameStream(ends[0], ends[0])).first->second;
  channel.stream.send(wireup_frame::kWelcome,
                      FieldWriter().number(wireup_frame::kVersion).number(node.value).number(nodes_).payload());
  return ends[1];
}

void WireupChannels::append_to(std::vector<pollfd>& polled) const {
  for (const auto& [node, channel] : channels_) {
    const short events = channel.stream.queued() != 0 ? POLLIN | POLLOUT : POLLIN;
    polled.push_back({channel.stream.in(), events, 0});
  }
}

void WireupChannels::handle(const OnCard& on_card) {
  for (auto each = channels_.begin(); each != channels_.end();) {
    const bool keep = handle(each->first, each->second, on_card);
    each = keep ? std::next(each) : channels_.erase(each);
  }
}

bool WireupChannels::handle(NodeId node, Channel& channel, const OnCard& on_card) {
  channel.stream.flush();
  const bool open = channel.stream.receive();
  while (true) {
    const auto frame = channel.stream.next();
    const bool none = frame && !*frame;
    // A node that ends closes its end, too; waitpid says how it ended.
    if (none) return open;
    bool good = static_cast<bool>(frame) && !channel.finished;
    if (good && (*frame)->type == wireup_frame::kFinish) {
      channel.finished = true;
      continue;
    }
    if (good) {
      FieldReader fields((*frame)->payload);
      const uint64_t round = fields.number(kMaxWireupRounds);
      const auto card = fields.blob();
      good = (*frame)->type == wireup_frame::kCard && fields.complete() && card.size() <= Wireup::kMaxCard &&
             round == channel.round;
      if (good) {
        ++channel.round;
        took_part_ |= uint64_t{1} << node.value;
        on_card(node, round, card);
        continue;
      }
    }
    tell("node {} breaks the rules of the wire-up, and is told to end", node.value);
    return false;
  }
}

void WireupChannels::deliver(NodeId from, uint64_t round, std::span<const std::byte> card) {
  for (auto& [node, channel] : channels_) {
    if (channel.finished) continue;
    channel.stream.send(wireup_frame::kCard, FieldWriter().number(round).number(from.value).blob(card).payload());
  }
}

bool WireupChannels::has_taken_part(NodeId node) const {
  return (took_part_ >> node.value & 1) != 0;
}

}  // namespace multigrain
