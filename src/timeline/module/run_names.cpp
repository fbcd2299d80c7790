#include "timeline/module/run_names.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "report/origins.h"

namespace multigrain::timeline {
namespace {

// In the order of Category (profile/profile.h).
constexpr std::array kCategories = {"user", "data wait", "lock", "barrier", "protocol", "idle", "system call"};
// In the order of Call (status/node_status.h).
constexpr std::array kCalls = {"call", "lock", "barrier", "condition wait", "lock again", "semaphore", "flag", "join"};
static_assert(kCalls.size() == static_cast<size_t>(Call::kCount));

constexpr uint64_t kPage = 4096;

template <typename Key, typename Make>
const std::string& remembered(std::map<Key, std::string>& names, const Key& key, Make&& make) {
  const auto [place, is_new] = names.try_emplace(key);
  if (is_new) place->second = make();
  return place->second;
}

}  // namespace

std::string category_name(uint8_t category) {
  return category < kCategories.size() ? kCategories[category] : "not measured";
}

std::string call_name(uint8_t call) {
  return call < kCalls.size() ? kCalls[call] : "call";
}

std::string track_name(const WrittenTrack& track) {
  switch (track.owner) {
    case Owner::kProcessor:
      return fmt::format("processor {}", track.number);
    case Owner::kService:
      return fmt::format("service of node {}", track.node);
    case Owner::kThread:
    case Owner::kNone:
      break;
  }
  return fmt::format("thread {}", track.number);
}

RunNames::RunNames(const NodeStatus& own) : own_(own), symbols_(Symbols::of_process(getpid())) {}

std::string RunNames::message(const WrittenRun& run, uint8_t type) {
  const char* const name = run.message_name(type);
  return name != nullptr ? name : fmt::format("message {:#x}", type);
}

std::string RunNames::fault(const Event& event) {
  return fmt::format("{} fault: {}", event.what == 1 ? "write" : "read", block(event.key));
}

const std::string& RunNames::instruction(uint64_t address) {
  return remembered(instructions_, address, [&] { return symbols_.describe_all(address, false).back(); });
}

const std::string& RunNames::call(uint64_t return_address) {
  return remembered(calls_, return_address, [&] { return symbols_.describe_all(return_address, true).back(); });
}

const std::string& RunNames::block(uint64_t address) {
  return remembered(blocks_, address / kPage, [&]() -> std::string {
    const std::array<const NodeStatus*, 1> nodes{&own_};
    const auto found = find_block(nodes, address);
    if (!found || found->size == 0 || address - found->key >= found->size || found->made == 0) return "shared memory";
    return fmt::format("{} bytes of {}", found->size, symbols_.line_of_call(found->made));
  });
}

const std::string& RunNames::object(uint8_t call, uint64_t handle) {
  return remembered(objects_, std::pair(call, handle), [&]() -> std::string {
    if (static_cast<Call>(call) == Call::kJoin) return fmt::format("join of processor {}", handle);
    const std::array<const NodeStatus*, 1> nodes{&own_};
    const auto found = find_origin(nodes, handle);
    if (!found || found->made == 0) return fmt::format("{} {:#x}", call_name(call), handle);
    return fmt::format("{} of {}", call_name(call), symbols_.line_of_call(found->made));
  });
}

}  // namespace multigrain::timeline
