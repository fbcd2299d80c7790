#include "runtime/node.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/output_file.h"
#include "emulation/machines.h"
#include "instrument/runtime/hazards.h"
#include "instrument/runtime/installed_protocol.h"
#include "profile/virtual_time.h"
#include "races/compiled/compiled_detector.h"
#include "runtime/environment.h"
#include "runtime/interpose/syscalls.h"
#include "runtime/interpose/thread_sync.h"
#include "runtime/interpose/threads.h"
#include "runtime/interpreter.h"
#include "runtime/node_references.h"
#include "runtime/private/private_heap.h"
#include "runtime/private/variables.h"
#include "runtime/signal_mask.h"
#include "status/node_status.h"
#include "timeline/timeline.h"

namespace multigrain {
namespace {

bool g_forked = false;
constinit std::atomic<bool> g_exit_thread_has_begun{false};

// Twice this is how long a processor that acquires nothing may not see what other nodes have released.
constexpr std::chrono::milliseconds kCatchUpEvery(100);

}  // namespace

constinit Node* Node::g_node = nullptr;

bool Node::is_forked_child() {
  return g_forked;
}
Node::~Node() = default;

// --- Start

Status Node::start(const std::function<Status(Node&)>& prepare) {
  MG_CHECK(g_node == nullptr);
  // What is built here lives as long as the process, across copies of the private heap.
  const BootHeapScope boot;
  if (Status opened = open_node_status(); !opened) return opened;
  // This comes before the runtime loads libraries of its own.
  CompiledChecks checks = find_compiled_checks();
  auto bootstrap = Bootstrap::run();
  if (!bootstrap) return tl::unexpected(bootstrap.error());
  auto config = config_from_environment();
  if (!config) return tl::unexpected(config.error());
  if (Status settled = settle_machine("MULTIGRAIN_MACHINE", *config); !settled) return settled;
  set_panic_node(config->node.value);
  if (config->node == NodeId(0) && !config->stats_file.empty()) {
    auto file = check_output_file(config->stats_file);
    if (!file) return fail("--stats: {}", file.error().message);
    config->stats_file = std::move(*file);
  }
  if (config->node == NodeId(0) && !config->timeline_file.empty()) {
    auto file = check_output_file(config->timeline_file);
    if (!file) return fail("--timeline: {}", file.error().message);
    config->timeline_file = std::move(*file);
  }
  auto* const node = new Node(std::move(*config), std::move(*bootstrap), std::move(checks));
  if (Status built = node->build(); !built) return built;
  g_node = node;
  // A forked child is no node: it has none of the threads, no shared region, and the parent's message queues.
  const auto before = [] {
    if (g_node != nullptr) g_node->shared_globals_->before_fork();
  };
  pthread_atfork(before, nullptr, [] {
    if (g_node != nullptr) g_node->shared_globals_->in_forked_child();
    g_node = nullptr;
    g_forked = true;
    give_back_this_profile();
    forget_node_status();
    abandon_hazard_slot();
    set_thread_hooks(nullptr, nullptr);
    set_line_protocol(nullptr);
    set_translated_memory(nullptr);
    set_remote_memory(nullptr, 0);
    set_shared_copies(nullptr, nullptr);
    refuse_thread_sync(nullptr);
    races::CompiledDetector::leave();
  });
  node->describe();
  if (prepare)
    if (Status prepared = prepare(*node); !prepared) return prepared;
  if (Status started = node->start_service(); !started) return started;
  if (node->config_.node == NodeId(0)) virtual_time::take_part();
  return {};
}

// Describes this node in its status: from here on the launcher can tell what happens on it. Called before any message
// is served, because the first may bring work.
void Node::describe() const {
  NodeStatus& status = *node_status();
  status.node = config_.node.value;
  status.processors = config_.processors_per_node;
  status.first_processor = config_.node.value * config_.processors_per_node;
  status.region = reinterpret_cast<uint64_t>(region_->base());
  status.region_size = region_->size();
  status.nodes = config_.nodes;
  status.has_virtual_time = virtual_time::on() ? 1 : 0;
  status.started = started_at_;
  const std::string_view protocol = config_.traits().name;
  protocol.copy(status.protocol, sizeof status.protocol - 1);
  unsigned threads = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator task("/proc/self/task", error), end; !error && task != end;
       task.increment(error))
    ++threads;
  // The service thread, the thread that ends the program and the one that catches up are counted as well.
  status.threads_at_start =
      threads + (config_.nodes == 1 ? 1 : 2) + (has_to_catch_up() ? 1 : 0) + (judge_ != nullptr ? 1 : 0);
  status.magic.store(NodeStatus::kMagic, std::memory_order_release);
  // mgrun answers SIGQUIT with what the processors do, and the run goes on; a terminal sends it to the nodes as well.
  struct sigaction now = {};
  if (status.launched != 0 && sigaction(SIGQUIT, nullptr, &now) == 0 && now.sa_handler == SIG_DFL)
    signal(SIGQUIT, SIG_IGN);
}

