// A component accepts messages that no correct node would send, or ends the run with a sentence. It never does anything
// else: it gets no signal but abort's, causes no report of a sanitizer, and runs into no endless loop.
//
// A component is set up over a fabric that only keeps its handlers. Each trial is a forked child that feeds it one
// sequence of messages; the parent looks at how it ended and at what it wrote.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "fabric/fabric.h"

namespace multigrain::testing {

class HostileFabric final : public Fabric {
 public:
  HostileFabric(NodeId self, unsigned nodes) : self_(self), nodes_(nodes) {}

  // Delivers the message as one of `from`. The fabric itself has checked types without a handler, sizes, slices and
  // senders.
  bool deliver(NodeId from, const MessageHeader& header, std::span<const std::byte> payload = {},
               RemoteSlice slice = {}) {
    const auto& [function, context] = handlers_[header.type];
    if (function == nullptr || from == self_ || from.value >= nodes_) return false;
    function(context, Message{from, header, payload, slice});
    return true;
  }
  [[nodiscard]] std::vector<MessageType> types() const {
    std::vector<MessageType> known;
    for (unsigned type = 0; type < handlers_.size(); ++type)
      if (handlers_[type].first != nullptr) known.push_back(static_cast<MessageType>(type));
    return known;
  }

  [[nodiscard]] NodeId self() const override { return self_; }
  [[nodiscard]] unsigned nodes() const override { return nodes_; }
  void put(NodeId, SegmentId, uint64_t, std::span<const std::byte>) override {}
  void get(NodeId, SegmentId, uint64_t, std::span<std::byte> bytes) override {
    std::memset(bytes.data(), 0x5a, bytes.size());
  }
  Completion start_put(NodeId, SegmentId, uint64_t, std::span<const std::byte>) override { return {}; }
  Completion start_get(NodeId from, SegmentId segment, uint64_t offset, std::span<std::byte> bytes) override {
    get(from, segment, offset, bytes);
    return {};
  }
  bool is_complete(Completion) override { return true; }
  void wait(Completion) override {}
  uint64_t fetch_and_set(NodeId, SegmentId, uint64_t, uint64_t) override { return 0; }
  uint64_t fetch_add(NodeId, SegmentId, uint64_t, uint64_t) override { return 0; }
  uint64_t compare_and_swap(NodeId, SegmentId, uint64_t, uint64_t, uint64_t) override { return 0; }
  void set_handler(MessageType type, MessageHandler handler, void* context) override {
    handlers_[type] = {handler, context};
  }
  using Fabric::send;
  void send(NodeId to, const MessageHeader&, std::span<const std::byte>, RemoteSlice, SendContext,
            Nanoseconds) override {
    MG_CHECK(to != self_ && to.value < nodes_, to.value);
    // A component that answers one message with a thousand is caught in a loop, since a node has 64 peers at most.
    if (++sent_ > 1'000'000) panic("a component sends without end");
  }
  unsigned poll() override { return 0; }
  void begin_polling() override {}
  void end_polling() override {}
  void serve() override {}
  void wake_service() override {}

 private:
  NodeId self_;
  unsigned nodes_;
  uint64_t sent_ = 0;
  std::array<std::pair<MessageHandler, void*>, 256> handlers_{};
};

// Returns numbers that code gets wrong: small ones, powers of two and their neighbours, the largest, and any.
inline uint64_t odd_number(std::mt19937_64& random) {
  switch (random() % 6) {
    case 0:
      return random() % 4;
    case 1:
      return random() % 5000;
    case 2:
      return (uint64_t{1} << random() % 64) + random() % 3 - 1;
    case 3:
      return ~uint64_t{0} - random() % 3;
    case 4:
      return random() % (uint64_t{1} << 20);
    default:
      return random();
  }
}

// Changes one field of a header that made sense.
inline void damage(MessageHeader& header, std::mt19937_64& random) {
  const uint64_t value = odd_number(random);
  switch (random() % 6) {
    case 0:
      header.flags = static_cast<uint8_t>(value);
      return;
    case 1:
      header.small = static_cast<uint16_t>(value);
      return;
    case 2:
      header.extra = static_cast<uint32_t>(value);
      return;
    default:
      header.word[random() % 3] = value;
  }
}

struct HostileCounts {
  unsigned accepted = 0;  // trials all of whose messages were accepted
  unsigned ended = 0;     // trials that ended the run
};

// Runs `trial(random)` in a child, once for each seed from 1 on.
inline HostileCounts run_trials(unsigned trials, const std::function<void(std::mt19937_64&)>& trial) {
  HostileCounts counts;
  for (unsigned seed = 1; seed <= trials; ++seed) {
    const int output = memfd_create("output", MFD_CLOEXEC);
    const pid_t child = fork();
    if (child == 0) {
      dup2(output, STDOUT_FILENO);
      dup2(output, STDERR_FILENO);
      alarm(20);
      std::mt19937_64 random(seed);
      trial(random);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    std::string text(static_cast<size_t>(lseek(output, 0, SEEK_END)), '\0');
    EXPECT_EQ(pread(output, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    close(output);
    EXPECT_EQ(text.find("Sanitizer"), std::string::npos) << "seed " << seed << "\n" << text;
    EXPECT_EQ(text.find("runtime error"), std::string::npos) << "seed " << seed << "\n" << text;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
      ++counts.accepted;
      continue;
    }
    ++counts.ended;
    const bool ended_itself =
        (WIFEXITED(status) && WEXITSTATUS(status) == 1) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    EXPECT_TRUE(ended_itself) << "seed " << seed << ", status " << status << "\n" << text;
    EXPECT_EQ(text.rfind("multigrain: node ", 0), 0u) << "seed " << seed << ": it ended without a sentence\n" << text;
    if (::testing::Test::HasFailure()) break;
  }
  return counts;
}

}  // namespace multigrain::testing
