#include "fabric/ucx/ucp_fabric.h"

#include <sys/mman.h>

#include <utility>
#include <vector>

#include "base/clock.h"
#include "fabric/ucx/descriptors.h"
#include "fabric/ucx/gate.h"
#include "fabric/ucx/job_secret.h"
#include "fabric/ucx/ucx_module.h"

namespace multigrain::ucx {
namespace {

// A node that ends waits for at most this long until the other nodes have been told.
constexpr Nanoseconds kDisconnectGrace = 100'000'000;

}  // namespace

UcpFabric::UcpFabric(const UcxOptions& options) : parts_(options) {
  madvise(static_cast<void*>(this), sizeof *this, MADV_DONTDUMP);  // it holds the keys of the pairs
  parts_.context.self = options.self.value;
  parts_.context.nodes = static_cast<uint16_t>(options.hosts.size());
  parts_.context.segment_bytes = {options.region_size, options.words_bytes, options.lines_bytes, options.pages_bytes};
}

Result<std::unique_ptr<UcxFabric>> UcpFabric::open(const UcxOptions& options) {
  if (options.hosts.empty() || options.hosts.size() > SmallNodeSet::kCapacity)
    return fail("a run has 1 to {} nodes, not {}", SmallNodeSet::kCapacity, options.hosts.size());
  if (options.self.value >= options.hosts.size())
    return fail("node {} cannot join a run of {} nodes", options.self.value, options.hosts.size());
  set_panic_node(options.self.value);
  if (options.enter_library != nullptr) options.enter_library();
  std::unique_ptr<UcpFabric> fabric(new UcpFabric(options));
  Status started = fabric->start();
  if (options.leave_library != nullptr) options.leave_library();
  if (!started) return tl::unexpected(started.error());
  return fabric;
}

Status UcpFabric::start() {
  UcxOptions& options = parts_.options;
  WireContext& context = parts_.context;
  ucx_descriptors::use(options.lowest_descriptor, options.keep_descriptor);
  // All of UCX's libraries are loaded before the gate is put below them, and the gate is there before UCX listens.
  const std::vector<std::string> available = available_transports();
  if (Status gated = install_gate(**options.secret, context.self, options.interface); !gated) return gated;
  gate_installed_ = true;
  for (unsigned n = 0; n < context.nodes; ++n) {
    context.key[n] = pair_key(**options.secret, n, context.self);
    parts_.peers[n].connection.key = pair_key(**options.secret, context.self, n);
  }
  options.secret.reset();
  if (Status opened = parts_.worker.open(available); !opened) return opened;
  if (Status opened = parts_.receiver.open(); !opened) return opened;
  if (Status opened = parts_.polling.open(); !opened) return opened;
  return parts_.segments.open();
}

Status UcpFabric::connect(Wireup& wireup) {
  MG_CHECK(!parts_.connected);
  for (const SegmentId segment : {SegmentId::kFrames, SegmentId::kLines})
    MG_CHECK(parts_.context.segment_bytes[index(segment)] == 0 ||
             parts_.segments.exported()[index(segment)].base != nullptr);
  Status connected = parts_.endpoints.connect(wireup);
  if (connected) parts_.connected = true;
  return connected;
}

UcpFabric::~UcpFabric() {
  Worker& worker = parts_.worker;
  if (worker.stopped()) return;  // other threads wait inside for the end of the process
  worker.enter_library();
  if (worker.worker() != nullptr) {
    const UcxLock lock(parts_);
    close_ucx();
  }
  worker.destroy_context();
  if (gate_installed_) remove_gate();
  worker.leave_library();
  parts_.segments.close();
  parts_.polling.close();
}

void UcpFabric::close_ucx() {
  if (parts_.connected && !parts_.failures.to_report()) parts_.endpoints.flush();
  parts_.segments.destroy_keys();
  parts_.endpoints.close();
  parts_.dispatcher.recycle();
  parts_.receiver.release_held();
  parts_.failures.drop_reports();
  parts_.segments.unregister();
  parts_.worker.destroy_worker();
}

void UcpFabric::stop() {
  UcxLock lock(parts_);
  // The other nodes are told, because not every transport shows them that a process is gone (shared memory does not),
  // and they would notice the silence only after seconds.
  if (parts_.connected) {
    parts_.coalescing.flush_all();
    for (unsigned n = 0; n < parts_.context.nodes; ++n)
      if (n != parts_.context.self) parts_.sender.send_control(n, ControlKind::kEnding);
    const Nanoseconds deadline = monotonic_ns() + kDisconnectGrace;
    while (parts_.sender.controls_under_way() && monotonic_ns() < deadline) lock.progress();
  }
  parts_.worker.stop();
}

}  // namespace multigrain::ucx

// The results go through arguments, because a function of C linkage returns no C++ object.
extern "C" [[gnu::visibility("default")]] void multigrain_ucx_open(
    const multigrain::UcxOptions& options, multigrain::Result<std::unique_ptr<multigrain::UcxFabric>>& result);

extern "C" [[gnu::visibility("default")]] void multigrain_ucx_agree(multigrain::Wireup& wireup,
                                                                    multigrain::JobSecret& secret,
                                                                    multigrain::Status& result);

void multigrain_ucx_agree(multigrain::Wireup& wireup, multigrain::JobSecret& secret, multigrain::Status& result) {
  result = multigrain::ucx::agree(wireup, secret);
}

void multigrain_ucx_open(const multigrain::UcxOptions& options,
                         multigrain::Result<std::unique_ptr<multigrain::UcxFabric>>& result) {
  result = multigrain::ucx::UcpFabric::open(options);
}
