#include "guest/nodes/nodes.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/lock_guard.h"
#include "base/own_descriptors.h"
#include "guest/calls.h"
#include "guest/entry.h"
#include "guest/package.h"
#include "guest/proc_files.h"
#include "guest/vdso.h"
#include "memory/page_fault.h"
#include "profile/this_thread.h"
#include "runtime/fault_entry.h"

namespace multigrain::guest {
namespace {

// Programs at fixed addresses have them here, with room for their break: frames of the region's upper end are viewed
// here. The host has nothing below that end.
constexpr Range kLow{0x1'0000, uint64_t{64} << 30};
// The heap may take so much of the region beside the guest's memory.
constexpr uint64_t kSlack = uint64_t{1} << 30;
constexpr size_t kHostStack = size_t{256} << 10;

// Returns the right that the faulted access needs.
int needed_right(const ucontext_t& context) {
  const PageFaultCode code(&context);
  return code.is_write() ? PROT_WRITE : code.is_fetch() ? PROT_EXEC : PROT_READ;
}

[[noreturn]] void sleep_for_ever() {
  block_signals();
  while (true) pause();
}

}  // namespace

Nodes::Nodes(Node& node, Ranges guest, uint64_t slots, const cpu_set_t& inherited_cores)
    : node_(node),
      inherited_cores_(inherited_cores),
      guest_(std::move(guest)),
      shares_machine_(node.config().fabric == FabricKind::kShm),
      measures_calls_(node.config().stats != StatsFormat::kNone || !node.config().timeline_file.empty()),
      process_(getpid()),
      profiles_(node.config()),
      of_files_(guest_),
      futexes_(node.fabric(), node.wait(), kHome),
      requests_(node.fabric(), node.wait(), slots),
      given_(guest_, guest_.back()),
      areas_(node.region(), node.rights(), of_files_, guest_) {
  node.rights().let_others_map();
  // The guest's membarrier() needs these registrations (node_calls.cpp). An older kernel lacks them, and says so to the
  // guest as well.
  for (const int registration :
       {MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE})
    syscall(SYS_membarrier, registration, 0, 0);
  node.set_stretches(*this);
  node.set_hosted(profiles_);
  Fabric& fabric = node.fabric();
  if (is_home()) {
    HomeHost& home_host = *this;
    home_.emplace(fabric, node.wait(), home_host, node.region().alias(PageId(0)) + slots,
                  node.config().processors_per_node, profiles_);
    fabric.set_handler(guest_message::kHello, &Nodes::on_hello, this);
    fabric.set_handler(guest_message::kAreasInvalidated, &Nodes::on_areas_invalidated, this);
  } else {
    fabric.set_handler(guest_message::kStart, &Nodes::on_start, this);
    fabric.set_handler(guest_message::kInvalidateAreas, &Nodes::on_invalidate_areas, this);
  }
}

Result<std::unique_ptr<Nodes>> Nodes::create(Node& node, const cpu_set_t& inherited_cores) {
  if (const Status machine = check_machine(); !machine) return tl::unexpected(machine.error());
  if (node.rights().name() != "userfault")
    return fail(
        "a program as it is can run on several nodes only where userfaultfd works (--access userfault): its own rights "
        "to its memory are kept by mprotect");
  Region& region = node.region();
  const uint64_t slots_bytes = slots::kCount * slots::kSize;
  if (region.page_size() != kPageSize)
    return fail("a program as it is needs pages of {} bytes (--page-size)", kPageSize);
  const auto base = reinterpret_cast<uint64_t>(region.base());
  if (base + region.size() < base + (uint64_t{2} << 40))
    return fail("a program as it is needs a region of 2 TiB at least (--region-size)");
  const uint64_t slots = region.size() - slots_bytes;
  const uint64_t low = slots - kSlack - (kLow.end - kLow.begin);
  const PageId first(low / kPageSize);
  const uint64_t count = (kLow.end - kLow.begin) / kPageSize;
  if (const Status moved = region.move_view(first, count, kLow.begin); !moved) return tl::unexpected(moved.error());
  node.rights().watch_again(first, count);
  std::unique_ptr<Nodes> nodes(new Nodes(node, {kLow, Range{base + kPageSize, base + low}}, slots, inherited_cores));
  if (const Status begun = nodes->begin_local_files(); !begun) return tl::unexpected(begun.error());
  return nodes;
}

Status Nodes::begin_local_files() {
  const Config& config = node_.config();
  if (config.local_files.empty() || config.nodes == 1) return {};
  if (const Status begun = folders_.begin(config.local_files, is_home()); !begun) return begun;
  if (is_home())
    home_->use_local_files(home_files_.emplace(node_.fabric(), node_.wait(), folders_));
  else
    node_files_.emplace(node_.fabric(), folders_, shares_machine_);
  return {};
}

CannotExecute Nodes::run(const std::string& path, std::vector<std::string> arguments,
                         std::vector<std::string> environment, uint64_t mask) {
  const auto failed = [](std::string sentence) {
    return CannotExecute{.code = ENOMEM, .sentence = std::move(sentence)};
  };
  // All of the guest's addresses are one allocation, each page of which has its home where it is used first.
  const uint64_t bytes = guest_.back().end - guest_.back().begin + kLow.end - kLow.begin;
  const auto memory = node_.heap().allocate(bytes, kPageSize, {.policy = HomePolicy::kFirstTouch});
  if (!memory) return failed(memory.error().message);
  // Every node must know the same ranges.
  const uint64_t begin = std::max(reinterpret_cast<uint64_t>(memory->address), guest_.back().begin);
  // The guest has nothing mapped yet, so it has no rights anywhere.
  mprotect(node_.region().base(), node_.region().size(), PROT_NONE);
  AreaCaches& others = *this;
  auto mappings =
      std::make_unique<SharedMappings>(node_.region(), node_.rights(), node_.heap(), node_.protocol(), of_files_,
                                       others, shares_machine_ ? Files::kOfEveryNode : Files::kAtHome);
  Host& state =
      *new (place_of_host()) Host({kLow, Range{begin, guest_.back().end}}, std::move(mappings), node_.config().nodes);
  state.cluster = this;
  state.processors = processors();
  state.memory_is_shared = true;
  state.traps_all_calls = node_.config().calls == CallsBy::kTrap;
  state.own_threads = threads_beside_this();
  state.cores_of_processes = inherited_cores_;
  if (placement_) {
    placement_->set_ranges({kLow, Range{begin, guest_.back().end}});
    state.forks_without_nodes = &placement_->forks_without_nodes();
  }
  if (const Status hidden = hide_processor_number(); !hidden) return failed(hidden.error().message);
  // All threads of the guest come from this one. They are the node's, not one processor's, so they may run on
  // all its cores.
  sched_setaffinity(0, sizeof node_.cores(), &node_.cores());
  wait_until(node_.fabric(), node_.wait(), changed_, [this] { return hellos_.load() + 1 == node_.config().nodes; });
  {
    const LockGuard hold(lacking_lock_);
    if (!lacking_.empty()) return failed(lacking_);
  }
  for (unsigned n = 1; placement_ && n < node_.config().nodes; ++n)
    placement_->set_placer(NodeId(static_cast<uint16_t>(n)), placers_[n].load());
  // Clocks of several machines differ, and so may their vdso. The guest's time is then the home's.
  state.has_vdso = shares_machine_ && same_vdso_.load();
  profiles_.set_program(path.substr(path.rfind('/') + 1));
  if (measures_calls_) state.actions.see_ends();
  profiles_.begin_first(gettid());
  return run_guest(state, path, std::move(arguments), std::move(environment), mask);
}

Processors Nodes::processors() const {
  return {.all = node_.config().processors(), .of_a_node = node_.config().processors_per_node};
}

Status Nodes::place_processes() {
  if (!shares_machine_)
    return fail(
        "processes of a program as it is can run on other nodes only if those are of one machine (--processes)");
  auto created = Placement::create(node_.config().nodes, processors());
  if (!created) return tl::unexpected(created.error());
  placement_ = std::move(*created);
  return {};
}

Status Nodes::begin_away(uint64_t placer) {
  Host& state = *new (place_of_host()) Host(guest_, nullptr, node_.config().nodes);
  state.cluster = this;
  state.processors = processors();
  state.memory_is_shared = true;
  // Only the home knows what the guest's areas are, so it alone can change call sites.
  state.traps_all_calls = true;
  mprotect(node_.region().base(), node_.region().size(), PROT_NONE);
  if (const Status hidden = hide_processor_number(); !hidden) return hidden;
  if (const Status installed = install_host_handlers(); !installed) return installed;
  pthread_t thread{};
  const int failed = pthread_create(
      &thread, nullptr,
      [](void* self) -> void* {
        pthread_setname_np(pthread_self(), "mg threads");
        auto* const nodes = static_cast<Nodes*>(self);
        sched_setaffinity(0, sizeof nodes->node_.cores(), &nodes->node_.cores());
        nodes->start_arrivals();
      },
      this);
  if (failed != 0) return fail_errno(failed, "cannot start the thread that starts the guest's");
  pthread_detach(thread);
  MessageHeader header;
  header.type = guest_message::kHello;
  header.word[0] = getauxval(AT_SYSINFO_EHDR);
  header.word[1] = placer;
  node_.fabric().send(kHome, header, std::as_bytes(std::span(&features_, 1)), {}, SendContext::kOrdinary);
  return {};
}

// --- Faults and areas

bool Nodes::on_fault(int signal, const siginfo_t& info, const ucontext_t& context, ThreadBlock& thread) {
  const auto address = reinterpret_cast<uint64_t>(info.si_addr);
  // The access was, for example, beyond the end of a file.
  if (signal == SIGBUS && of_files_.has(address)) return false;
  if (serve_fault(signal, &info, &context)) return true;
  // The guest has ended, so it does not matter what a thread still does to its memory.
  if (is_exiting_.load()) sleep_for_ever();
  if (signal != SIGSEGV || !given_.is_in_allowed({address, address + 1})) return false;
  const int saved = errno;
  const bool found = thread.away != nullptr ? find_area(address, context, thread)
                                            : info.si_code == SEGV_ACCERR && has_right(address, context);
  errno = saved;
  return found;
}

void Nodes::expect_copy(uint64_t address, uint64_t bytes, bool is_write) {
  const Range range{address / kPageSize * kPageSize, address + bytes};
  if (range.end < range.begin || !given_.is_in_allowed(range)) return;
  const PageId first = node_.region().page_of(reinterpret_cast<const void*>(range.begin));
  node_.protocol().expect(first, (range.end - range.begin + kPageSize - 1) / kPageSize, is_write);
}

// Behind the end of an area there is another area, a file, or nothing, so no page there is asked for ahead.
PageRange Nodes::part_of(PageId page) {
  Region& region = node_.region();
  const auto address = reinterpret_cast<uint64_t>(region.view(page));
  const auto range = is_home() ? host().space.try_range_around(address) : areas_.try_range_around(address);
  if (!range) return {};
  const auto number = [&region](uint64_t at) { return region.page_of(reinterpret_cast<const void*>(at)).value; };
  return {.begin = number(range->begin), .end = number(range->end - 1) + 1};
}

AreaAnswer Nodes::ask_area(uint64_t address, ThreadBlock& thread) {
  std::vector<std::byte> bytes;
  Request request{.kind = RequestKind::kArea};
  request.arguments[0] = address;
  requests_.ask(thread, request, {}, &bytes);
  AreaAnswer answer;
  if (bytes.size() != sizeof answer) panic("an answer of the wrong size about an area", bytes.size());
  std::memcpy(&answer, bytes.data(), sizeof answer);
  return answer;
}

// Where the guest has nothing, the host has something without rights, so the kernel says SEGV_ACCERR.
void Nodes::explain_fault(siginfo_t& info, ThreadBlock& thread) {
  const auto address = reinterpret_cast<uint64_t>(info.si_addr);
  if (info.si_signo != SIGSEGV || info.si_code != SEGV_ACCERR) return;
  bool is_mapped = false;
  if (given_.is_in_allowed({address, address + 1})) {
    if (thread.away != nullptr) {
      is_mapped = ask_area(address, thread).is_mapped;
    } else {
      AddressSpace& space = host().space;
      space.lock();
      is_mapped = space.locked_area_of(address).has_value();
      space.unlock();
    }
  }
  if (!is_mapped) info.si_code = SEGV_MAPERR;
}

// At home, a thread that forks takes the guest's rights away for a while, and has the lock for as long.
bool Nodes::has_right(uint64_t address, const ucontext_t& context) {
  AddressSpace& space = host().space;
  space.lock();
  const auto area = space.locked_area_of(address);
  space.unlock();
  return area && (area->rights & needed_right(context)) != 0;
}

bool Nodes::find_area(uint64_t address, const ucontext_t& context, ThreadBlock& thread) {
  const CategoryScope waiting(this_profile(), Category::kDataWait);
  const int needed = needed_right(context);
  bool is_refused = false;
  while (true) {
    const AreaAnswer answer = ask_area(address, thread);
    if (!answer.is_mapped || (answer.area.rights & needed) == 0) return false;
    // The files are the home's.
    if (!shares_machine_ && answer.area.file != 0) {
      thread.needs_home = true;
      return false;
    }
    if (areas_.take(answer, is_refused)) return true;
  }
}

namespace {

// The thread of the guest that the calling thread is, on another node than the home.
thread_local ThreadBlock* t_thread_away = nullptr;

}  // namespace

void Nodes::come_home(const ucontext_t& context, ThreadBlock& thread) {
  thread.needs_home = false;
  if (requests_.ask(thread, {.kind = RequestKind::kTakeOver}, thread_to_take_over(context, thread)) != 0) return;
  block_signals();
  leave_guest(thread);
}

bool Nodes::copy_at_home(uint64_t address, void* bytes, size_t size, bool is_write) {
  ThreadBlock* const thread = t_thread_away;
  if (is_home() || thread == nullptr) return false;
  thread->needs_home = false;
  auto* const memory = static_cast<std::byte*>(bytes);
  for (size_t done = 0; done < size;) {
    const size_t count = std::min<size_t>(size - done, slots::kMaxData);
    Request request{.kind = RequestKind::kCopy};
    request.arguments[0] = address + done;
    request.arguments[1] = count;
    request.arguments[2] = is_write ? 1 : 0;
    std::vector<std::byte> found;
    const std::span<const std::byte> written =
        is_write ? std::span<const std::byte>(memory + done, count) : std::span<const std::byte>{};
    if (requests_.ask(*thread, request, written, &found) != 0) return false;
    if (!is_write) {
      if (found.size() != count) panic("a copy of the guest's memory of the wrong size, bytes", found.size());
      std::memcpy(memory + done, found.data(), count);
    }
    done += count;
  }
  return true;
}

AreaAnswer Nodes::answer_area(uint64_t address) {
  AreaAnswer answer;
  AddressSpace& space = host().space;
  space.lock();
  answer.version = version_.load();
  if (const auto area = space.locked_area_of(address)) {
    answer.is_mapped = true;
    answer.home = getpid();
    answer.area = *area;
    if (shares_machine_ || area->file == 0) given_.map({.range = area->range});
  }
  space.unlock();
  return answer;
}

void Nodes::invalidate(Range range) {
  if (given_.is_free(range)) return;
  given_.unmap(range);
  MessageHeader header;
  header.type = guest_message::kInvalidateAreas;
  header.word = {range.begin, range.end, version_.fetch_add(1) + 1};
  invalidated_.store(0);
  PollingScope polling(node_.fabric());
  for (unsigned n = 1; n < node_.config().nodes; ++n)
    node_.fabric().send(NodeId(static_cast<uint16_t>(n)), header, SendContext::kOrdinary);
  wait_until(polling, node_.wait(), changed_, [this] { return invalidated_.load() + 1 == node_.config().nodes; });
}

void Nodes::on_invalidate_areas(void* self, const Message& message) {
  auto& nodes = *static_cast<Nodes*>(self);
  const Range range{message.header.word[0], message.header.word[1]};
  if (message.from != kHome || !nodes.given_.is_in_allowed(range))
    panic("areas to invalidate that cannot be the guest's, node / address", message.from.value, range.begin);
  nodes.areas_.invalidate(range, message.header.word[2]);
  MessageHeader header;
  header.type = guest_message::kAreasInvalidated;
  nodes.node_.fabric().send(kHome, header, SendContext::kHandler);
}

void Nodes::on_areas_invalidated(void* self, const Message&) {
  auto& nodes = *static_cast<Nodes*>(self);
  nodes.invalidated_.fetch_add(1);
  nodes.changed_.notify();
}

void Nodes::on_hello(void* self, const Message& message) {
  auto& nodes = *static_cast<Nodes*>(self);
  if (message.header.word[0] != getauxval(AT_SYSINFO_EHDR)) nodes.same_vdso_ = false;
  ProcessorFeatures features;
  if (message.payload.size() != sizeof features)
    panic("a node's greeting without its processor's features, node", message.from.value);
  std::memcpy(&features, message.payload.data(), sizeof features);
  if (const std::string lacking = nodes.features_.lacking_in(features); !lacking.empty()) {
    const LockGuard hold(nodes.lacking_lock_);
    nodes.lacking_ = fmt::format(
        "the processor of node {} lacks what node 0's has, where programs choose their instructions ({}): run node 0 "
        "on the host with the older processor, which is the first of --hosts",
        message.from.value, lacking);
  }
  nodes.placers_[message.from.value].store(message.header.word[1]);
  nodes.hellos_.fetch_add(1);
  nodes.changed_.notify();
}

// --- Threads

long Nodes::start_thread(const ThreadStart& start, ThreadBlock& parent) {
  const uint64_t mask = mask_of(*start.context, parent);
  if (parent.away == nullptr) return home_->start_thread(start, parent, mask);
  const ThreadToStart wanted{.stack = start.stack,
                             .thread_pointer = start.thread_pointer,
                             .parent_tid = start.parent_tid,
                             .child_tid = start.child_tid,
                             .clear_tid = start.clear_tid,
                             .mask = mask,
                             .tid = 0};
  const std::vector<std::byte> context = save_context(*start.context);
  std::vector<std::byte> data(sizeof wanted + context.size());
  std::memcpy(data.data(), &wanted, sizeof wanted);
  std::memcpy(data.data() + sizeof wanted, context.data(), context.size());
  return requests_.ask(parent, {.kind = RequestKind::kThread}, data);
}

void Nodes::on_start(void* self, const Message& message) {
  auto& nodes = *static_cast<Nodes*>(self);
  if (message.from != kHome || message.payload.size() <= sizeof(ThreadToStart))
    panic("a thread to start that is none, from node", message.from.value);
  {
    const LockGuard hold(nodes.arrivals_lock_);
    nodes.arrivals_.push_back({.slot = message.header.small,
                               .when = virtual_time::on() ? virtual_time::stamp() : 0,
                               .bytes = {message.payload.begin(), message.payload.end()}});
  }
  nodes.arrived_.notify();
}

void Nodes::start_arrivals() {
  while (true) {
    const uint32_t seen = arrived_.prepare();
    std::optional<Arrival> next;
    {
      const LockGuard hold(arrivals_lock_);
      if (!arrivals_.empty()) {
        next = std::move(arrivals_.front());
        arrivals_.pop_front();
      }
    }
    if (next)
      start(*next);
    else
      arrived_.sleep(seen);
  }
}

namespace {

// A thread of the guest that arrives on a node that is not the home has these.
struct Arrived {
  Arrived(ThreadBlock& its_block, uint16_t slot) : block(its_block), away(slot), actions(its_block) {}
  ThreadBlock& block;
  Away away;
  ActionsAtHome actions;
  ThreadStart start;
  ucontext_t* context = nullptr;
  Requests* requests = nullptr;
  Fabric* fabric = nullptr;
};

void tell_started(Fabric& fabric, uint16_t slot, long result) {
  MessageHeader header;
  header.type = guest_message::kStarted;
  header.small = slot;
  header.word[0] = static_cast<uint64_t>(result);
  fabric.send(kHome, header, SendContext::kOrdinary);
}

// Says that the thread cannot run on this node, and ends its shadow. The guest is told what the kernel would tell it.
void refuse(Fabric& fabric, Requests& requests, Away& away) {
  tell_started(fabric, away.slot(), -EAGAIN);
  requests.end(away);
}

void* arrived_main(void* argument) {
  const std::unique_ptr<Arrived> arrived(static_cast<Arrived*>(argument));
  arrived->requests->begin(arrived->away);
  t_thread_away = &arrived->block;
  bool is_refused = false;
  run_thread(arrived->block, *arrived->context, arrived->start, [&arrived, &is_refused](long result) {
    is_refused = result < 0;
    if (!is_refused) tell_started(*arrived->fabric, arrived->away.slot(), result);
  });
  t_thread_away = nullptr;
  if (is_refused) {
    destroy_block(&arrived->block);
    refuse(*arrived->fabric, *arrived->requests, arrived->away);
  }
  return nullptr;
}

}  // namespace

void Nodes::start(const Arrival& arrival) {
  ThreadToStart wanted;
  std::memcpy(&wanted, arrival.bytes.data(), sizeof wanted);
  const Result<ThreadBlock*> created = create_block();
  if (!created) {
    Away away(arrival.slot);
    refuse(node_.fabric(), requests_, away);
    return;
  }
  ThreadBlock& block = **created;
  auto arrived = std::make_unique<Arrived>(block, arrival.slot);
  block.away = &arrived->away;
  block.actions = &arrived->actions;
  block.tid = wanted.tid;
  block.guest_fs = wanted.thread_pointer;
  block.clear_tid = wanted.clear_tid;
  ucontext_t& context = restore_context(std::span(arrival.bytes).subspan(sizeof wanted), block.frame);
  context.uc_stack = block.stack();
  context.uc_mcontext.gregs[REG_RAX] = 0;
  if (wanted.stack != 0) context.uc_mcontext.gregs[REG_RSP] = static_cast<greg_t>(wanted.stack);
  set_mask(context, block, wanted.mask);
  block.mask_at_home = wanted.mask;
  arrived->start = {.context = &context,
                    .stack = 0,
                    .thread_pointer = 0,
                    .parent_tid = wanted.parent_tid,
                    .child_tid = wanted.child_tid,
                    .clear_tid = 0,
                    .creator = 0,
                    .when = arrival.when};
  arrived->context = &context;
  arrived->requests = &requests_;
  arrived->fabric = &node_.fabric();
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kHostStack);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread{};
  // The thread begins with all signals blocked but those that the host needs.
  const BlockedSignals blocked;
  const int failed = pthread_create(&thread, &attributes, &arrived_main, arrived.get());
  pthread_attr_destroy(&attributes);
  if (failed != 0) {
    destroy_block(&block);
    refuse(node_.fabric(), requests_, arrived->away);
    return;
  }
  arrived.release();
}

void Nodes::thread_has_ended(ThreadBlock& thread) {
  if (thread.away != nullptr)
    requests_.end(*thread.away);
  else if (home_) {
    host().masks.forget(gettid());
    home_->thread_ended_here();
  }
  profiles_.end();
}

// --- Requests of threads that are away

// The caller has locked the address space, which the analysis cannot see through the interface.
long Nodes::save_memory() MG_NO_THREAD_SAFETY_ANALYSIS {
  const std::vector<Area> areas = host().space.locked_areas();
  // Threads on other nodes have to ask for what they use from then on, and get no answer before the fork is done.
  for (const Range range : guest_) invalidate(range);
  return save_pages(node_.region(), node_.heap(), areas);
}

void Nodes::forget_saved_memory(long saved) MG_NO_THREAD_SAFETY_ANALYSIS {
  forget_pages(saved, host().space.locked_areas());
}

void Nodes::become_child(long saved, bool can_be_placed) MG_NO_THREAD_SAFETY_ANALYSIS {
  Host& state = host();
  restore_pages(saved, state.space.locked_areas());
  const int connection =
      placement_ ? placement_->begin(state.space.locked_account(), can_be_placed, state.space.limits().is_limited())
                 : -1;
  state.space.locked_use(std::make_unique<PrivateMappings>());
  state.cluster = nullptr;
  state.memory_is_shared = false;
  state.has_mappings_of_nodes = true;
  state.own_threads.clear();
  if (connection < 0)
    own_descriptors::give_up();
  else
    placement_->use(own_descriptors::give_up_but(connection));
}

void Nodes::place_child(Call& call) {
  if (placement_) placement_->place(call);
}

void Nodes::tell_processes() const {
  if (!placement_ || node_.config().stats == StatsFormat::kNone) return;
  const std::string line = placement_->describe();
  if (line.empty()) return;
  const std::string whole = fmt::format("multigrain: {}\n", line);
  // The program may have taken standard error away, or limited the size of files.
  if (write(STDERR_FILENO, whole.data(), whole.size()) < 0) return;
}

long Nodes::carry_out(Package& package, ThreadBlock& thread) {
  if (thread.away == nullptr) return home_files_ ? home_files_->carry_out(package, thread) : package.carry_out(thread);
  Request request{.kind = RequestKind::kPackage};
  NodeFiles::Left left;
  if (node_files_) {
    if (const auto result = node_files_->carry_out(package, thread)) return *result;
    left = node_files_->leave(package);
    request.number = left.number;
    request.arguments[0] = left.grant;
    request.arguments[1] = left.offset.value_or(0);
    request.arguments[2] = left.offset ? 1 : 0;
  }
  std::vector<std::byte> bytes;
  const long result = requests_.ask(thread, request, package.request(), &bytes);
  if (node_files_) node_files_->left(left);
  // The reply to a call that is to be made again has no data.
  if (result == kRestart) return result;
  if (const uint32_t offered = thread.away->offered(); offered != 0 && node_files_) {
    node_files_->take(std::span(bytes).last(offered), thread.away->slot());
    bytes.resize(bytes.size() - offered);
  }
  if (!package.take_reply(bytes))
    panic("a reply that does not fit its call, number / bytes", static_cast<uint64_t>(package.number()), bytes.size());
  return result;
}

long Nodes::call_at_home(long number, const uint64_t (&arguments)[6], ThreadBlock& thread) {
  Request request{.kind = RequestKind::kCall, .bytes = 0, .number = number};
  std::memcpy(request.arguments, arguments, sizeof arguments);
  return requests_.ask(thread, request);
}

long Nodes::start_process_at_home(Call& call) {
  Request request{.kind = RequestKind::kProcess, .bytes = 0, .number = call.number};
  std::memcpy(request.arguments, call.arguments, sizeof call.arguments);
  request.thread_pointer = call.thread.guest_fs;
  return requests_.ask(call.thread, request, save_context(call.context));
}

long Nodes::action_at_home(int signal, const SystemAction* wanted, SystemAction* before, ThreadBlock& thread) {
  const Request request{.kind = RequestKind::kAction, .bytes = 0, .number = signal};
  std::vector<std::byte> bytes;
  const auto data = wanted != nullptr ? std::as_bytes(std::span(wanted, 1)) : std::span<const std::byte>{};
  const long result = requests_.ask(thread, request, data, &bytes);
  if (before != nullptr && bytes.size() == sizeof *before) std::memcpy(before, bytes.data(), sizeof *before);
  return result;
}

long Nodes::set_mask_at_home(uint64_t mask, bool must_take, ThreadBlock& thread) {
  Request request{.kind = RequestKind::kMask};
  request.arguments[0] = mask;
  request.arguments[1] = must_take ? 1 : 0;
  const uint32_t acted_on = thread.signals_acted_on;
  request.arguments[2] = acted_on;
  const long result = requests_.ask(thread, request);
  if (result == 0) {
    thread.mask_at_home = mask;
    thread.signals_answered = acted_on;
  }
  return result;
}

void Nodes::act_by_default_at_home(int signal, bool is_forced, ThreadBlock& thread) {
  Request request{.kind = RequestKind::kDefault, .bytes = 0, .number = signal};
  request.arguments[0] = is_forced ? 1 : 0;
  requests_.ask(thread, request);
}

siginfo_t Nodes::take_signal(ThreadBlock& thread) {
  return requests_.take_signal(*thread.away);
}

void Nodes::first_thread_has_ended(int status) {
  profiles_.end();
  home_->first_thread_has_ended(status);
  sleep_for_ever();
}

void Nodes::thread_begins(const ThreadBlock& thread, const ThreadStart& start) {
  profiles_.begin_thread(number_of(thread), start.when);
}

void Nodes::call_begins() {
  this_profile().count(Counter::kSystemCalls);
  if (measures_calls_) this_profile().enter(Category::kSystem);
  virtual_time::begin_system_call();
}

void Nodes::call_ends() {
  virtual_time::end_system_call();
  if (measures_calls_) this_profile().enter(Category::kUser);
}

void Nodes::process_ends(int status) {
  // A child that shares this process's memory has an end of its own, which is not the guest's.
  if (!measures_calls_ || getpid() != process_) return;
  if (is_exiting_.exchange(true)) sleep_for_ever();
  tell_processes();
  static_cast<void>(node_.finish(status));
  is_exiting_.store(false);
}

void Nodes::begin_sharing_descriptors(bool shares_table) {
  if (home_files_) home_files_->begin_sharing(shares_table);
}

void Nodes::end_sharing_descriptors() {
  if (home_files_) home_files_->end_sharing();
}

void Nodes::exit_guest(int status) {
  // Only the status of the first thread that comes here counts.
  if (is_exiting_.exchange(true)) sleep_for_ever();
  tell_processes();
  static_cast<void>(node_.finish(status));
  syscall(SYS_exit_group, status);
  __builtin_unreachable();
}

}  // namespace multigrain::guest
