#include "runtime/node.h"

#include <emmintrin.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/clock.h"
#include "base/fine_grain.h"
#include "base/output_file.h"
#include "coherence/line_protocol.h"
#include "fabric/emulation/emulation.h"
#include "instrument/runtime/hazards.h"
#include "profile/virtual_time.h"
#include "runtime/environment.h"
#include "runtime/fault_entry.h"
#include "runtime/interpose/handlers.h"
#include "runtime/interpose/syscalls.h"
#include "runtime/interpose/thread_sync.h"
#include "runtime/interpose/threads.h"
#include "runtime/message_types.h"
#include "runtime/private/private_heap.h"
#include "runtime/signal_mask.h"
#include "status/node_status.h"

namespace multigrain {
namespace {

// Never destroyed: faults and messages may come until the process is gone.
Node* g_node = nullptr;
bool g_forked = false;
// Its, from before its first thread starts.
HazardSlots* g_hazard_slots = nullptr;

const char* message_name_for_reports(MessageType type) {
  if (const char* name = protocol_message_name(type)) return name;
  switch (type) {
    case runtime_message::kSpawn:
      return "SPAWN";
    case runtime_message::kDone:
      return "DONE";
    default:
      return nullptr;
  }
}

}  // namespace

Node* Node::get() {
  return g_node;
}

bool Node::is_forked_child() {
  return g_forked;
}
Node::~Node() = default;

// --- Start

Status Node::start() {
  MG_CHECK(g_node == nullptr);
  // What is built here lives as long as the process, across copies of the private heap.
  const BootHeapScope boot;
  if (Status opened = open_node_status(); !opened) return opened;
  // Before the runtime loads libraries of its own.
  CompiledChecks checks = find_compiled_checks();
  auto meeting = Meeting::hold();
  if (!meeting) return tl::unexpected(meeting.error());
  auto config = config_from_environment();
  if (!config) return tl::unexpected(config.error());
  set_panic_node(config->node.value);
  if (config->node == NodeId(0) && !config->stats_file.empty()) {
    auto file = check_output_file(config->stats_file);
    if (!file) return fail("--stats: {}", file.error().message);
    config->stats_file = std::move(*file);
  }
  auto* const node = new Node(std::move(*config), std::move(*meeting), std::move(checks));
  if (Status built = node->build(); !built) return built;
  g_node = node;
  // A forked child is no node: it has none of the threads, no shared region, and the parent's message queues.
  pthread_atfork(nullptr, nullptr, [] {
    g_node = nullptr;
    g_forked = true;
    forget_node_status();
    abandon_hazard_slot();
    set_thread_hooks(nullptr, nullptr);
    set_line_protocol(nullptr);
    set_shared_copies(nullptr, nullptr);
    refuse_thread_sync(nullptr);
  });
  node->describe();
  return node->start_service();
}

// From here on the launcher can tell what happens here. Before any message is served: the first may bring work.
void Node::describe() const {
  NodeStatus& status = *node_status();
  status.node = config_.node.value;
  status.processors = config_.processors_per_node;
  status.first_processor = config_.node.value * config_.processors_per_node;
  status.region = reinterpret_cast<uint64_t>(region_->base());
  status.region_size = region_->size();
  unsigned threads = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator task("/proc/self/task", error), end; !error && task != end;
       task.increment(error))
    ++threads;
  // With the service thread, and that which ends the program.
  status.threads_at_start = threads + (config_.nodes == 1 ? 1 : 2);
  status.magic.store(NodeStatus::kMagic, std::memory_order_release);
  // mgrun answers SIGQUIT with what the processors do, and the run goes on; a terminal sends it to the nodes as well.
  struct sigaction now = {};
  if (status.launched != 0 && sigaction(SIGQUIT, nullptr, &now) == 0 && now.sa_handler == SIG_DFL)
    signal(SIGQUIT, SIG_IGN);
}

template <void (Node::*Handler)(const Message&)>
void Node::set_handler(MessageType type) {
  fabric_->set_handler(
      type, [](void* node, const Message& message) { (static_cast<Node*>(node)->*Handler)(message); }, this);
}

