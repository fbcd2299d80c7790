// mgbench fabric measures what the ucx fabric's operations cost between two processes of this machine.
//
// One process measures. The other is the target, in one of three states: it polls, as a processor that waits does; it
// sleeps; or it computes, so that only its service thread answers. UCX chooses the transport: set UCX_TLS (tcp, or
// posix,cma). Compare, in the same minute and with the same UCX_TLS, with ucx_perftest (package ucx-utils):
//
//   ucx_perftest & ucx_perftest 127.0.0.1 -t ucp_am_lat -s 64      one way; at best a page fetch takes this time
//   ucx_perftest & ucx_perftest 127.0.0.1 -t ucp_am_lat -s 4096    and this time together
//   ucx_perftest & ucx_perftest 127.0.0.1 -t ucp_get -s 65536 -O 16
//
// Over TCP the figures of ucp_get with one operation at a time are useless: ucx_perftest's target makes
// no progress (1 ms).
//
// mgbench fabric prints a line for each operation: name, median and 99th percentile in microseconds (or MB/s for the
// last rows), count.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/quantity.h"
#include "base/secret.h"
#include "commands.h"
#include "fabric/ucx/ucx_fabric.h"
#include "fabric/wait.h"
#include "fabric/wireup/wireup.h"

namespace multigrain::bench {
namespace {

constexpr uint64_t kFrames = uint64_t{128} << 20;
constexpr size_t kPage = 4096;
constexpr MessageType kRequest = message_range::kTest;  // requests the page `word[0]`
constexpr MessageType kReply = message_range::kTest + 1;
constexpr MessageType kPing = message_range::kTest + 2;

enum class Target : uint32_t { kStarting, kPolls, kSleeps, kComputes, kEnds };

// The memory that the two processes share beside the network: cards at the start, and the state that the
// target is to take.
struct Shared {
  std::atomic<uint32_t> length[2];  // the length of each card, plus 1; 0: the card is not there yet
  std::byte card[2][32 * 1024];
  std::atomic<Target> wanted;
  std::atomic<Target> is;
};

// Makes one exchange of cards, as a fabric needs no more.
class SharedWireup final : public Wireup {
 public:
  SharedWireup(Shared& shared, unsigned self) : shared_(shared), self_(self) {}
  [[nodiscard]] NodeId self() const override { return NodeId(static_cast<uint16_t>(self_)); }
  [[nodiscard]] unsigned nodes() const override { return 2; }
  Result<std::vector<Card>> exchange(std::span<const std::byte> card, std::chrono::seconds) override {
    MG_CHECK(shared_.length[self_].load() == 0);
    if (card.size() > sizeof shared_.card[0]) return fail("a card of {} bytes is too long", card.size());
    std::memcpy(shared_.card[self_], card.data(), card.size());
    shared_.length[self_].store(static_cast<uint32_t>(card.size()) + 1);
    std::vector<Card> cards;
    for (unsigned n = 0; n < 2; ++n) {
      while (shared_.length[n].load() == 0) usleep(100);
      cards.emplace_back(shared_.card[n], shared_.card[n] + shared_.length[n].load() - 1);
    }
    return cards;
  }
  Status finish() override { return {}; }