// The thread that is about to use the object calls this, so it may wait.
void Node::refuse_thread_sync_object(const char* function, const void* object, const char* instead) {
  const BootHeapScope boot;
  Node& self = *get();
  const auto variable = variable_at(reinterpret_cast<uintptr_t>(object));
  // The object's block begins at a multiple of 16 bytes before the object.
  const auto* start = reinterpret_cast<const std::byte*>(reinterpret_cast<uintptr_t>(object) / 16 * 16);
  auto size = self.heap_->usable_size(start);
  for (unsigned steps = 0;
       !variable && !size && steps < Config::kMinPageSize / 16 && self.region_->contains(start - 16); ++steps) {
    start -= 16;
    size = self.heap_->usable_size(start);
  }
  const std::string block =
      variable ? fmt::format(" ({}: the program shares its globals)", variable->described())
      : size   ? fmt::format(" (byte {} of the {} that mg_alloc gave at {})",
                             static_cast<const std::byte*>(object) - start, *size, static_cast<const void*>(start))
               : std::string();
  std::fflush(stdout);
  die(1, {fmt::format(
              "{} for {}, which is in shared memory{}: it would exclude and wake threads of one node only, and the "
              "run has {}; use {} (docs/user/porting.md)",
              function, object, block, self.config_.nodes, instead)
              .c_str()});
}

// --- Threads of the runtime

// In virtual time, when the node catches up would depend on the machine's speed, and what the program does on that.
bool Node::has_to_catch_up() const {
  return protocol_->needs_to_catch_up() && !virtual_time::on();
}