Status Node::build() {
  unsigned nodes_here = config_.nodes;
  if (meeting_) {
    const auto& hosts = meeting_->hosts;
    nodes_here = static_cast<unsigned>(std::count(hosts.begin(), hosts.end(), hosts[config_.node.value]));
  }
  const NodeEnvironment environment = read_node_environment(nodes_here * config_.processors_per_node);
  wait_ = environment.wait;
  sched_getaffinity(0, sizeof service_cores_, &service_cores_);
  if (!environment.cpus.empty()) {
    CPU_ZERO(&service_cores_);
    for (int cpu : environment.cpus) CPU_SET(cpu, &service_cores_);
  }
  started_at_ = monotonic_ns();

  if (config_.region_size > layout::kMaxRegionSize && config_.region_size == Config{}.region_size)
    config_.region_size = layout::kMaxRegionSize;  // the default, in a build whose address space is cramped

  if (Status built = build_fabric(environment); !built) return built;
  auto rights = choose(config_.access, *region_, &rights_reason_);
  if (!rights) return tl::unexpected(rights.error());
  rights_ = std::move(*rights);

  heap_ = std::make_unique<SharedHeap>(*fabric_, wait_, region_->base(), region_->size(), config_.page_size, &*region_);

  if (Status built = build_protocols(); !built) return built;

  SyncHost& sync_host = *this;
  sync_ = std::make_unique<Sync>(
      sync_host, *fabric_, config_.nodes, config_.processors_per_node,
      SyncOptions{.network_locks = config_.protocol == "hlrc" || config_.protocol == "dszoom",
                  .intra_node = config_.hlrc.tickets ? IntraNodeLock::kTicket : IntraNodeLock::kTestAndSet});
  state_copy_ = std::make_unique<StateCopy>(*fabric_, wait_);
  set_handler<&Node::handle_shutdown>(runtime_message::kShutdown);
  set_handler<&Node::handle_report>(runtime_message::kReport);
  set_handler<&Node::handle_exit>(runtime_message::kExit);
  set_handler<&Node::handle_profile_mark>(runtime_message::kProfileMark);
  set_handler<&Node::handle_profile_marked>(runtime_message::kProfileMarked);

  shutdown_event_ = eventfd(0, EFD_CLOEXEC);
  if (shutdown_event_ < 0) return fail_errno(errno, "cannot create an event descriptor");
  for (SparseTable<ProfileSnapshot>* const table : {&baseline_, &end_}) {
    auto snapshots = SparseTable<ProfileSnapshot>::create(config_.processors_per_node + 1, "profile snapshots");
    if (!snapshots) return tl::unexpected(snapshots.error());
    *table = std::move(*snapshots);
  }
  auto reports = SparseTable<NodeReport>::create(config_.nodes, "reports of nodes");
  if (!reports) return tl::unexpected(reports.error());
  reports_ = std::move(*reports);

  auto processors = Processors::create(config_, *fabric_, wait_, *this, environment.cpus);
  if (!processors) return tl::unexpected(processors.error());
  processors_ = std::move(*processors);
  measured_from_ = virtual_time::on() ? 0 : started_at_;

  if (Status installed = install_fault_entry(*region_, *rights_, *protocol_); !installed) return installed;
  set_shared_region(region_->base(), region_->size());
  if (config_.nodes > 1) refuse_thread_sync(&Node::refuse_thread_sync_object);
  if (line_protocol_ != nullptr) set_shared_copies(&__multigrain_load, &__multigrain_store);
  if (config_.node == NodeId(0))
    processors_->adopt_main_thread();
  else
    settle_c_library();
  if (config_.verbose && config_.node == NodeId(0))
    std::fprintf(stderr, "multigrain: %u nodes of %u processors, pages of %zu bytes, access rights by %s (%s)\n",
                 config_.nodes, config_.processors_per_node, config_.page_size, std::string(rights_->name()).c_str(),
                 rights_reason_.c_str());
  return {};
}

