#include "fabric/wireup/launcher_wireup.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/node_set.h"
#include "base/own_descriptors.h"
#include "fabric/wireup/frames.h"

namespace multigrain {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kWelcomeTimeout{60};

class LauncherWireup final : public Wireup {
 public:
  explicit LauncherWireup(int fd) : stream_(fd, fd) {}

  Status be_welcomed();

  [[nodiscard]] NodeId self() const override { return self_; }
  [[nodiscard]] unsigned nodes() const override { return nodes_; }
  Result<std::vector<Card>> exchange(std::span<const std::byte> card, std::chrono::seconds timeout) override;
  Status finish() override;
  [[nodiscard]] int end_descriptor() const override { return stream_.in(); }

 private:
  using Cards = std::vector<std::optional<Card>>;

  // Returns the next frame; nothing if none came in time.
  Result<std::optional<Frame>> wait_for_frame(Clock::time_point deadline);
  Status take(const Frame& frame);
  [[nodiscard]] Cards& cards_of(uint64_t round) { return cards_[round % cards_.size()]; }
  [[nodiscard]] Status flush(Clock::time_point deadline);

  FrameStream stream_;
  NodeId self_;
  unsigned nodes_ = 0;
  uint64_t round_ = 0;  // number of the current or next exchange
  // The cards of this exchange and of the next: a node that has finished this exchange may be ahead by one.
  std::array<Cards, 2> cards_;
};

Result<std::optional<Frame>> LauncherWireup::wait_for_frame(Clock::time_point deadline) {
  while (true) {
    auto frame = stream_.next();
    if (!frame || *frame) return frame;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return std::nullopt;
    const short events = stream_.queued() != 0 ? POLLIN | POLLOUT : POLLIN;
    pollfd polled{stream_.in(), events, 0};
    if (poll(&polled, 1, static_cast<int>(std::min<int64_t>(left, 1000))) < 0 && errno != EINTR)
      return fail_errno(errno, "cannot wait for the launcher");
    if ((polled.revents & POLLOUT) != 0) stream_.flush();
    if ((polled.revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
    if (stream_.receive()) continue;
    // The launcher may have sent a frame before it closed its end.
    frame = stream_.next();
    if (!frame || *frame) return frame;
    return fail("the launcher (mgrun) is gone");
  }
}

Status LauncherWireup::be_welcomed() {
  const auto frame = wait_for_frame(Clock::now() + kWelcomeTimeout);
  if (!frame) return tl::unexpected<Error>(frame.error());
  if (!*frame) return fail("the launcher (mgrun) has said nothing for {} s", kWelcomeTimeout.count());
  FieldReader fields((*frame)->payload);
  const uint64_t version = fields.number();
  const uint64_t node = fields.number(SmallNodeSet::kCapacity - 1);
  const uint64_t nodes = fields.number(SmallNodeSet::kCapacity);
  if ((*frame)->type != wireup_frame::kWelcome || !fields.complete() || node >= nodes)
    return fail("the launcher's first frame is no welcome: start the program with the mgrun that belongs to it");
  if (version != wireup_frame::kVersion)
    return fail(
        "mgrun wires nodes up by version {} and this library by version {}: start the program with the mgrun "
        "that belongs to it",
        version, wireup_frame::kVersion);
  self_ = NodeId(static_cast<uint16_t>(node));
  nodes_ = static_cast<unsigned>(nodes);
  for (Cards& cards : cards_) cards.resize(nodes_);
  return {};
}

Status LauncherWireup::take(const Frame& frame) {
  FieldReader fields(frame.payload);
  const uint64_t round = fields.number();
  const uint64_t node = fields.number(nodes_ - 1);
  const auto card = fields.blob();
  if (frame.type != wireup_frame::kCard || !fields.complete() || card.size() > kMaxCard)
    return fail("the launcher sent something that is not a node's card");
  if (round != round_ && round != round_ + 1)
    return fail("node {}'s card of exchange {} came in exchange {}", node, round, round_);
  auto& place = cards_of(round)[node];
  if (place) return fail("node {}'s card of exchange {} came twice", node, round);
  place.emplace(card.begin(), card.end());
  return {};
}

Result<std::vector<Card>> LauncherWireup::exchange(std::span<const std::byte> card, std::chrono::seconds timeout) {
  if (card.size() > kMaxCard) return fail("a card of {} bytes; the longest is {}", card.size(), kMaxCard);
  const Clock::time_point deadline = Clock::now() + timeout;
  stream_.send(wireup_frame::kCard, FieldWriter().number(round_).blob(card).payload());
  Cards& cards = cards_of(round_);
  while (std::ranges::any_of(cards, [](const auto& one) { return !one; })) {
    auto frame = wait_for_frame(deadline);
    if (!frame) return tl::unexpected<Error>(frame.error());
    if (!*frame) {
      std::vector<size_t> missing;
      for (size_t node = 0; node < cards.size(); ++node)
        if (!cards[node]) missing.push_back(node);
      return fail("node{} {} did not start within {} s", missing.size() == 1 ? "" : "s", fmt::join(missing, ", "),
                  timeout.count());
    }
    if (const Status taken = take(**frame); !taken) return tl::unexpected<Error>(taken.error());
  }
  std::vector<Card> result;
  result.reserve(cards.size());
  for (auto& one : cards) result.push_back(*std::exchange(one, std::nullopt));
  ++round_;
  return result;
}

Status LauncherWireup::finish() {
  stream_.send(wireup_frame::kFinish);
  return flush(Clock::now() + kWelcomeTimeout);
}

Status LauncherWireup::flush(Clock::time_point deadline) {
  while (stream_.queued() != 0) {
    if (Clock::now() >= deadline) return fail("the launcher (mgrun) does not take what this node tells it");
    pollfd polled{stream_.out(), POLLOUT, 0};
    poll(&polled, 1, 1000);
    stream_.flush();
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Wireup>> open_launcher_wireup(int fd) {
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
    return fail_errno(errno, fmt::format("descriptor {} does not lead to a launcher (MULTIGRAIN_WIREUP)", fd));
  const int kept = own_descriptors::keep(fd);
  if (kept < 0) return fail_errno(errno, "cannot move the descriptor that leads to the launcher");
  auto wireup = std::make_unique<LauncherWireup>(kept);
  if (Status welcomed = wireup->be_welcomed(); !welcomed) return tl::unexpected<Error>(welcomed.error());
  return wireup;
}

}  // namespace multigrain
