// These test the MGS driver among nodes that send anything.
#include "../fabric/hostile.h"
#include "coherence/mgs/driver.h"
#include "coherence/mgs/message_types.h"

namespace multigrain::mgs {
namespace {

using testing::damage;
using testing::HostileCounts;
using testing::HostileFabric;
using testing::odd_number;
using testing::run_trials;

constexpr unsigned kNodes = 3;
constexpr uint64_t kRegion = uint64_t{16} << 20;
constexpr size_t kPage = 4096;
constexpr uint64_t kAllocated = 64;  // pages

class SomeHomes final : public HomeDirectory {
 public:
  std::optional<NodeId> home_of(PageId page) override {
    if (page.value >= kAllocated) return std::nullopt;
    return NodeId(static_cast<uint16_t>(page.value % kNodes));
  }
  bool is_first_touch(PageId page) override { return page.value >= kAllocated && page.value < 2 * kAllocated; }
  std::optional<NodeId> claim_home(PageId page) override { return home_of(page); }
};

struct Node {
  explicit Node(NodeId self) : fabric(self, kNodes) {
    auto made = Region::create(kRegion, kPage, -1);
    if (!made) panic("no region");
    region.emplace(std::move(*made));
    auto chosen = choose(AccessMechanism::kMprotect, *region, nullptr);
    if (!chosen) panic("no access rights");
    rights = std::move(*chosen);
    auto built = Driver::create(NodeServices{fabric, *region, *rights, homes, wait}, {});
    if (!built) panic("no driver");
    driver = std::move(*built);
  }
  SomeHomes homes;
  HostileFabric fabric;
  WaitPolicy wait;
  std::optional<Region> region;
  std::unique_ptr<AccessRights> rights;
  std::unique_ptr<Driver> driver;
};

// Makes a diff that is right, or nearly.
std::vector<std::byte> diff(std::mt19937_64& random) {
  alignas(64) static std::byte page[kPage];
  alignas(64) static const std::byte twin[kPage]{};
  std::memset(page, 0, kPage);
  std::vector<std::byte> out(max_encoded_size(kPage));
  for (uint64_t n = random() % 600; n != 0; --n) page[random() % kPage] = static_cast<std::byte>(random());
  out.resize(encode_diff(page, twin, kPage, out));
  if (out.empty()) return out;
  for (uint64_t n = random() % 3; n != 0; --n) out[random() % out.size()] = static_cast<std::byte>(random());
  if (random() % 4 == 0) out.resize(random() % (2 * out.size()));
  return out;
}

void trial_of(NodeId self, std::mt19937_64& random, unsigned wrong_of_8, uint64_t pages) {
  Node node(self);
  for (int i = 0; i < 60; ++i) {
    MessageHeader header;
    header.type =
        static_cast<MessageType>(message_range::kMgs + random() % static_cast<unsigned>(MessageKind::kKindCount));
    header.word[0] = random() % pages;
    RemoteSlice slice;
    std::vector<std::byte> payload;
    if (random() % 2 == 0) slice = {SegmentId::kFrames, header.word[0] * kPage, kPage};
    if (random() % 2 == 0) payload = diff(random);
    if (random() % 8 < wrong_of_8) {
      // The fabric has checked that a slice lies in its sender's memory, and no more.
      if (random() % 2 == 0)
        damage(header, random);
      else
        slice = {static_cast<SegmentId>(random() % 2), odd_number(random) % kRegion,
                 static_cast<uint32_t>(odd_number(random) % (1u << 20))};
    }
    node.fabric.deliver(NodeId(static_cast<uint16_t>(random() % kNodes)), header, payload, slice);
  }
}

TEST(MgsHostile, AcceptsOrEndsWithASentence) {
  for (const uint16_t self : {uint16_t{0}, uint16_t{1}}) {
    const HostileCounts counts =
        run_trials(200, [self](std::mt19937_64& random) { trial_of(NodeId(self), random, 1, 2 * kAllocated); });
    EXPECT_GT(counts.ended, 100u);
  }
}

TEST(MgsHostile, RequestsThatAreLegalByThemselves) {
  // The home gets requests, notifications and answers about few pages, so that sequences go deep before one is refused.
  const HostileCounts counts = run_trials(400, [](std::mt19937_64& random) {
    Node node(NodeId(0));
    constexpr MessageKind kToHome[] = {MessageKind::kRreq, MessageKind::kRreq,    MessageKind::kWreq,
                                       MessageKind::kRel,  MessageKind::kWnotify, MessageKind::kAck,
                                       MessageKind::kDiff, MessageKind::k1wdata,  MessageKind::kAck1w};
    for (uint64_t i = 1 + random() % 12; i != 0; --i) {
      MessageHeader header;
      header.type =
          static_cast<MessageType>(message_range::kMgs + static_cast<unsigned>(kToHome[random() % std::size(kToHome)]));
      header.word[0] = 3 * (random() % 8);
      const auto payload = diff(random);
      node.fabric.deliver(NodeId(static_cast<uint16_t>(1 + random() % 2)), header, payload,
                          {SegmentId::kFrames, header.word[0] * kPage, kPage});
    }
  });
  EXPECT_GT(counts.ended, 50u);
  EXPECT_GT(counts.accepted, 5u);
}

}  // namespace
}  // namespace multigrain::mgs