// Which memory a protocol keeps coherent its allocation says, so there may be two.
Status Node::build_protocols() {
  const NodeServices services{*fabric_, *region_, *rights_, *this, wait_};
  auto pages =
      create_protocol(config_.page_protocol(), services, {.prefetch = config_.prefetch, .hlrc = config_.hlrc});
  if (!pages) return tl::unexpected(pages.error());
  page_protocol_ = std::move(*pages);
  protocol_ = page_protocol_.get();

  // Every thread has hazards before it runs the program's code: this one now, those to come by pthread_create.
  hazard_slots_ = std::make_unique<HazardSlots>(fabric_->self(), fabric_->own_segment(SegmentId::kWords));
  hazard_slots_->bind();
  g_hazard_slots = hazard_slots_.get();
  set_thread_hooks([] { g_hazard_slots->bind(); },
                   [] {
                     Processors::thread_ends();
                     g_hazard_slots->unbind();
                   });

  if (config_.grain() == Grain::kLine && !checks_.of_another_version.empty())
    return fail(
        "the access checks of {} were made by another version of mgcc, which the protocol {} cannot rely on: "
        "compile it again, or choose a page protocol (--protocol mgs)",
        checks_.of_another_version, config_.protocol);
  if (config_.grain() == Grain::kLine && !checks_.missing.empty())
    return fail(
        "{} was compiled without access checks, which the protocol {} needs: compile it with mgcc or mg++, or choose "
        "a page protocol (--protocol mgs)",
        checks_.missing, config_.protocol);
  if (!checks_.in_program || config_.nodes > Config::kMaxLineNodes) return {};
  auto lines = create_line_protocol(config_.line_protocol(), services, {*line_table_, *hazard_slots_}, config_.model);
  if (!lines) return tl::unexpected(lines.error());
  line_protocol_ = std::move(*lines);
  HomeDirectory& homes = *this;
  both_protocols_ = std::make_unique<ByGrain>(*page_protocol_, *line_protocol_, homes);
  protocol_ = both_protocols_.get();
  set_line_protocol(line_protocol_.get());
  set_handler_hooks([] { checks::begin_handler(g_hazard_slots->slot_for_handlers()); },
                    [](bool returned) { checks::end_handler(returned); });
  return {};
}

// The region's frames, the line table, and what carries them to the other nodes.
Status Node::build_fabric(const NodeEnvironment& environment) {
  const auto line_shift = static_cast<unsigned>(std::countr_zero(config_.line_size));
  if (meeting_) {
    auto region = Region::create(config_.region_size, config_.page_size, -1);
    if (!region) return tl::unexpected(region.error());
    region_.emplace(std::move(*region));
    for (size_t i = 0; i < meeting_->hosts.size(); ++i)
      names_of_nodes_.push_back(fmt::format("node {} on host {}", i, meeting_->hosts[i]));
    node_0_gone_ = eventfd(0, EFD_CLOEXEC);
    if (node_0_gone_ < 0) return fail_errno(errno, "cannot create an event descriptor");
    auto table = LineTable::map(region_->size(), line_shift);
    if (!table) return tl::unexpected(table.error());
    line_table_.emplace(std::move(*table));
    auto ucx = meeting_->connect(
        config_, {region_->alias(PageId(0)), region_->size()}, line_table_->bytes(),
        [](void* node, NodeId lost, const char* reason) { static_cast<Node*>(node)->peer_failed(lost, reason); }, this);
    if (!ucx) return tl::unexpected(ucx.error());
    ucx_ = ucx->get();
    fabric_ = std::move(*ucx);
    if (config_.verbose)
      std::fprintf(stderr, "multigrain: node %u on host %s: %s\n", config_.node.value,
                   meeting_->hosts[config_.node.value].c_str(), ucx_->description().c_str());
  } else {
    // The job's memory: the launcher's, or for a program that was started without one, one of its own.
    int job_fd = config_.job_fd;
    std::vector<int> frames_fds = environment.frames_fds;
    if (job_fd < 0) {
      auto made = create_job_memory({.nodes = 1,
                                     .processors_per_node = config_.processors_per_node,
                                     .page_size = config_.page_size,
                                     .region_size = config_.region_size});
      if (!made) return tl::unexpected(made.error());
      job_fd = *made;
    } else if (frames_fds.size() != config_.nodes) {
      return fail("MULTIGRAIN_FRAMES_FDS names {} descriptors for {} nodes: start the program with mgrun",
                  frames_fds.size(), config_.nodes);
    }
    auto region = Region::create(config_.region_size, config_.page_size,
                                 frames_fds.empty() ? -1 : fcntl(frames_fds[config_.node.value], F_DUPFD_CLOEXEC, 0));
    if (!region) return tl::unexpected(region.error());
    region_.emplace(std::move(*region));

    // What the program executes later has no business with them, and must not keep the memory alive.
    for (int fd : frames_fds) fcntl(fd, F_SETFD, FD_CLOEXEC);
    auto shm = ShmFabric::attach(job_fd, config_.node, frames_fds, config_.region_size);
    if (!shm) return tl::unexpected(shm.error());
    shm_ = shm->get();
    fabric_ = std::move(*shm);
    close(job_fd);
    shm_->export_segment(SegmentId::kFrames, region_->alias(PageId(0)), region_->size());
    const JobMemory& job = shm_->job();
    auto table = LineTable::map(region_->size(), line_shift, job.lines_fd(), job.lines_at(config_.node));
    if (!table) return tl::unexpected(table.error());
    line_table_.emplace(std::move(*table));
    shm_->export_segment(SegmentId::kLines, line_table_->bytes().data(), line_table_->bytes().size());
  }
  if (config_.clock == ClockKind::kVirtual) {
    emulate(*shm_);
    return {};
  }
  if (!config_.network.ideal()) fabric_ = std::make_unique<ModelledFabric>(std::move(fabric_), config_.network);
  return {};
}