Status Node::start_service() {
  const BootHeapScope boot;
  const AsynchronousSignalsBlocked blocked;
  const auto start = [this](void* (*run)(void*), const pthread_attr_t* attributes, const char* which) -> Status {
    pthread_t thread;
    const int failed = create_real_thread(&thread, attributes, run, this);
    if (failed != 0) return fail_errno(failed, fmt::format("cannot start the thread {}", which));
    pthread_detach(thread);
    return {};
  };
  // What serves the node runs on the node's own cores, not only on that of processor 0, whose thread starts it: another
  // node's cores are not there to serve this node, and where the node has one core, taking a right from a page needs no
  // interrupt of another core.
  pthread_attr_t on_own_cores;
  pthread_attr_init(&on_own_cores);
  pthread_attr_setaffinity_np(&on_own_cores, sizeof service_cores_, &service_cores_);
  Status started;
  if (config_.nodes > 1) started = start(&Node::exit_main, nullptr, "that ends the program");
  // Other nodes' requesters read the hazards of all threads that have begun (coherence/hazard_slots.h). In counted time this one
  // has begun before the machine's first turn, which the thread that answers other nodes takes part in.
  while (started && config_.nodes > 1 && virtual_time::is_counted() && !g_exit_thread_has_begun.load())
    sleep_ns(100'000);
  if (started) started = start(&Node::service_main, &on_own_cores, "that answers other nodes");
  if (started && has_to_catch_up()) started = start(&Node::catch_up_main, &on_own_cores, "that catches up");
  if (started && judge_ != nullptr) started = start(&Node::judge_main, nullptr, "that finds races");
  pthread_attr_destroy(&on_own_cores);
  return started;
}

// A processor that waits in a loop for what another processor writes, without synchronisation, would wait for ever under
// lazy release consistency. Such programs are wrong, but they end on one machine.
void* Node::catch_up_main(void* argument) {
  auto* const node = static_cast<Node*>(argument);
  const BootHeapScope boot;
  pthread_setname_np(pthread_self(), "mg catch-up");
  set_this_profile(node->catch_up_profile_);
  while (true) {
    std::this_thread::sleep_for(kCatchUpEvery);
    const LockGuard hold(node->catching_up_);
    if (node->finishing_.load(std::memory_order_acquire) != 0 || node->shutting_down_.load()) return nullptr;
    // What was written under a lock whose release is deferred is released at last, too.
    node->sync_->let_go_deferred();
    node->protocol_->catch_up();
  }
}

void* Node::judge_main(void* node) {
  const BootHeapScope boot;
  pthread_setname_np(pthread_self(), "mg races");
  static_cast<Node*>(node)->judge_->run();
  return nullptr;
}

// exit() on another node ends the program as it would on one machine, by exit() here. That runs the program's exit
// handlers, which may touch shared memory: so it must not happen on the service thread, for which other threads and the
// handlers themselves wait.
void* Node::exit_main(void* argument) {
  g_exit_thread_has_begun.store(true);
  auto* const node = static_cast<Node*>(argument);
  pthread_setname_np(pthread_self(), "mg exit");
  while (true) {
    const uint32_t seen = node->exit_event_.prepare();
    if (node->exit_wanted_.load(std::memory_order_acquire) != 0 && node->finishing_.load() == 0)
      std::exit(node->exit_status_.load());
    node->exit_event_.sleep(seen);
  }
}

void* Node::service_main(void* node) {
  const BootHeapScope boot;
  pthread_setname_np(pthread_self(), "mg service");
  static_cast<Node*>(node)->service();
  return nullptr;
}

// A request that finds all cores computing must not wait for a time slice: the service thread runs at once or the other
// node stands still. SCHED_RR preempts ordinary threads; where it is not permitted, a negative nice value makes a woken
// thread preempt soon; where that is not permitted either, only the scheduler's own wake-up bonus helps.
const char* Node::raise_service_priority() const {
  const sched_param lowest{.sched_priority = sched_get_priority_min(SCHED_RR)};
  if (pthread_setschedparam(pthread_self(), SCHED_RR, &lowest) == 0) return "real-time (SCHED_RR)";
  if (setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), -20) == 0) return "nice -20 (SCHED_RR is not permitted)";
  return "ordinary (neither SCHED_RR nor a negative nice value is permitted; expect slow answers from busy nodes)";
}

void Node::service() {
  set_this_profile(service_profile_);
  if (timeline::Track* const track = timeline::this_track()) track->name(timeline::Owner::kService, config_.node.value);
  service_profile_.start(Category::kIdle);
  const char* const priority = raise_service_priority();
  if (config_.verbose && config_.node == NodeId(0))
    std::fprintf(stderr, "multigrain: service threads run with priority: %s\n", priority);
  virtual_time::take_part_as_handler();
  while (true) {
    fabric_->serve();
    protocol_->serve();
    sync_->serve();
  }
}

// --- The interfaces that the node's parts call

void Node::release() {
  // Nothing is queued and nothing is under way: this is the fast path of locks.
  if (protocol_->is_clean()) return;
  virtual_time::spend(&MachineCosts::release);
  protocol_->release();
}

