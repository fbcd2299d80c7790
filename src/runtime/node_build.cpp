// How a node is built from its environment: the fabric, the protocols, and what stands on them (node.h).
#include <emmintrin.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>

#include "base/clock.h"
#include "base/own_descriptors.h"
#include "coherence/placement/instructions/module.h"
#include "coherence/placement/instructions/references.h"
#include "count/counting.h"
#include "emulation/machine_description.h"
#include "emulation/node_caches.h"
#include "fabric/emulation/emulation.h"
#include "fabric/emulation/ordered_fabric.h"
#include "fabric/module.h"
#include "instrument/abi.h"
#include "instrument/runtime/hazards.h"
#include "instrument/runtime/installed_protocol.h"
#include "memory/open_rights.h"
#include "profile/virtual_time.h"
#include "runtime/allocation.h"
#include "runtime/compiled_races.h"
#include "runtime/counted_program.h"
#include "runtime/environment.h"
#include "runtime/fault_entry.h"
#include "runtime/interpose/handlers.h"
#include "runtime/interpose/syscalls.h"
#include "runtime/interpose/thread_sync.h"
#include "runtime/interpose/threads.h"
#include "runtime/message_types.h"
#include "runtime/node.h"
#include "runtime/node_references.h"
#include "runtime/private/private_heap.h"
#include "status/node_status.h"