namespace {

// What a check that misses costs before the runtime begins and after it has ended; the median. It has looked at a line
// of the cache that another node has written (the flag value, or a word of the table), and its call keeps all registers.
Nanoseconds measure_missed_check() {
  constexpr size_t kCalls = 64;
  std::array<uint64_t, kCalls> took{};
  alignas(64) volatile uint64_t looked_at = 0;
  for (uint64_t& one : took) {
    _mm_clflush(const_cast<const uint64_t*>(&looked_at));
    _mm_mfence();
    const uint64_t before = ticks();
    const uint64_t start = ticks();
    static_cast<void>(looked_at);
    _mm_lfence();
    __multigrain_poll_miss();
    const uint64_t with_reading_of_ticks = ticks() - start;
    one = with_reading_of_ticks - std::min(with_reading_of_ticks, start - before);
  }
  std::ranges::nth_element(took, took.begin() + kCalls / 2);
  return static_cast<Nanoseconds>(static_cast<double>(took[kCalls / 2]) * 1000.0 / ticks_per_us());
}

}  // namespace

// The clocks, links and protocol handlers of the emulated machine are in the job's memory.
void Node::emulate(ShmFabric& shm) {
  const Emulation emulation(shm.job().emulation(), config_.nodes, config_.processors());
  const TrapCost trap = measure_trap();
  virtual_time::start(emulation.clocks(), {.scale = config_.clock_scale.program,
                                           .protocol_scale = config_.clock_scale.protocol,
                                           .trap_ns = trap.warm,
                                           .cold_trap_ns = trap.cold,
                                           .check_ns = measure_missed_check(),
                                           .skew_ns = config_.skew,
                                           .first_processor = config_.node.value * config_.processors_per_node,
                                           .processors = config_.processors_per_node});
  shm.carry_arrivals();
  fabric_ = std::make_unique<VirtualFabric>(std::move(fabric_), config_.network, emulation.nodes());
}