 private:
  Shared& shared_;
  unsigned self_;
};

struct Node {
  Shared* shared = nullptr;
  std::shared_ptr<const Secret<JobSecret>> secret;  // drawn before the two processes part
  std::unique_ptr<UcxFabric> fabric;
  std::byte* frames = nullptr;
  EventCount event;
  std::atomic<uint64_t> replies{0};
  std::atomic<uint64_t> pings{0};
};
Node g_node;
unsigned g_rounds = 3000;  // of each operation

void join(unsigned self) {
  UcxOptions options;
  options.self = NodeId(static_cast<uint16_t>(self));
  options.hosts = {"here", "here"};
  options.region_size = kFrames;
  options.silence_limit = 0;
  options.secret = std::move(g_node.secret);
  auto fabric = load_ucx_fabric(options);
  if (!fabric) {
    fmt::print(stderr, "mgbench fabric: {}\n", fabric.error().message);
    std::exit(1);
  }
  g_node.fabric = std::move(*fabric);
  g_node.frames = static_cast<std::byte*>(
      mmap(nullptr, kFrames, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
  g_node.fabric->export_segment(SegmentId::kFrames, g_node.frames, kFrames);
  SharedWireup wireup(*g_node.shared, self);
  if (Status connected = g_node.fabric->connect(wireup); !connected) {
    fmt::print(stderr, "mgbench fabric: {}\n", connected.error().message);
    std::exit(1);
  }
  g_node.fabric->set_handler(
      kRequest,
      [](void*, const Message& message) {
        g_node.fabric->send(message.from, {.type = kReply}, {},
                            {SegmentId::kFrames, message.header.word[0] * kPage, static_cast<uint32_t>(kPage)},
                            SendContext::kHandler);
      },
      nullptr);
  g_node.fabric->set_handler(
      kReply,
      [](void*, const Message& message) {
        // The page goes into this node's frame.
        g_node.fabric->fetch(message, {g_node.frames + message.slice.offset, message.slice.length});
        g_node.replies.fetch_add(1);
        g_node.event.notify();
      },
      nullptr);
  g_node.fabric->set_handler(
      kPing,
      [](void*, const Message& message) {
        if (message.header.flags != 0) g_node.fabric->send(message.from, {.type = kPing}, SendContext::kHandler);
        g_node.pings.fetch_add(1);
        g_node.event.notify();
      },
      nullptr);
}

void start_service() {
  std::thread([] {
    // The service threads must have a higher priority than the processors, even if the user runs this program with
    // real-time priority to get clean figures.
    const sched_param lowest{.sched_priority = sched_get_priority_min(SCHED_RR) + 1};
    if (pthread_setschedparam(pthread_self(), SCHED_RR, &lowest) != 0)
      fmt::print(stderr, "mgbench fabric: the service threads run without real-time priority\n");
    while (true) g_node.fabric->serve();
  }).detach();
}

[[noreturn]] void be_target() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  join(1);
  start_service();
  Shared& shared = *g_node.shared;
  volatile uint64_t work = 0;
  while (true) {
    const Target wanted = shared.wanted.load();
    shared.is.store(wanted);
    switch (wanted) {
      case Target::kPolls: {
        const PollingScope polling(*g_node.fabric);
        while (shared.wanted.load() == wanted) g_node.fabric->poll();
        break;
      }
      case Target::kComputes:
        while (shared.wanted.load() == wanted)
          for (int i = 0; i < 1000; ++i) work = work + 1;
        break;
      case Target::kStarting:
      case Target::kSleeps:
        while (shared.wanted.load() == wanted) usleep(1000);
        break;
      case Target::kEnds:
        _exit(0);
    }
  }
}

void want(Target target) {
  g_node.shared->wanted.store(target);
  while (g_node.shared->is.load() != target) usleep(100);
}

template <typename Operation>
void measure(const std::string& name, unsigned rounds, Operation&& operation, double scale = 1) {
  std::vector<double> samples;
  for (unsigned i = 0; i < rounds + rounds / 10; ++i) {
    const Nanoseconds start = monotonic_ns();
    operation(i);
    const auto taken = static_cast<double>(monotonic_ns() - start);
    if (i >= rounds / 10) samples.push_back(taken / 1000 * scale);
  }
  std::sort(samples.begin(), samples.end());
  fmt::print("{}\t{:.2f}\t{:.2f}\t{}\n", name, samples[samples.size() / 2], samples[samples.size() * 99 / 100],
             samples.size());
  std::fflush(stdout);
}

void measure_against(const char* how) {
  UcxFabric& fabric = *g_node.fabric;
  const NodeId peer(1);
  const WaitPolicy policy{static_cast<uint64_t>(ticks_per_us() * 200)};
  std::vector<std::byte> page(kPage);
  const std::string suffix = fmt::format(", target {}", how);
  measure(
      "message, one way" + suffix, g_rounds,
      [&](unsigned) {
        const uint64_t before = g_node.pings.load();
        PollingScope polling(fabric);
        fabric.send(peer, {.type = kPing, .flags = 1}, SendContext::kOrdinary);
        wait_until(polling, policy, g_node.event, [&] { return g_node.pings.load() != before; });
      },
      0.5);
  measure("page fetch by message" + suffix, g_rounds, [&](unsigned i) {
    const uint64_t before = g_node.replies.load();
    PollingScope polling(fabric);
    fabric.send(peer, {.type = kRequest, .word = {i % 4096}}, SendContext::kOrdinary);
    wait_until(polling, policy, g_node.event, [&] { return g_node.replies.load() != before; });
  });
  measure("get of 8 B" + suffix, g_rounds,
          [&](unsigned i) { fabric.get(peer, SegmentId::kFrames, kPage * (i % 4096), {page.data(), 8}); });
  measure("get of 4 KiB" + suffix, g_rounds,
          [&](unsigned i) { fabric.get(peer, SegmentId::kFrames, kPage * (i % 4096), page); });
  measure("put of 4 KiB" + suffix, g_rounds,
          [&](unsigned i) { fabric.put(peer, SegmentId::kFrames, kPage * (i % 4096), page); });
  // Diffs are such runs: short ones all over a page.
  for (const unsigned pieces : {1u, 8u, 64u}) {
    std::vector<Piece> runs;
    runs.reserve(pieces);
    for (unsigned i = 0; i < pieces; ++i) runs.push_back({page.data(), i * static_cast<uint32_t>(kPage / pieces), 16});
    measure(fmt::format("scattered put of {} x 16 B", pieces) + suffix, g_rounds, [&](unsigned i) {
      fabric.wait(fabric.start_put_pieces(peer, SegmentId::kFrames, kPage * (i % 4096), runs));
    });
  }
  measure("fetch_add" + suffix, g_rounds, [&](unsigned) { fabric.fetch_add(peer, SegmentId::kWords, 64, 1); });
}

// Measures the bandwidth of `go`, in MB a second.
template <typename Go>
void bandwidth(const std::string& name, uint64_t bytes, Go&& go) {
  std::vector<double> samples;
  for (unsigned i = 0; i < 9; ++i) {
    const Nanoseconds start = monotonic_ns();
    go();
    samples.push_back(static_cast<double>(bytes) * 1000 / static_cast<double>(monotonic_ns() - start));
  }
  std::sort(samples.begin(), samples.end());
  fmt::print("{}, MB/s\t{:.0f}\t{:.0f}\t{}\n", name, samples[samples.size() / 2], samples.front(), samples.size());
  std::fflush(stdout);
}

void measure_bandwidth() {
  UcxFabric& fabric = *g_node.fabric;
  const NodeId peer(1);
  constexpr uint64_t kBytes = uint64_t{64} << 20;
  for (const size_t piece : {kPage, size_t{65536}, size_t{1} << 20}) {
    bandwidth(fmt::format("started gets of {} B, 64 MiB", piece), kBytes, [&] {
      const PollingScope polling(fabric);  // so that replies do not wake the service thread
      std::vector<Completion> under_way;
      for (uint64_t at = 0; at < kBytes; at += piece)
        under_way.push_back(fabric.start_get(peer, SegmentId::kFrames, at, {g_node.frames + at, piece}));
      for (const Completion one : under_way) fabric.wait(one);
    });
  }
  for (const uint64_t ahead : {16u, 64u}) {
    bandwidth(fmt::format("page fetches by message, {} at a time, 64 MiB", ahead), kBytes, [&] {
      const uint64_t before = g_node.replies.load();
      const PollingScope polling(fabric);
      for (uint64_t i = 0; i < kBytes / kPage; ++i) {
        fabric.send(peer, {.type = kRequest, .word = {i}}, SendContext::kOrdinary);
        while (before + i + 1 - g_node.replies.load() >= ahead) fabric.poll();
      }
      while (g_node.replies.load() != before + kBytes / kPage) fabric.poll();
    });
  }
}

int measure_fabric() {
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mgbench fabric: mmap");
    return 1;
  }
  g_node.shared = static_cast<Shared*>(memory);
  auto secret = std::make_shared<Secret<JobSecret>>();
  if (getentropy((**secret).data(), sizeof(JobSecret)) != 0) {
    std::perror("mgbench fabric: getentropy");
    return 1;
  }
  g_node.secret = std::move(secret);
  // This calls fork(), because the other process is a copy of this one and runs no other program.
  const pid_t child = fork();
  if (child == 0) be_target();
  join(0);
  start_service();
  fmt::print(stderr, "over {}\n", g_node.fabric->description());
  want(Target::kPolls);
  measure_against("polls");
  measure_bandwidth();
  want(Target::kSleeps);
  measure_against("sleeps");
  want(Target::kComputes);
  measure_against("computes");
  want(Target::kEnds);
  waitpid(child, nullptr, 0);
  // The service thread still runs, so destructors must not free the objects that it uses.
  _exit(std::fflush(stdout) == 0 ? 0 : 1);
}

}  // namespace

Command add_fabric(CLI::App& app) {
  CLI::App* const command = app.add_subcommand("fabric", "the operations of the ucx fabric by themselves");
  command->footer(
      "Between two processes of this machine, while the target polls, sleeps and computes. UCX_TLS and UCX_NET_DEVICES "
      "choose the transport, for example UCX_TLS=tcp,self.");
  command->add_option("rounds", g_rounds, "of each operation, from 10 on")
      ->type_name("ROUNDS")
      ->capture_default_str()
      ->check([](const std::string& text) {
        const auto rounds = parse_whole(text, 1'000'000);
        return rounds && *rounds >= 10 ? std::string() : "'" + text + "' is not a number of rounds from 10 to 1000000";
      });
  return {command, &measure_fabric};
}

}  // namespace multigrain::bench
