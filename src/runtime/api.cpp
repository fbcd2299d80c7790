// The C interface (include/multigrain/multigrain.h): each function makes a check or two, and calls the node.

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "check/checker.h"
#include "coherence/hazard_slots.h"
#include "instrument/abi.h"
#include "instrument/runtime/hazards.h"
#include "multigrain/checkpoint.h"
#include "multigrain/multigrain.h"
#include "runtime/allocation.h"
#include "runtime/checkpoints.h"
#include "runtime/compiled_races.h"
#include "runtime/interpose/program_site.h"
#include "runtime/lock_mistakes.h"
#include "runtime/node.h"
#include "runtime/private/private_heap.h"
#include "runtime/program_image.h"
#include "runtime/running.h"
#include "runtime/stacks.h"
#include "status/node_status.h"

using multigrain::Call;
using multigrain::CallScope;
using multigrain::Category;
using multigrain::Node;
using multigrain::NodeId;
using multigrain::PageId;
using multigrain::SyncId;
using multigrain::races::told_acquire;
using multigrain::races::told_release;
using Mode = multigrain::races::Order::Mode;
using multigrain::virtual_time::RuntimeCall;

namespace {

thread_local char t_error[512] = "";

int fail_with(int negative_errno, const std::string& sentence) {
  std::snprintf(t_error, sizeof t_error, "%s", sentence.c_str());
  return negative_errno;
}

// Programs reach the interface from main() on, when the node runs. A call that comes earlier (from a static
// constructor), or from a process that never started a node, ends with a sentence instead of a crash.
Node& node(const char* call) {
  Node* const node = Node::get();
  if (node == nullptr) [[unlikely]] {
    std::fprintf(stderr, "multigrain: %s was called %s\n", call,
                 Node::is_forked_child() ? "in a forked child, which is no part of the machine"
                                         : "before the runtime started: call mg_init() in main() first");
    std::_Exit(1);
  }
  return *node;
}

multigrain::Result<multigrain::Grain> grain_of(mg_protocol protocol, const Node& self) {
  const multigrain::Config& config = self.config();
  if (protocol == MG_PROTOCOL_DEFAULT) return config.traits().grain;
  const multigrain::ProtocolTraits* const wanted = find_protocol(&multigrain::ProtocolTraits::of_allocation, protocol);
  if (wanted == nullptr) return multigrain::fail("mg_alloc: {} is no protocol", static_cast<int>(protocol));
  const bool by_lines = wanted->grain == multigrain::Grain::kLine;
  const multigrain::ProtocolTraits& present = config.protocol_of(wanted->grain);
  if (wanted != &present)
    return multigrain::fail("mg_alloc: the {} protocol of this run is {}, not {} (--protocol chooses it)",
                            by_lines ? "line" : "page", present.name, wanted->name);
  if (by_lines && !self.has_line_protocol())
    return multigrain::fail(
        "mg_alloc: memory under {} needs access checks, which mgcc and mg++ compile in, and at most {} nodes",
        wanted->name, multigrain::kMaxLineNodes);
  return wanted->grain;
}

// The structure has no byte after its last member: such a byte would have any value in a caller's structure, and a
// later version's member could lie there.
static_assert(sizeof(mg_alloc_options) == offsetof(mg_alloc_options, place) + sizeof(uint64_t));
// No version's structure will be larger: a size beyond this is one that the program has not set.
constexpr size_t kMaxOptionsSize = 4096;

// Returns the caller's options as this version of the library has them, whichever version's structure the caller has.
multigrain::Result<mg_alloc_options> known_options(const mg_alloc_options* given) {
  mg_alloc_options known = MG_ALLOC_OPTIONS_INIT;
  if (given == nullptr) return known;
  const size_t size = given->size;
  if (size < sizeof given->size || size > kMaxOptionsSize || size % alignof(mg_alloc_options) != 0)
    return multigrain::fail(
        "mg_alloc: the options' size is {}, which no version of the structure has: begin with MG_ALLOC_OPTIONS_INIT",
        size);
  std::memcpy(&known, given, std::min(size, sizeof known));
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  for (size_t at = sizeof known; at < size; ++at)
    if (bytes[at] != 0)
      return multigrain::fail(
          "mg_alloc: the options set something at byte {} that this version of the library does not know: it has {} "
          "bytes of options, and the program was compiled with {}",
          at, sizeof known, size);
  return known;
}

multigrain::Result<multigrain::Placement> placement_of(size_t size, const mg_alloc_options& options, const Node& self) {
  const multigrain::Config& config = self.config();
  const auto grain = grain_of(options.protocol, self);
  if (!grain) return tl::unexpected(grain.error());
  multigrain::Placement placement = self.default_placement(size, *grain);
  placement.may_move_to_lines = self.moves_to_lines() && options.protocol == MG_PROTOCOL_DEFAULT;
  if (config.protocol_of(*grain).has_blocks) {
    const size_t wanted = options.block_size;
    if (wanted % config.line_size != 0 || wanted > config.page_size)
      return multigrain::fail(
          "mg_alloc: a block size of {} is no multiple of the line size of {} up to the page size of {}", wanted,
          config.line_size, config.page_size);
    if (wanted != 0) placement.block_size = static_cast<uint32_t>(wanted);
  }
  if (options.place > MG_PLACE_GLOBAL)
    return multigrain::fail("mg_alloc: {} is no place: a page is where the policy says, local or global (mg_place)",
                            options.place);
  if (config.protocol_of(*grain).kind == multigrain::ProtocolKind::kPlacement)
    placement.pin = static_cast<multigrain::Pin>(options.place);
  switch (options.home) {
    case MG_HOME_DEFAULT:
      return placement;
    case MG_HOME_INTERLEAVED:
      placement.policy = multigrain::HomePolicy::kInterleaved;
      return placement;
    case MG_HOME_BLOCKED:
      placement.policy = multigrain::HomePolicy::kBlocked;
      return placement;
    case MG_HOME_FIRST_TOUCH:
      placement.policy = multigrain::HomePolicy::kFirstTouch;
      return placement;
    case MG_HOME_NODE:
      if (options.node >= config.nodes)
        return multigrain::fail("mg_alloc: there is no node {}: the machine has {}, numbered from 0", options.node,
                                config.nodes);
      placement.policy = multigrain::HomePolicy::kNode;
      placement.node = NodeId(static_cast<uint16_t>(options.node));
      return placement;
  }
  return multigrain::fail("mg_alloc: {} is no home placement", static_cast<int>(options.home));
}

// A call in which a processor can wait. Its thread has no hazard published then, because the processor for which it
// waits may need that hazard cleared. A program may have left code with a published hazard in a way that the runtime
// does not see (handlers.h), such as setcontext() in a handler: the hazard is cleared here then.
struct [[maybe_unused]] ClearedHazards {
  ClearedHazards() {
    if (multigrain::has_published_hazard()) [[unlikely]]
      multigrain::checks::clear_hazards();
  }
};
class WaitingCall : private ClearedHazards, private CallScope {
 public:
  using CallScope::CallScope;
};

// Notes where the program made an object, so that a report that names the object can name the line.
uint64_t made(multigrain::SyncId object, const void* site) {
  multigrain::note_made(object.value, 0, site);
  return object.value;
}

int join_all(Node& self, const void* site) {
  for (unsigned p = 0; p < self.config().processors(); ++p) {
    if (p == self.processors().current()) continue;
    const WaitingCall call(Call::kJoin, p, site);
    std::string error;
    if (const int failed = self.processors().join(p, error); failed != 0) return fail_with(failed, error);
  }
  return 0;
}

// Runs the caller's own part of an mg_spawn_all.
void run_here(mg_function function, void* argument) {
  multigrain::ProcessorStatus* const status = multigrain::this_status();
  if (status != nullptr) status->function.store(reinterpret_cast<uint64_t>(function), std::memory_order_relaxed);
  function(argument);
  // What was read before the call is of another process, if the function has gone on from a checkpoint.
  if (multigrain::ProcessorStatus* const now = multigrain::this_status())
    now->function.store(0, std::memory_order_relaxed);
}

// Ends the run if the thread holds the lock already: it would wait for itself, in silence.
void refuse_lock_twice(mg_lock_t lock, const void* site) {
  const uint64_t taken = multigrain::taken_at(lock);
  if (taken != 0) [[unlikely]]
    multigrain::die_of_lock_twice(lock, site, taken);
}

// Under --check: notes in which order the processor takes locks.
[[gnu::noinline]] void check_order(mg_lock_t lock, const void* site) {
  const multigrain::BootHeapScope boot;
  multigrain::check::g_checker->wants(lock, site);
}

// The same when it has taken one.
[[gnu::noinline]] void note_taking(mg_lock_t lock, const void* site) {
  const multigrain::BootHeapScope boot;
  multigrain::check::g_checker->took(lock, site);
}

void taken(mg_lock_t lock, const void* site) {
  told_acquire(lock);
  multigrain::note_taken(lock, site);
  if (multigrain::check::g_checker != nullptr) [[unlikely]]
    note_taking(lock, site);
}

void meet_for_checkpoint(Node& self, SyncId barrier, const void* site) {
  const WaitingCall call(Call::kBarrier, barrier.value, site);
  const multigrain::races::ToldBarrier told(barrier.value);
  self.sync().barrier(barrier);
}

// Locks and unlocks are what programs call most often. On the wall clock they test once whether time is virtual.
template <bool kInVirtualTime>
[[gnu::always_inline]] inline void lock_as(mg_lock_t lock, const void* site) {
  const ClearedHazards closed;
  multigrain::note_call_site(site);
  refuse_lock_twice(lock, site);
  if (multigrain::check::g_checker != nullptr) [[unlikely]]
    check_order(lock, site);
  node("mg_lock").sync().lock_as<kInVirtualTime>(SyncId(lock));
  taken(lock, site);
}
template <bool kInVirtualTime>
[[gnu::always_inline]] inline void unlock_as(mg_lock_t lock, const void* site) {
  multigrain::Sync& sync = node("mg_unlock").sync();
  if (!multigrain::note_let_go(lock) && sync.exists(SyncId(lock))) [[unlikely]]
    multigrain::die_of_foreign_unlock(lock, site);
  told_release(lock, Mode::kReplace);
  sync.unlock_as<kInVirtualTime>(SyncId(lock));
}

}  // namespace