// Called by the thread that is about to use it, so it may wait.
void Node::refuse_thread_sync_object(const char* function, const void* object, const char* instead) {
  const BootHeapScope boot;
  Node& self = *get();
  // Its block begins at a multiple of 16 bytes before it.
  const auto* start = reinterpret_cast<const std::byte*>(reinterpret_cast<uintptr_t>(object) / 16 * 16);
  auto size = self.heap_->usable_size(start);
  for (unsigned steps = 0; !size && steps < Config::kMinPageSize / 16 && self.region_->contains(start - 16); ++steps) {
    start -= 16;
    size = self.heap_->usable_size(start);
  }
  const std::string block = size ? fmt::format(" (byte {} of the {} that mg_alloc gave at {})",
                                               static_cast<const std::byte*>(object) - start, *size,
                                               static_cast<const void*>(start))
                                 : std::string();
  std::fflush(stdout);
  die(1, {fmt::format(
              "{} for {}, which is in shared memory{}: it would exclude and wake threads of one node only, and the "
              "run has {}; use {} (docs/user/porting.md)",
              function, object, block, self.config_.nodes, instead)
              .c_str()});
}

// --- The service thread

Status Node::start_service() {
  pthread_t thread;
  const BootHeapScope boot;
  const AsynchronousSignalsBlocked blocked;
  // On the node's own cores, not only on that of processor 0, whose thread starts it: another node's cores are not
  // there to serve this one, and where the node has one core, taking a right from a page needs no interrupt of another.
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setaffinity_np(&attributes, sizeof service_cores_, &service_cores_);
  const int failed = pthread_create(&thread, &attributes, &Node::service_main, this);
  pthread_attr_destroy(&attributes);
  if (failed != 0) return fail_errno(failed, "cannot start the service thread");
  pthread_detach(thread);
  if (config_.nodes == 1) return {};
  const int no_exits = pthread_create(&thread, nullptr, &Node::exit_main, this);
  if (no_exits != 0) return fail_errno(no_exits, "cannot start the thread that ends the program");
  pthread_detach(thread);
  return {};
}

// exit() on another node ends the program as it would on one machine, by exit() here. That runs the program's exit
// handlers, which may touch shared memory: so not on the service thread, which others and they themselves wait for.
void* Node::exit_main(void* argument) {
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

// A request that finds all cores computing must not wait for a time slice: the service thread runs at once or the
// other node stands still. SCHED_RR preempts ordinary threads; where it is not permitted, a negative nice value makes a
// woken thread preempt soon; where that is not either, the scheduler's own wake-up bonus is all there is.
const char* Node::raise_service_priority() const {
  const sched_param lowest{.sched_priority = sched_get_priority_min(SCHED_RR)};
  if (pthread_setschedparam(pthread_self(), SCHED_RR, &lowest) == 0) return "real-time (SCHED_RR)";
  if (setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), -20) == 0) return "nice -20 (SCHED_RR is not permitted)";
  return "ordinary (neither SCHED_RR nor a negative nice value is permitted; expect slow answers from busy nodes)";
}

void Node::service() {
  set_this_profile(service_profile_);
  service_profile_.start(Category::kIdle);
  const char* const priority = raise_service_priority();
  if (config_.verbose && config_.node == NodeId(0))
    std::fprintf(stderr, "multigrain: service threads run with priority: %s\n", priority);
  while (true) {
    fabric_->serve();
    protocol_->serve();
  }
}

// --- What the parts ask of the node

void Node::release() {
  // Nothing queued and nothing under way: the fast path of locks.
  if (protocol_->is_clean()) return;
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
}

