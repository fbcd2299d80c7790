#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <memory>

#include "count/abi.h"
#include "counted.h"
#include "fabric/emulation/emulation.h"
#include "fabric/emulation/ordered_fabric.h"
#include "fabric/shm/shm_fabric.h"
#include "profile/virtual_time.h"

namespace multigrain::bench {
namespace {

constexpr size_t kFetchedWord = 8, kFetchedPage = 4096;
constexpr unsigned kNodes = 2;
// So many operations under way make a stream.
constexpr unsigned kStream = 64;

// Ends mgbench if there is no result.
template <typename T>
T required(Result<T> result) {
  if (result) return std::move(*result);
  fmt::print(stderr, "mgbench: {}\n", result.error().message);
  std::exit(1);
}

}  // namespace

RemoteOperations measure_remote_operations(const MachineDescription& machine) {
  JobMemory job = required(JobMemory::map(required(create_job_memory({.nodes = kNodes}))));
  const Emulation emulation(job.emulation(), kNodes, kNodes);
  // This code is not counted, so that its own time is 0 and what remains is the operations'.
  static mg_count count{};
  virtual_time::start(emulation.clocks(),
                      {.processors = 1, .costs = &machine.costs, .count = []() -> mg_count& { return count; }});
  virtual_time::adopt(0);
  auto shm = required(ShmFabric::attach(job.borrow(), NodeId(0), {}, 0));
  shm->carry_arrivals();
  ShmFabric& inner = *shm;
  OrderedFabric fabric(std::move(shm), inner, machine.network, emulation.nodes(), 1, 1);
  const virtual_time::WorkFor processor(0);

  constexpr NodeId kOther{1};
  std::array<std::byte, kFetchedPage> bytes{};
  const auto send = [&](size_t length) {
    return fabric.start_put(kOther, SegmentId::kWords, 0, std::span<const std::byte>(bytes).first(length));
  };
  const auto fetch = [&](size_t length) {
    return fabric.start_get(kOther, SegmentId::kWords, 0, std::span(bytes).first(length));
  };
  const auto one = [&](const auto& start, size_t length) {
    const Nanoseconds began = virtual_time::now();
    const Completion completion = start(length);
    fabric.wait(completion);
    return static_cast<double>(completion.id - began);
  };
  const auto rate = [&](const auto& start) {
    std::array<Completion, kStream> all;
    for (Completion& completion : all) completion = start(kFetchedPage);
    for (const Completion& completion : all) fabric.wait(completion);
    return static_cast<double>((kStream - 1) * kFetchedPage) / static_cast<double>(all.back().id - all.front().id);
  };
  // A put is complete when its acknowledgement has come, one latency after the data have arrived.
  const auto acknowledgement = static_cast<double>(machine.network.latency_ns);
  return {.word_send = one(send, kFetchedWord) - acknowledgement,
          .word_fetch = one(fetch, kFetchedWord),
          .page_send = one(send, kFetchedPage) - acknowledgement,
          .page_fetch = one(fetch, kFetchedPage),
          .send_rate = rate(send),
          .fetch_rate = rate(fetch)};
}

}  // namespace multigrain::bench