// The address to which the program's call returns. Each function of the interface reads it before it calls anything.
#define MG_CALL_SITE multigrain::program_site(__builtin_return_address(0))

extern "C" {

// --- For libmultigrain-openmp.so

int __multigrain_is_running(void) {
  return Node::get() != nullptr ? 1 : 0;
}

unsigned __multigrain_expected_processors(void) {
  if (Node* const self = Node::get()) return self->config().processors();
  if (Node::is_forked_child()) return 1;
  const auto config = multigrain::config_from_environment();
  return config ? config->processors() : 1;
}

// --- The machine

int mg_init(int*, char***) {
  if (Node::get() != nullptr) return 0;
  if (multigrain::Status started = Node::start(); !started) return fail_with(-EINVAL, started.error().message);
  return 0;
}

unsigned mg_processor(void) {
  return node("mg_processor").processors().current();
}
unsigned mg_processors(void) {
  return node("mg_processors").config().processors();
}
unsigned mg_processors_per_node(void) {
  return node("mg_processors_per_node").config().processors_per_node;
}
unsigned mg_node(void) {
  return node("mg_node").config().node.value;
}
unsigned mg_nodes(void) {
  return node("mg_nodes").config().nodes;
}
size_t mg_page_size(void) {
  return node("mg_page_size").config().page_size;
}
const char* mg_error(void) {
  return t_error;
}

int mg_spawn(unsigned processor, mg_function function, void* argument) {
  std::string error;
  const int result = node("mg_spawn").processors().spawn(processor, function, argument, error);
  return result == 0 ? 0 : fail_with(result, error);
}

int mg_join(unsigned processor) {
  const WaitingCall call(Call::kJoin, processor, MG_CALL_SITE);
  std::string error;
  const int result = node("mg_join").processors().join(processor, error);
  return result == 0 ? 0 : fail_with(result, error);
}

int mg_share_globals(void) {
  std::string error;
  const int result = node("mg_share_globals").processors().share_globals(error);
  return result == 0 ? 0 : fail_with(result, error);
}

int mg_join_all(void) {
  return join_all(node("mg_join_all"), MG_CALL_SITE);
}

int mg_spawn_all(mg_function function, void* argument) {
  Node& self = node("mg_spawn_all");
  const unsigned caller = self.processors().current();
  for (unsigned p = 0; p < self.config().processors(); ++p) {
    if (p == caller) continue;
    if (const int failed = mg_spawn(p, function, argument); failed != 0) return failed;
  }
  run_here(function, argument);
  // This may be another process by now (run_here).
  return join_all(node("mg_spawn_all"), MG_CALL_SITE);
}

// --- Shared memory

void* mg_alloc(size_t size, const mg_alloc_options* options) {
  const RuntimeCall runtime(Category::kProtocol);
  Node& self = node("mg_alloc");
  const auto known = known_options(options);
  const auto placement = known ? placement_of(size, *known, self) : tl::unexpected(known.error());
  const size_t alignment = known ? known->alignment : 0;
  if (!placement || (alignment & (alignment - 1)) != 0) {
    fail_with(0, placement ? fmt::format("mg_alloc: an alignment of {} is no power of two", alignment)
                           : placement.error().message);
    errno = EINVAL;
    return nullptr;
  }
  const auto block = multigrain::allocate(self, size, alignment, *placement, multigrain::Contents::kZero,
                                          reinterpret_cast<uint64_t>(MG_CALL_SITE));
  if (!block) {
    fail_with(0, "mg_alloc: " + block.error().message);
    errno = block.error().code;
    return nullptr;
  }
  multigrain::note_made(reinterpret_cast<uint64_t>(*block), size, MG_CALL_SITE);
  return *block;
}

void mg_free(void* block) {
  const RuntimeCall runtime(Category::kProtocol);
  if (block == nullptr) return;
  Node& self = node("mg_free");
  if (multigrain::check::g_checker != nullptr) [[unlikely]] {
    // Mistakes are findings, and the run goes on.
    static_cast<void>(multigrain::release(self, block, reinterpret_cast<uint64_t>(MG_CALL_SITE)));
    return;
  }
  // This is noted before the block is freed, because the block's next user may be there at once.
  const auto address = reinterpret_cast<uint64_t>(block);
  const uint64_t freed_before = multigrain::note_freed(address, reinterpret_cast<uint64_t>(MG_CALL_SITE));
  if (const auto freed = multigrain::release(self, block, reinterpret_cast<uint64_t>(MG_CALL_SITE)); !freed) {
    multigrain::note_freed(address, freed_before);
    std::fprintf(stderr, "multigrain: node %u: mg_free: %s\n", mg_node(), freed.error().message.c_str());
    multigrain::CrashRecord& crash = multigrain::node_status()->crash;
    crash.address = address;
    crash.free_site = reinterpret_cast<uint64_t>(MG_CALL_SITE);
    std::abort();
  }
}

int mg_is_shared(const void* address) {
  Node* const self = Node::get();
  return self != nullptr && self->region().contains(address) ? 1 : 0;
}

int mg_is_on_stack(const void* address) {
  return multigrain::stack_of_this_thread().contains(reinterpret_cast<uintptr_t>(address)) ? 1 : 0;
}

int mg_home_of(const void* address) {
  Node& self = node("mg_home_of");
  if (!self.region().contains(address)) return -1;
  const auto home = self.heap().ask_home(self.region().page_of(address));
  return home ? home->value : -1;
}

// --- Synchronisation

mg_lock_t mg_lock_create(void) {
  const RuntimeCall runtime(Category::kLock);
  return made(node("mg_lock_create").sync().lock_create(), MG_CALL_SITE);
}
void mg_lock_destroy(mg_lock_t lock) {
  const RuntimeCall runtime(Category::kLock);
  node("mg_lock_destroy").sync().lock_destroy(SyncId(lock));
}
void mg_lock(mg_lock_t lock) {
  const void* const site = MG_CALL_SITE;
  if (multigrain::virtual_time::on()) [[unlikely]] {
    const RuntimeCall runtime(Category::kLock);
    lock_as<true>(lock, site);
  } else {
    lock_as<false>(lock, site);
  }
}
int mg_trylock(mg_lock_t lock) {
  const RuntimeCall runtime(Category::kLock);
  const void* const site = MG_CALL_SITE;
  multigrain::note_call_site(site);
  if (!node("mg_trylock").sync().trylock(SyncId(lock))) return 0;
  taken(lock, site);
  return 1;
}
void mg_unlock(mg_lock_t lock) {
  const void* const site = MG_CALL_SITE;
  if (multigrain::virtual_time::on()) [[unlikely]] {
    const RuntimeCall runtime(Category::kLock);
    unlock_as<true>(lock, site);
  } else {
    unlock_as<false>(lock, site);
  }
}

mg_barrier_t mg_barrier_create(unsigned count) {
  const RuntimeCall runtime(Category::kBarrier);
  return made(node("mg_barrier_create").sync().barrier_create(count), MG_CALL_SITE);
}
void mg_barrier_destroy(mg_barrier_t barrier) {
  const RuntimeCall runtime(Category::kBarrier);
  node("mg_barrier_destroy").sync().barrier_destroy(SyncId(barrier));
}
// Apart from mg_barrier(), whose frame is in checkpoints and has nothing of this process.
[[gnu::noinline]] static void barrier_in_call(mg_barrier_t barrier, const void* site) {
  const RuntimeCall runtime(Category::kBarrier);
  const WaitingCall call(Call::kBarrier, barrier, site);
  if (multigrain::check::g_checker != nullptr) [[unlikely]] {
    const multigrain::BootHeapScope boot;
    multigrain::check::g_checker->at_barrier(site);
  }
  multigrain::Sync& sync = node("mg_barrier").sync();
  const multigrain::races::ToldBarrier told(barrier);
  sync.barrier(SyncId(barrier));
}
void mg_barrier(mg_barrier_t barrier) {
  const void* const site = MG_CALL_SITE;
  multigrain::Checkpoints* const checkpoints = multigrain::Checkpoints::get();
  if (checkpoints != nullptr && checkpoints->are_at_barriers()) [[unlikely]]
    multigrain::Checkpoints::pass_barrier(SyncId(barrier), &meet_for_checkpoint, site);
  else
    barrier_in_call(barrier, site);
}

// --- Checkpoints (include/multigrain/checkpoint.h)

int mg_checkpoint(void* root) {
  node("mg_checkpoint");
  multigrain::Checkpoints* const checkpoints = multigrain::Checkpoints::get();
  return checkpoints == nullptr ? 0 : checkpoints->take(root, &meet_for_checkpoint, MG_CALL_SITE);
}
void* mg_restored(void) {
  node("mg_restored");
  const multigrain::Checkpoints* const checkpoints = multigrain::Checkpoints::get();
  return checkpoints == nullptr ? nullptr : checkpoints->restored_root();
}

mg_cond_t mg_cond_create(void) {
  const RuntimeCall runtime(Category::kLock);
  return made(node("mg_cond_create").sync().cond_create(), MG_CALL_SITE);
}
void mg_cond_destroy(mg_cond_t cond) {
  const RuntimeCall runtime(Category::kLock);
  node("mg_cond_destroy").sync().cond_destroy(SyncId(cond));
}
void mg_cond_wait(mg_cond_t cond, mg_lock_t lock) {
  const RuntimeCall runtime(Category::kLock);
  const WaitingCall call(Call::kCondition, cond, MG_CALL_SITE, lock);
  multigrain::Sync& sync = node("mg_cond_wait").sync();
  const uint64_t taken = multigrain::taken_at(lock);
  const bool was_held = multigrain::note_let_go(lock);
  if (multigrain::check::g_checker != nullptr) [[unlikely]]
    check_order(lock, MG_CALL_SITE);
  told_release(lock, Mode::kReplace);
  sync.cond_wait(SyncId(cond), SyncId(lock));
  told_acquire(cond);
  told_acquire(lock);
  if (was_held) multigrain::note_taken(lock, reinterpret_cast<const void*>(taken));
}
void mg_cond_signal(mg_cond_t cond) {
  const RuntimeCall runtime(Category::kLock);
  told_release(cond);
  node("mg_cond_signal").sync().cond_signal(SyncId(cond));
}
void mg_cond_broadcast(mg_cond_t cond) {
  const RuntimeCall runtime(Category::kLock);
  told_release(cond);
  node("mg_cond_broadcast").sync().cond_broadcast(SyncId(cond));
}

mg_sem_t mg_sem_create(unsigned value) {
  const RuntimeCall runtime(Category::kLock);
  return made(node("mg_sem_create").sync().sem_create(value), MG_CALL_SITE);
}
void mg_sem_destroy(mg_sem_t sem) {
  const RuntimeCall runtime(Category::kLock);
  node("mg_sem_destroy").sync().sem_destroy(SyncId(sem));
}
void mg_sem_wait(mg_sem_t sem) {
  const RuntimeCall runtime(Category::kLock);
  const WaitingCall call(Call::kSemaphore, sem, MG_CALL_SITE);
  node("mg_sem_wait").sync().sem_wait(SyncId(sem));
  told_acquire(sem);
}
int mg_sem_trywait(mg_sem_t sem) {
  const RuntimeCall runtime(Category::kLock);
  if (!node("mg_sem_trywait").sync().sem_trywait(SyncId(sem))) return 0;
  told_acquire(sem);
  return 1;
}
void mg_sem_post(mg_sem_t sem) {
  const RuntimeCall runtime(Category::kLock);
  told_release(sem);
  node("mg_sem_post").sync().sem_post(SyncId(sem));
}

mg_flag_t mg_flag_create(void) {
  const RuntimeCall runtime(Category::kLock);
  return made(node("mg_flag_create").sync().flag_create(), MG_CALL_SITE);
}
void mg_flag_destroy(mg_flag_t flag) {
  const RuntimeCall runtime(Category::kLock);
  node("mg_flag_destroy").sync().flag_destroy(SyncId(flag));
}
void mg_flag_set(mg_flag_t flag, uint32_t value) {
  const RuntimeCall runtime(Category::kLock);
  told_release(flag);
  node("mg_flag_set").sync().flag_set(SyncId(flag), value);
}
uint32_t mg_flag_get(mg_flag_t flag) {
  const RuntimeCall runtime(Category::kLock);
  const uint32_t value = node("mg_flag_get").sync().flag_get(SyncId(flag));
  told_acquire(flag);
  return value;
}
void mg_flag_wait(mg_flag_t flag, uint32_t value) {
  const RuntimeCall runtime(Category::kLock);
  const WaitingCall call(Call::kFlag, flag, MG_CALL_SITE, value);
  node("mg_flag_wait").sync().flag_wait(SyncId(flag), value);
  told_acquire(flag);
}

void mg_release(void) {
  const RuntimeCall runtime(Category::kProtocol);
  told_release(multigrain::races::object::kEverybody);
  node("mg_release").release();
}

void mg_acquire(void) {
  const RuntimeCall runtime(Category::kProtocol);
  node("mg_acquire").acquire_all();
  told_acquire(multigrain::races::object::kEverybody);
}

// --- Time

uint64_t mg_time_ns(void) {
  const multigrain::Nanoseconds started_at = node("mg_time_ns").started_at();
  return multigrain::virtual_time::on()
             ? multigrain::virtual_time::now()
             : multigrain::monotonic_ns() - started_at + multigrain::g_time_before_checkpoint;
}
void mg_profile_reset(void) {
  const RuntimeCall runtime(Category::kProtocol);
  node("mg_profile_reset").mark_profiles(multigrain::PhaseMark::kBegin);
}
void mg_profile_stop(void) {
  const RuntimeCall runtime(Category::kProtocol);
  node("mg_profile_stop").mark_profiles(multigrain::PhaseMark::kEnd);
}

}  // extern "C"