Status Node::copy_state(NodeId to) {
  if (!private_heap_active())
    return fail("the private heap cannot be copied to node {}: this build leaves malloc to a sanitizer", to.value);
  state_copy_->send_state(to);
  return {};
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
bool Node::same_extent(PageId page, PageId other) {
  const auto extent = heap_->find(page);
  return extent && extent->contains(other);
}
size_t Node::block_size_of(PageId page) {
  const auto extent = heap_->find(page);
  return extent ? extent->placement.block_size : 0;
}
std::optional<NodeId> Node::claim_home(PageId page) {
  return heap_->claim_home(page);
}

// --- Profiles

// The time of the run's clock, for a mark that the calling thread makes.
Nanoseconds Node::time_of_mark() {
  return virtual_time::on() ? virtual_time::stamp() : monotonic_ns();
}

void Node::take_snapshots(SparseTable<ProfileSnapshot>& snapshots, Nanoseconds when) {
  for (unsigned i = 0; i < config_.processors_per_node; ++i) {
    if (virtual_time::on()) {
      // Processors' clocks differ, and one that is ahead has stamped its profile already.
      const uint64_t at = std::max(when, virtual_time::clock_of(i));
      processors_->profile(i).snapshot_at(snapshots[i], &at);
    } else {
      processors_->profile(i).snapshot(snapshots[i]);
    }
  }
  service_profile_.snapshot(snapshots[config_.processors_per_node]);
}

void Node::take_mark(PhaseMark mark, Nanoseconds when) {
  if (mark == PhaseMark::kBegin) {
    take_snapshots(baseline_, when);
    measured_to_ = 0;
    measured_from_ = when;
  } else if (measured_to_.load() == 0) {
    take_snapshots(end_, when);
    measured_to_ = when;
  }
}

void Node::mark_profiles(PhaseMark mark) {
  // Several processors may call at once; the others wait like for any lock while this one handles messages.
  const std::lock_guard one_at_a_time(marking_);
  const Nanoseconds when = time_of_mark();
  take_mark(mark, when);
  uint64_t others = 0;
  for (unsigned n = 0; n < config_.nodes; ++n)
    if (n != config_.node.value) others |= uint64_t{1} << n;
  marks_out_ = others;
  MessageHeader header;
  header.type = runtime_message::kProfileMark;
  header.word[0] = static_cast<uint64_t>(mark);
  header.word[1] = when;
  for (unsigned n = 0; n < config_.nodes; ++n)
    if (NodeId(static_cast<uint16_t>(n)) != config_.node)
      fabric_->send(NodeId(static_cast<uint16_t>(n)), header, SendContext::kOrdinary);
  wait_until(*fabric_, wait_, changed_, [this] { return marks_out_.load() == 0; });
}

void Node::handle_profile_mark(const Message& message) {
  if (message.header.word[0] > static_cast<uint64_t>(PhaseMark::kEnd))
    panic("a mark of the profile that is none, from node", message.from.value);
  // Hosts' wall clocks differ; virtual time is the machine's.
  take_mark(static_cast<PhaseMark>(message.header.word[0]),
            virtual_time::on() ? message.header.word[1] : monotonic_ns());
  MessageHeader header;
  header.type = runtime_message::kProfileMarked;
  fabric_->send(message.from, header, SendContext::kHandler);
}

void Node::handle_profile_marked(const Message& message) {
  const uint64_t bit = uint64_t{1} << message.from.value;
  if ((marks_out_.fetch_and(~bit) & bit) == 0)
    panic("a profile was marked that nobody asked to mark, at node", message.from.value);
  changed_.notify();
}

void Node::report(NodeReport& out) {
  out = NodeReport{};
  out.node = config_.node.value;
  if (measured_to_.load() == 0) take_snapshots(end_, time_of_mark());
  for (unsigned i = 0; i < config_.processors_per_node; ++i)
    add_processor(out, end_[i].since(baseline_[i]), time_stamps_per_us());
  const unsigned service = config_.processors_per_node;
  add_service(out, end_[service].since(baseline_[service]), time_stamps_per_us());
}

bool Node::write_statistics(std::span<const NodeReport> reports) const {
  RunDescription run;
  run.program = program_invocation_short_name;
  run.nodes = config_.nodes;
  run.processors_per_node = config_.processors_per_node;
  run.protocol = config_.protocol;
  run.page_size = config_.page_size;
  const char* const network = secure_getenv("MULTIGRAIN_NET");
  run.network = network != nullptr ? network : "ideal";
  run.access = rights_->name();
  const Nanoseconds end = measured_to_.load();
  run.elapsed_ns = (end != 0 ? end : time_of_mark()) - measured_from_.load();
  run.clock = virtual_time::on() ? "virtual" : "wall";
  run.never_started = processors_->never_started();
  const std::string text = config_.stats == StatsFormat::kJson ? render_json(run, reports, &message_name_for_reports)
                                                               : render_text(run, reports, &message_name_for_reports);
  std::FILE* const out = config_.stats_file.empty() ? stderr : std::fopen(config_.stats_file.c_str(), "w");
  const bool written =
      out != nullptr && std::fwrite(text.data(), 1, text.size(), out) == text.size() && std::fflush(out) == 0;
  if (!written)
    std::fprintf(stderr, "multigrain: cannot write the statistics to %s: %s\n",
                 config_.stats_file.empty() ? "standard error" : config_.stats_file.c_str(), strerror(errno));
  if (out != nullptr && out != stderr) std::fclose(out);
  return written;
}

// --- The end

namespace {

// Not fflush(nullptr): that waits for a thread that is reading standard input.
void flush_output() {
  std::fflush(stdout);
  std::fflush(stderr);
}

}  // namespace

void Node::stop() {
  if (ucx_ != nullptr) ucx_->stop();
}

// A program whose threads are all on one node runs, and gives the right results: only nothing is distributed.
void Node::tell_never_started_processors() const {
  if (config_.nodes == 1) return;
  const std::vector<unsigned> idle = processors_->never_started();
  const bool has_own_threads = idle.size() + 1 == config_.processors() && counted_threads() != 0;
  if (idle.empty() || !(has_own_threads || config_.check)) return;
  std::fprintf(stderr, "multigrain: %s\n", tell_never_started(idle).c_str());
}

bool Node::finish(int status) {
  if (finishing_.exchange(1) != 0) return true;
  node_status()->leaves = 1;
  const BootHeapScope boot;
  if (config_.node != NodeId(0)) {
    MessageHeader header;
    header.type = runtime_message::kExit;
    header.word[0] = static_cast<uint64_t>(static_cast<unsigned>(status));
    flush_output();
    fabric_->send(NodeId(0), header, SendContext::kOrdinary);
    // The main thread ends this process when node 0 has ended.
    while (true) pause();
  }
  flush_output();
  MessageHeader header;
  header.type = runtime_message::kShutdown;
  for (unsigned n = 1; n < config_.nodes; ++n)
    fabric_->send(NodeId(static_cast<uint16_t>(n)), header, SendContext::kOrdinary);
  wait_until(*fabric_, wait_, changed_,
             [this] { return static_cast<unsigned>(std::popcount(reports_in_.load())) + 1 == config_.nodes; });
  if (status == 0) tell_never_started_processors();
  if (config_.stats == StatsFormat::kNone) return true;
  report(reports_[0]);
  return write_statistics({&reports_[0], config_.nodes});
}

namespace {

// Processes that this node's signal handler tells apart.
pid_t g_self = 0;
pid_t g_parent = 0;
bool g_parent_is_mgrun = false;

// Whoever ends one process of a run means the run: mgrun gives the signal to node 0, whose program has the handlers.
void pass_on(int number, siginfo_t* info, void*) {
  if (getpid() != g_self) {
    // A child that the program has forked is a process like any other.
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  // From the launcher, or from a terminal, which has signalled the launcher too.
  if (info->si_code == SI_KERNEL || info->si_pid == g_parent) return;
  if (!g_parent_is_mgrun) die(128 + number, "was ended by signal", static_cast<uint64_t>(number));
  if (getppid() == g_parent) kill(g_parent, number);
}

// The process ends although its run is well: the launcher may see its parent (a script) end before node 0's does.
[[noreturn]] void leave_the_run() {
  node_status()->run_over = 1;
  std::_Exit(0);
}

}  // namespace

void Node::serve_until_the_end() {
  // The launcher passes these on to every node, but the program's handlers are node 0's: what it survives must not end
  // the run here. If it dies of one, the run ends.
  for (int number : {SIGQUIT, SIGUSR1, SIGUSR2}) signal(number, SIG_IGN);
  g_self = getpid();
  g_parent = getppid();
  g_parent_is_mgrun = !meeting_ || config_.wireup.starts_with("fd:");
  struct sigaction action{};
  action.sa_sigaction = &pass_on;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  for (int number : {SIGHUP, SIGINT, SIGTERM}) sigaction(number, &action, nullptr);
  // Node 0 may end without a word (_exit, a signal): then this node ends as well, quietly.
  const int node_0 = watch_node_0();
  // Over UCX the launcher may say so, too; poll passes over a descriptor of -1.
  const int launcher = meeting_ ? meeting_->wireup->end_descriptor() : -1;
  std::array<pollfd, 3> events{{{.fd = shutdown_event_, .events = POLLIN, .revents = 0},
                                {.fd = node_0, .events = POLLIN, .revents = 0},
                                {.fd = launcher, .events = POLLIN, .revents = 0}}};
  while (poll(events.data(), events.size(), -1) < 0 && errno == EINTR) {
  }
  if (events[1].revents != 0 || events[2].revents != 0) leave_the_run();
  processors_->tell_written_globals();
  flush_output();
  static NodeReport mine;
  report(mine);
  MessageHeader header;
  header.type = runtime_message::kReport;
  fabric_->send(NodeId(0), header, std::as_bytes(std::span(&mine, 1)), {}, SendContext::kOrdinary);
  // Node 0 may still touch shared memory (destructors of its globals), so this node answers until that process is gone.
  while (poll(&events[1], 2, -1) < 0 && errno == EINTR) {
  }
  leave_the_run();
}

// A node of a run over UCX is gone. The launcher sees its processes end and has more to say about it, so it gets a
// moment to end this one; but it does not see everything (a network that is cut in two), and not every launcher acts.
void Node::peer_failed(NodeId node, const char* reason) {
  if (shutting_down_.load()) {
    // The regular end. The nodes leave when node 0's process has nothing more to do; who among the others is first says
    // nothing: node 0 has had everybody's report by then.
    if (node == NodeId(0)) eventfd_write(node_0_gone_, 1);
    return;
  }
  const bool reported = (reports_in_.load() >> node.value & 1) != 0;
  if (finishing_.load() != 0 && reported) return;
  pollfd launcher{.fd = meeting_->wireup->end_descriptor(), .events = POLLIN, .revents = 0};
  const int moment_ms = launcher.fd >= 0 || config_.node != NodeId(0) ? 500 : 0;
  // The signal by which the launcher ends the run is fatal to this process, whoever receives it.
  if (poll(&launcher, launcher.fd >= 0 ? 1 : 0, moment_ms) > 0 && config_.node != NodeId(0)) _exit(0);
  die(1, {"lost ", names_of_nodes_[node.value].c_str(), ": ", reason, "; the run ends"});
}

// A descriptor that becomes readable when the process of node 0 is gone.
int Node::watch_node_0() const {
  if (ucx_ != nullptr) return node_0_gone_;
  const std::atomic<uint32_t>& pid = shm_->job().header().node[0].pid;
  // Nodes start in any order. Should node 0 never come, the launcher ends this process.
  while (pid.load() == 0) usleep(1000);
  const auto watched = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid.load()), 0));
  if (watched < 0 && errno == ESRCH) leave_the_run();
  if (watched < 0) die(1, "cannot watch the process of node 0 (pidfd_open); errno", static_cast<uint64_t>(errno));
  return watched;
}

void Node::handle_shutdown(const Message& message) {
  if (message.from != NodeId(0)) panic("a node that is not 0 ended the run: node", message.from.value);
  shutting_down_ = true;
  if (eventfd_write(shutdown_event_, 1) != 0) panic("cannot announce the end of the run to this node's main thread");
}

void Node::handle_report(const Message& message) {
  if (config_.node != NodeId(0)) panic("a report for node 0 came here, from node", message.from.value);
  if (message.payload.size() != sizeof(NodeReport)) panic("a report of the wrong size, from node", message.from.value);
  NodeReport& report = reports_[message.from.value];
  std::memcpy(&report, message.payload.data(), sizeof report);
  if (report.node != message.from.value || !check_report(report))
    panic("a report that makes no sense, from node", message.from.value);
  reports_in_.fetch_or(uint64_t{1} << message.from.value);
  changed_.notify();
}

void Node::handle_exit(const Message& message) {
  if (config_.node != NodeId(0)) panic("a wish to exit for node 0 came here, from node", message.from.value);
  exit_status_ = static_cast<int>(message.header.word[0]);
  exit_wanted_ = 1;
  exit_event_.notify();
}

}  // namespace multigrain
