#include "report/node_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "fabric/wireup/frames.h"
#include "report/origins.h"
#include "report/symbols.h"

namespace multigrain {
namespace {

// A packed snapshot must fit into a frame. Texts beyond this number of bytes are left out. Numbers alone take less
// than half of a frame.
constexpr size_t kMaxTexts = 96 * 1024;
constexpr size_t kMaxText = 256;
static_assert(Config::kMaxProcessorsPerNode * (8 * 12 + ProcessorStatus::kMaxHeld * 16) + kMaxTexts < kMaxFramePayload);

std::span<const ProcessorStatus> processors_of(const NodeStatus& node) {
  return {node.processor, std::min(node.processors, Config::kMaxProcessorsPerNode)};
}

// Returns the state of a process or thread as the system says it, such as 'R'; 0 if there is none.
char system_state(const std::string& stat) {
  std::ifstream file(stat);
  std::string text;
  std::getline(file, text);
  const size_t name = text.rfind(") ");
  return name != std::string::npos && name + 2 < text.size() ? text[name + 2] : char{0};
}

bool is_stopped(pid_t pid) {
  const char state = system_state(fmt::format("/proc/{}/stat", pid));
  return state == 'T' || state == 't';
}

bool computes(pid_t pid, uint32_t thread) {
  return system_state(fmt::format("/proc/{}/task/{}/stat", pid, thread)) == 'R';
}

unsigned threads_of(pid_t pid) {
  std::error_code error;
  unsigned count = 0;
  for (std::filesystem::directory_iterator at(fmt::format("/proc/{}/task", pid), error), end; !error && at != end;
       at.increment(error))
    ++count;
  return count;
}

}  // namespace

Stillness stillness_of(const NodeStatus& node) {
  Stillness result;
  if (!node.is_attached() || node.leaves.load(std::memory_order_relaxed) != 0) return result;
  uint64_t digest = 1;
  for (const ProcessorStatus& processor : processors_of(node)) {
    const Life life = processor.life.load(std::memory_order_acquire);
    const uint32_t sleeps = processor.sleeps.load(std::memory_order_acquire);
    if (life == Life::kRuns) {
      const bool is_asleep = sleeps % 2 != 0;
      // A processor that polls in a call is about to find what it waits for, or to fall asleep.
      if (!is_asleep && processor.call.load(std::memory_order_relaxed) != Call::kNone) return {};
      result.anyone = result.anyone || is_asleep;
      result.outside = result.outside || !is_asleep;
    }
    digest = digest * 0x9e3779b97f4a7c15u + sleeps * 4u + static_cast<uint64_t>(life) + 1;
    digest = digest * 0x9e3779b97f4a7c15u + processor.steps.load(std::memory_order_relaxed);
  }
  result.still = true;
  result.digest = digest;
  return result;
}

NodeSnapshot take_snapshot(const NodeStatus& node, pid_t pid, std::span<const NodeStatus* const> all) {
  NodeSnapshot snapshot;
  snapshot.node = node.node;
  if (!node.is_attached()) return snapshot;
  snapshot.attached = true;
  snapshot.leaves = node.leaves.load(std::memory_order_relaxed) != 0;
  snapshot.stopped = is_stopped(pid);
  const unsigned threads = threads_of(pid);
  snapshot.other_threads = threads - std::min(threads, node.threads_at_start);
  Symbols symbols = Symbols::of_process(pid);
  const Nanoseconds now = monotonic_ns();
  unsigned number = node.first_processor;
  for (const ProcessorStatus& processor : processors_of(node)) {
    ProcessorSnapshot out;
    out.number = number++;
    out.node = node.node;
    out.life = processor.life.load(std::memory_order_acquire);
    out.call = processor.call.load(std::memory_order_relaxed);
    if (out.call >= Call::kCount) out.call = Call::kNone;
    out.object = processor.object.load(std::memory_order_relaxed);
    out.lock = processor.lock.load(std::memory_order_relaxed);
    out.sleeps = processor.sleeps.load(std::memory_order_relaxed) % 2 != 0;
    if (!out.sleeps && out.life == Life::kRuns)
      out.computes = computes(pid, processor.thread.load(std::memory_order_relaxed));
    if (out.sleeps) {
      const Nanoseconds since = processor.since.load(std::memory_order_relaxed);
      out.slept = since < now ? now - since : 0;
    }
    if (out.call != Call::kNone) {
      out.line = symbols.line_of_call(processor.site.load(std::memory_order_relaxed));
      const auto origin = find_origin(all, out.object);
      if (origin && origin->made != 0) out.made = symbols.line_of_call(origin->made);
    }
    const uint64_t function = processor.function.load(std::memory_order_relaxed);
    if (out.life != Life::kNotStarted) out.function = function != 0 ? symbols.function_at(function) : "main";
    const uint32_t held = std::min(processor.held.load(std::memory_order_acquire), ProcessorStatus::kMaxHeld);
    for (uint32_t i = 0; i < held; ++i) {
      const uint64_t lock = processor.locks[i].lock.load(std::memory_order_relaxed);
      if (lock != 0)
        out.held.push_back({lock, symbols.line_of_call(processor.locks[i].site.load(std::memory_order_relaxed))});
    }
    snapshot.processors.push_back(std::move(out));
  }
  return snapshot;
}

std::vector<std::byte> pack(const NodeSnapshot& snapshot) {
  FieldWriter out;
  out.number(snapshot.node)
      .number(snapshot.attached ? 1 : 0)
      .number(snapshot.leaves ? 1 : 0)
      .number(snapshot.stopped ? 1 : 0)
      .number(snapshot.other_threads)
      .number(snapshot.processors.size());
  size_t texts = 0;
  const auto text = [&](std::string_view value) {
    value = value.substr(0, kMaxText);
    texts += value.size();
    out.text(texts <= kMaxTexts ? value : std::string_view());
  };
  for (const ProcessorSnapshot& processor : snapshot.processors) {
    out.number(processor.number)
        .number(static_cast<uint64_t>(processor.life))
        .number(static_cast<uint64_t>(processor.call))
        .number(processor.object)
        .number(processor.lock)
        .number(processor.sleeps ? 1 : 0)
        .number(processor.slept)
        .number(processor.computes ? 1 : 0);
    text(processor.line);
    text(processor.function);
    text(processor.made);
    out.number(processor.held.size());
    for (const auto& held : processor.held) {
      out.number(held.lock);
      text(held.line);
    }
  }
  const auto bytes = out.payload();
  return {bytes.begin(), bytes.end()};
}

std::optional<NodeSnapshot> unpack(std::span<const std::byte> bytes) {
  FieldReader in(bytes);
  NodeSnapshot snapshot;
  snapshot.node = static_cast<unsigned>(in.number(Config::kMaxNodes - 1));
  snapshot.attached = in.number(1) != 0;
  snapshot.leaves = in.number(1) != 0;
  snapshot.stopped = in.number(1) != 0;
  snapshot.other_threads = static_cast<unsigned>(in.number(UINT32_MAX));
  const uint64_t count = in.number(Config::kMaxProcessorsPerNode);
  for (uint64_t i = 0; i < count; ++i) {
    ProcessorSnapshot processor;
    processor.node = snapshot.node;
    processor.number = static_cast<unsigned>(in.number(uint64_t{Config::kMaxNodes} * Config::kMaxProcessorsPerNode));
    processor.life = static_cast<Life>(in.number(static_cast<uint64_t>(Life::kReturned)));
    processor.call = static_cast<Call>(in.number(static_cast<uint64_t>(Call::kCount) - 1));
    processor.object = in.number();
    processor.lock = in.number();
    processor.sleeps = in.number(1) != 0;
    processor.slept = static_cast<Nanoseconds>(in.number());
    processor.computes = in.number(1) != 0;
    processor.line = in.text();
    processor.function = in.text();
    processor.made = in.text();
    const uint64_t held = in.number(ProcessorStatus::kMaxHeld);
    for (uint64_t j = 0; j < held; ++j) {
      const uint64_t lock = in.number();
      processor.held.push_back({lock, in.text()});
    }
    snapshot.processors.push_back(std::move(processor));
  }
  if (!in.complete()) return std::nullopt;
  return snapshot;
}

}  // namespace multigrain