void Node::drain_store_buffer() {
  if (!protocol_->is_clean()) protocol_->drain_store_buffer();
}

namespace {

// Calls of synchronisation nest two deep (a condition wait contains a lock).
constexpr unsigned kMaxNesting = 8;
[[gnu::tls_model("initial-exec")]] thread_local Category t_outer[kMaxNesting];
[[gnu::tls_model("initial-exec")]] thread_local unsigned t_depth = 0;

}  // namespace

void Node::enter(SyncActivity activity) {
  MG_CHECK(t_depth < kMaxNesting);
  t_outer[t_depth++] = this_profile().enter(activity == SyncActivity::kLock ? Category::kLock : Category::kBarrier);
}

void Node::leave() {
  MG_CHECK(t_depth > 0);
  this_profile().enter(t_outer[--t_depth]);
  // Not every lock that comes from elsewhere is acquired by way of the protocol.
  if (record::Recorder* const recorder = recorder_of_run()) recorder->acquired();
}

// A thread of the program that is no processor does not stop where processors meet.
bool Node::may_meet() const {
  return counted_threads() == 0;
}

Status Node::copy_state(NodeId to) {
  // Each node's interpreter has a state of its own.
  if (interpreter::is_here()) return {};
  if (!private_heap_active())
    return fail("the private heap cannot be copied to node {}: this build leaves malloc to a sanitizer", to.value);
  state_copy_->send_state(to);
  return {};
}

Placement Node::default_placement(size_t size, Grain grain) const {
  const ProtocolTraits& traits = config_.protocol_of(grain);
  Placement placement{.policy = config_.home_under(traits), .node = NodeId(0), .grain = grain};
  // [Shasta], section 2.1: small objects move as a whole.
  if (traits.has_blocks && config_.block_size != 0)
    placement.block_size = static_cast<uint32_t>(config_.block_size);
  else if (traits.has_blocks)
    placement.block_size = static_cast<uint32_t>(
        size <= Config::kMaxSingleBlock ? std::bit_ceil(std::max(size, config_.line_size)) : config_.line_size);
  return placement;
}

Status Node::share_globals() {
  if (config_.translates())
    return fail(
        "globals cannot be shared where compiled code translates accesses (--mgs translation=compiled): it takes the "
        "program's own data for private");
  return shared_globals_->share(default_placement(0, Grain::kPage));
}

std::optional<NodeId> Node::home_of(PageId page) {
  return heap_->home_of(page);
}
bool Node::is_first_touch(PageId page) {
  const auto extent = heap_->find(page);
  return extent && extent->placement.policy == HomePolicy::kFirstTouch;
}
std::optional<Grain> Node::grain_of(PageId page) {
  const auto extent = heap_->find(page);
  if (!extent) return std::nullopt;
  return extent->placement.grain;
}
bool Node::may_move_to_lines(PageId page) {
  const auto extent = heap_->find(page);
  return extent && extent->placement.may_move_to_lines;
}
PageRange Node::stretch_of(PageId page) {
  const auto extent = heap_->find(page);
  if (!extent) return {};
  const PageRange whole{.begin = extent->first.value, .end = extent->first.value + extent->pages};
  if (stretches_ == nullptr) return whole;
  const PageRange part = stretches_->part_of(page);
  return {.begin = std::max(whole.begin, part.begin), .end = std::min(whole.end, part.end)};
}
size_t Node::block_size_of(PageId page) {
  const auto extent = heap_->find(page);
  return extent ? extent->placement.block_size : 0;
}
Pin Node::pin_of(PageId page) {
  const auto extent = heap_->find(page);
  return extent ? extent->placement.pin : Pin::kNone;
}
std::optional<NodeId> Node::ask_home(PageId page) {
  return heap_->ask_home(page);
}

std::optional<NodeId> Node::claim_home(PageId page) {
  return heap_->claim_home(page);
}

}  // namespace multigrain