namespace multigrain {
namespace {

// The node's hazard slots, set before its first thread starts.
HazardSlots* g_hazard_slots = nullptr;

// What executes instructions that refer to remote pages, up to the process's last fault; nullptr if there are none.
std::unique_ptr<placement::InstructionReferences> g_references;

// Pages in another node's memory that cannot be mapped here are referred to by operations, which the runtime of compiled checks makes
// where the program has some, and the fault handler for other instructions.
Status build_references(const Region& region, Protocol& protocol) {
  auto* const memory = dynamic_cast<RemoteMemory*>(&protocol);
  if (memory == nullptr || !memory->has_remote_pages()) return {};
  const auto open = load_module(placement::kReferencesModule, placement::kReferencesSymbol);
  if (!open) return fail("--protocol placement: {}", open.error().message);
  const placement::DecodeInstruction decode = reinterpret_cast<decltype(&multigrain_references_module)>(*open)();
  auto references = placement::InstructionReferences::create(region, *memory, decode);
  if (!references) return tl::unexpected(references.error());
  g_references = std::make_unique<placement::InstructionReferences>(std::move(*references));
  set_remote_memory(memory, region.page_shift());
  return {};
}

}  // namespace

Status Node::build() {
  unsigned nodes_here = config_.nodes;
  if (bootstrap_) {
    const auto& hosts = bootstrap_->hosts;
    nodes_here = static_cast<unsigned>(std::count(hosts.begin(), hosts.end(), hosts[config_.node.value]));
  }
  const NodeEnvironment environment = read_node_environment(nodes_here * config_.processors_per_node);
  wait_ = environment.wait;
  sched_getaffinity(0, sizeof service_cores_, &service_cores_);
  if (!environment.cpus.empty()) {
    CPU_ZERO(&service_cores_);
    for (const int cpu : environment.cpus) CPU_SET(cpu, &service_cores_);
  }
  started_at_ = monotonic_ns();

  // The default is too much for a build whose address space is cramped.
  if (config_.region_size > layout::kMaxRegionSize && config_.region_size == Config{}.region_size)
    config_.region_size = layout::kMaxRegionSize;

  if (Status built = build_fabric(environment); !built) return built;
  if (Status started = start_timeline(); !started) return started;
  start_costs();
  if (Status built = build_rights(); !built) return built;

  heap_ = std::make_unique<SharedHeap>(*fabric_, wait_, region_->base(), region_->size(), config_.page_size, &*region_);

  if (Status started = start_recording(config_, *region_); !started) return started;
  if (Status built = build_protocols(); !built) return built;
  if (config_.check)
    if (Status started = start_check(*this); !started) return started;
  if (config_.check_races)
    if (Status started = start_compiled_races(*this); !started) return started;

  // Processors of one node need no words that other nodes can reach: an uncontended lock is then one atomic, and so is its
  // unlock. In virtual time, and where the locks inside a node are chosen, runs of one node are compared with runs of
  // several.
  const bool locks_are_shared = config_.nodes > 1 || virtual_time::on() || !config_.hlrc.tickets;
  SyncHost& sync_host = *this;
  sync_ = std::make_unique<Sync>(
      sync_host, *fabric_, config_.nodes, config_.processors_per_node,
      SyncOptions{.own_locks = config_.nodes > 1 ? kOwnLocks : 0,
                  .own_conds = config_.nodes > 1 ? kOwnConds : 0,
                  .network_locks = locks_are_shared && !config_.traits().has_handlers,
                  .intra_node = config_.hlrc.tickets ? IntraNodeLock::kTicket : IntraNodeLock::kTestAndSet,
                  .hands_on_dirty = config_.traits().kind != ProtocolKind::kMgs || config_.mgs.hands_on_dirty(),
                  .own_releases = protocol_->releases_own_writes(),
                  .deferred = config_.hlrc.deferred_releases && config_.nodes > 1 && protocol_->may_defer_releases()
                                  ? DeferredReleases::kLearned
                                  : DeferredReleases::kNever,
                  .lost_without_barrier = moves_to_lines() ? page_protocol_->lost_without_barrier() : nullptr});
  state_copy_ = std::make_unique<StateCopy>(*fabric_, wait_);
  shared_globals_ = std::make_unique<SharedGlobals>(*fabric_, wait_, *region_, *rights_, *heap_, *protocol_);
  set_handler<&Node::handle_shutdown>(runtime_message::kShutdown);
  set_handler<&Node::handle_report>(runtime_message::kReport);
  set_handler<&Node::handle_thread_rows>(runtime_message::kThreadRows);
  set_handler<&Node::handle_exit>(runtime_message::kExit);
  set_handler<&Node::handle_profile_mark>(runtime_message::kProfileMark);
  set_handler<&Node::handle_profile_marked>(runtime_message::kProfileMarked);

  shutdown_event_ = own_descriptors::keep(eventfd(0, EFD_CLOEXEC));
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
  if (line_protocol_ != nullptr && line_protocol_->pending_messages() != nullptr && !virtual_time::on()) {
    processors_->expect_polls();
    fabric_->linger(wait_.spin_ticks);
  }
  measured_from_ = virtual_time::on() ? 0 : started_at_;

  if (Status built = build_references(*region_, *page_protocol_); !built) return built;
  if (Status installed = install_fault_entry(*region_, *rights_, *protocol_, detector_, g_references.get()); !installed)
    return installed;
  set_shared_region(region_->base(), region_->size());
  if (config_.nodes > 1) refuse_thread_sync(&Node::refuse_thread_sync_object);
  if (line_protocol_ != nullptr || translation_ != nullptr) set_shared_copies(&__multigrain_load, &__multigrain_store);
  if (config_.node == NodeId(0))
    processors_->adopt_main_thread();
  else
    settle_c_library();
  if (config_.verbose && config_.node == NodeId(0))
    std::fprintf(stderr,
                 "multigrain: %u nodes of %u processors, protocol %s, pages of %zu bytes, access rights by %s (%s)\n",
                 config_.nodes, config_.processors_per_node, std::string(config_.traits().name).c_str(),
                 config_.page_size, std::string(rights_->name()).c_str(), rights_reason_.c_str());
  return {};
}

Status Node::build_rights() {
  if (config_.translates()) rights_reason_ = "compiled code looks accesses up in translation tables";
  auto rights = config_.translates() ? open_rights(*region_) : choose(config_.access, *region_, &rights_reason_);
  if (!rights) return tl::unexpected(rights.error());
  rights_ = std::move(*rights);
  if (!config_.races) return {};
  auto watched = races::WatchedRights::create(std::move(rights_), *region_);
  if (!watched) return tl::unexpected(watched.error());
  watched_rights_ = watched->get();
  rights_ = std::move(*watched);
  return {};
}

// A run of one node has one table with all rights, which every thread has from the start: such a run stands for a machine
// without any protocol, but with translation ([MGS], section 5.2, SVM-Seq and SVM-Par).
Status Node::build_translation() {
  if (!config_.translates()) return {};
  if (!checks_.translation_of_another_version.empty())
    return fail(
        "the translation of {} was compiled by another version of mgcc, and --mgs translation=compiled cannot rely on it: "
        "compile it again",
        checks_.translation_of_another_version);
  if (!checks_.untranslated.empty())
    return fail(
        "{} was compiled without translation, which --mgs translation=compiled needs: compile it with mgcc or mg++ and "
        "-fmultigrain-translate, or leave translation to the hardware (--mgs translation=hardware)",
        checks_.untranslated);
  if (config_.nodes == 1) return {};
  auto translation = Translation::create(*region_, *hazard_slots_, config_.processors_per_node);
  if (!translation) return tl::unexpected(translation.error());
  translation_ = std::move(*translation);
  return {};
}

// There may be two protocols, because each allocation says which one keeps it coherent.
Status Node::build_protocols() {
  NodeServices services{*fabric_, *region_, *rights_, *this, wait_};
  if (config_.shares_memory()) services.frames_of_nodes = frames_fds_;
  std::unique_ptr<races::Detector> detector;
  if (config_.races) {
    const auto open = load_module(races::kModuleName, races::kModuleSymbol);
    if (!open) return fail("--races: {}", open.error().message);
    const races::Module& module = *reinterpret_cast<decltype(&multigrain_races_module)>(*open)();
    detector = std::make_unique<races::Detector>(*fabric_, *region_, *watched_rights_, module.decode);
    services.writes = detector->writes();
    if (config_.node == NodeId(0))
      judge_ =
          std::make_unique<races::Judge>(*fabric_,
                                         races::Judge::Machine{.region = reinterpret_cast<uint64_t>(region_->base()),
                                                               .page_shift = region_->page_shift()},
                                         module.places(*node_status()));
  }
  hazard_slots_ = std::make_unique<HazardSlots>(fabric_->self(), fabric_->own_segment(SegmentId::kWords));
  if (Status built = build_translation(); !built) return built;
  auto pages = create_page_protocol(config_.protocol_of(Grain::kPage), services,
                                    {.prefetch = config_.prefetch,
                                     .mgs_reads_one_sided = config_.mgs_reads_one_sided(),
                                     .mgs_mappings = translation_ != nullptr ? &translation_->tables() : nullptr,
                                     .mgs_domains = translation_ != nullptr ? translation_->tables().domains() : 1,
                                     .hlrc = config_.hlrc,
                                     .policy = config_.policy,
                                     .observer = recorder_of_run()});
  if (!pages) return tl::unexpected(pages.error());
  page_protocol_ = std::move(*pages);
  if (detector) {
    detector->set_protocol(std::move(page_protocol_));
    detector_ = detector.get();
    page_protocol_ = std::move(detector);
  }
  protocol_ = page_protocol_.get();

  // Every thread has hazards before it runs the program's code: this thread gets them now, later ones by
  // pthread_create.
  hazard_slots_->bind();
  g_hazard_slots = hazard_slots_.get();
  set_thread_hooks([] { g_hazard_slots->bind(); },
                   [] {
                     Processors::thread_ends();
                     g_hazard_slots->unbind();
                   });

  if (config_.traits().grain == Grain::kLine && !checks_.of_another_version.empty())
    return fail(
        "the access checks of {} were made by another version of mgcc, which the protocol {} cannot rely on: "
        "compile it again, or choose a page protocol (--protocol mgs)",
        checks_.of_another_version, config_.protocol);
  if (config_.traits().grain == Grain::kLine && !checks_.missing.empty())
    return fail(
        "{} was compiled without access checks, which the protocol {} needs: compile it with mgcc or mg++, or choose "
        "a page protocol (--protocol mgs)",
        checks_.missing, config_.protocol);
  if (translation_ != nullptr) {
    translation_->begin(*protocol_);
    set_handler_hooks([] { checks::begin_handler(g_hazard_slots->slot_for_handlers()); },
                      [](bool returned) { checks::end_handler(returned); });
  }
  moves_to_lines_ = decide_moves_to_lines(config_, checks_);
  if (!checks_.in_program || config_.nodes > kMaxLineNodes) return {};
  auto lines = create_line_protocol(config_.protocol_of(Grain::kLine), services, {*line_table_, *hazard_slots_},
                                    config_.model, config_.prefetch);
  if (!lines) return tl::unexpected(lines.error());
  line_protocol_ = std::move(*lines);
  both_protocols_ = std::make_unique<ByGrain>(*page_protocol_, *line_protocol_);
  protocol_ = both_protocols_.get();
  if (moves_to_lines()) {
    LineKeeper* const keeper = line_protocol_->keeper();
    MG_CHECK(keeper != nullptr);
    handover_.emplace(*keeper);
    if (Status offered = page_protocol_->offer_lines(*handover_); !offered) return offered;
  }
  set_line_protocol(line_protocol_.get());
  set_handler_hooks([] { checks::begin_handler(g_hazard_slots->slot_for_handlers()); },
                    [](bool returned) { checks::end_handler(returned); });
  return {};
}

// Makes the region's frames, the line table, and the fabric that carries them to the other nodes.
Status Node::build_fabric(const NodeEnvironment& environment) {
  const auto line_shift = static_cast<unsigned>(std::countr_zero(config_.line_size));
  if (bootstrap_) {
    auto region = Region::create(config_.region_size, config_.page_size, -1);
    if (!region) return tl::unexpected(region.error());
    region_.emplace(std::move(*region));
    for (size_t i = 0; i < bootstrap_->hosts.size(); ++i)
      names_of_nodes_.push_back(fmt::format("node {} on host {}", i, bootstrap_->hosts[i]));
    node_0_gone_ = own_descriptors::keep(eventfd(0, EFD_CLOEXEC));
    if (node_0_gone_ < 0) return fail_errno(errno, "cannot create an event descriptor");
    auto table = LineTable::map(region_->size(), line_shift);
    if (!table) return tl::unexpected(table.error());
    line_table_.emplace(std::move(*table));
    auto ucx = bootstrap_->connect(
        config_, {region_->alias(PageId(0)), region_->size()}, line_table_->bytes(),
        [](void* node, NodeId lost, const char* reason) { static_cast<Node*>(node)->peer_failed(lost, reason); }, this);
    if (!ucx) return tl::unexpected(ucx.error());
    ucx_ = ucx->get();
    fabric_ = std::move(*ucx);
    if (config_.verbose)
      std::fprintf(stderr, "multigrain: node %u on host %s: %s\n", config_.node.value,
                   bootstrap_->hosts[config_.node.value].c_str(), ucx_->description().c_str());
  } else {
    // The job's memory comes from the launcher. A program that was started without one makes its own.
    int job_fd = config_.job_fd;
    std::vector<int> frames_fds = environment.frames_fds;
    for (int& fd : frames_fds) fd = own_descriptors::keep(fd);
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
    auto region = Region::create(
        config_.region_size, config_.page_size,
        frames_fds.empty() ? -1 : own_descriptors::keep(fcntl(frames_fds[config_.node.value], F_DUPFD_CLOEXEC, 0)));
    if (!region) return tl::unexpected(region.error());
    region_.emplace(std::move(*region));

    // Programs that this one executes later have no business with these descriptors, and must not keep the
    // memory alive.
    for (const int fd : frames_fds) fcntl(fd, F_SETFD, FD_CLOEXEC);
    auto shm = ShmFabric::attach(job_fd, config_.node, frames_fds, config_.region_size);
    if (!shm) return tl::unexpected(shm.error());
    shm_ = shm->get();
    fabric_ = std::move(*shm);
    frames_fds_ = std::move(frames_fds);
    close(job_fd);
    shm_->export_segment(SegmentId::kFrames, region_->alias(PageId(0)), region_->size());
    const JobMemory& job = shm_->job();
    auto table = LineTable::map(region_->size(), line_shift, job.tables_fd(), job.lines_at(config_.node));
    if (!table) return tl::unexpected(table.error());
    line_table_.emplace(std::move(*table));
    shm_->export_segment(SegmentId::kLines, line_table_->bytes().data(), line_table_->bytes().size());
  }
  if (config_.clock == ClockKind::kVirtual) {
    emulate(*shm_);
    return {};
  }
  if (config_.clock == ClockKind::kCounted) return emulate_in_counted_time(*shm_);
  if (!config_.network.ideal()) fabric_ = std::make_unique<ModelledFabric>(std::move(fabric_), config_.network);
  return {};
}

namespace {

// Returns what a check that misses costs before the runtime begins and after it has ended; the median. Such a check has
// looked at a line of the cache that another node has written (the flag value, or a word of the table), and its call
// keeps all registers.
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

Status Node::emulate_caches() {
  Status started = node_caches::start(*config_.machine->caches, config_.processors_per_node, region_->base(),
                                      region_->size(), config_.page_size);
  if (!started) return started;
  const char* const silent =
      counting::set_memory([](const void* address, uint64_t bytes, bool writes, const void*) -> uint64_t {
        const std::optional<unsigned> processor = virtual_time::running_processor();
        return processor ? node_caches::access(*processor, address, bytes, writes) : 0;
      });
  if (silent != nullptr)
    return fail(
        "--caches on needs to know what the program accesses, and {} does not report it: compile and link the program with "
        "mgcc -fmultigrain-count=memory",
        silent);
  return {};
}

Status Node::emulate_in_counted_time(ShmFabric& shm) {
  if (const std::string why = counting::why_not_counted(); !why.empty())
    return fail("--clock counted counts what the program executes, and {}", why);
  const Emulation emulation(shm.job().emulation(), config_.nodes, config_.processors());
  virtual_time::Shared shared = emulation.clocks();
  shared.order.aborted = &shm.job().header().aborted;
  shared.order.status_of_abort = ShmFabric::kAbortedStatus;
  virtual_time::start(shared, {.skew_ns = config_.skew,
                               .first_processor = config_.node.value * config_.processors_per_node,
                               .processors = config_.processors_per_node,
                               .costs = &config_.machine->costs,
                               .perturbation = {.seed = config_.seed.value_or(0),
                                                .most = config_.seed ? config_.perturb.value_or(config_.skew) : 0},
                               .count = []() -> mg_count& { return __multigrain_count; }});
  counting::InstructionCosts prices = config_.machine->instructions;
  prices.of_class[MG_COUNT_LOAD_CHECK] = config_.machine->costs.load_check;
  prices.of_class[MG_COUNT_STORE_CHECK] = config_.machine->costs.store_check;
  prices.of_class[MG_COUNT_POLL] = config_.machine->costs.poll;
  // A program that translates does so in every run, but the emulated machine does not.
  if (!config_.translates()) prices.translation.reset();
  counting::install(prices);
  counting::set_poll(&virtual_time::poll);
  if (config_.caches)
    if (Status caches = emulate_caches(); !caches) return caches;
  // What waits gives its turn away at once: nothing could come while it polls.
  wait_.spin_ticks = 0;
  shm.carry_arrivals();
  fabric_ = std::make_unique<OrderedFabric>(
      std::move(fabric_), shm, config_.network, emulation.nodes(), config_.processors_per_node,
      config_.machine->handlers == MachineDescription::Handlers::kEachProcessor ? config_.processors_per_node : 1);
  return {};
}

}  // namespace multigrain
