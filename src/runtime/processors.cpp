#include "runtime/processors.h"

#include <elf.h>
#include <link.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>

#include "base/stack_text.h"
#include "check/checker.h"
#include "runtime/compiled_races.h"
#include "runtime/crash_record.h"
#include "runtime/interpose/threads.h"
#include "runtime/interpreter.h"
#include "runtime/lock_mistakes.h"
#include "runtime/message_types.h"
#include "runtime/private/globals.h"
#include "runtime/private/private_heap.h"
#include "runtime/private/variables.h"
#include "runtime/program_image.h"
#include "runtime/program_stacks.h"
#include "runtime/signal_mask.h"
#include "status/node_status.h"
#include "timeline/timeline.h"

namespace multigrain {
namespace {

[[gnu::tls_model("initial-exec")]] thread_local int t_processor = -1;
[[gnu::tls_model("initial-exec")]] thread_local int t_place = -1;
// The Processors::Local of a thread that was started for a processor.
[[gnu::tls_model("initial-exec")]] thread_local void* t_local = nullptr;

cpu_set_t only(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  return set;
}

// The calling thread is this processor of the machine; its time line says so.
void name_track(unsigned processor) {
  if (timeline::Track* const track = timeline::this_track()) track->name(timeline::Owner::kProcessor, processor);
}

// Messages about crashes say whether a stack has overflowed.
void note_program_stack(unsigned place) {
  if (!program_stacks::exist()) return;
  const Stack stack = program_stacks::of_processor(place);
  node_status()->processor[place].stack_low.store(stack.begin, std::memory_order_relaxed);
  node_status()->processor[place].stack_high.store(stack.end, std::memory_order_relaxed);
}

constinit std::atomic<void (*)()> g_before_function{nullptr};

// A flag of kSpawn: private state has been copied for this spawn.
constexpr uint8_t kFirstAfterCopy = 1;

// Returns whether a program can have something to call there: a spawn names a place in memory, and comes from
// another process.
bool is_code(mg_function function) {
  auto address = reinterpret_cast<uintptr_t>(function);
  const auto visit = [](dl_phdr_info* object, size_t, void* wanted) {
    const uintptr_t at = *static_cast<const uintptr_t*>(wanted);
    for (ElfW(Half) i = 0; i < object->dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = object->dlpi_phdr[i];
      const uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
      if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0 && at - begin < segment.p_memsz) return 1;
    }
    return 0;
  };
  return dl_iterate_phdr(visit, &address) != 0;
}

}  // namespace

Processors::Processors(const Config& config, Fabric& fabric, const WaitPolicy& wait, ProcessorHost& host,
                       std::vector<int> cpus)
    : config_(config), fabric_(fabric), wait_(wait), host_(host), cpus_(std::move(cpus)) {}

Result<std::unique_ptr<Processors>> Processors::create(const Config& config, Fabric& fabric, const WaitPolicy& wait,
                                                       ProcessorHost& host, std::vector<int> cpus) {
  std::unique_ptr<Processors> made(new Processors(config, fabric, wait, host, std::move(cpus)));
  auto local = SparseTable<Local>::create(config.processors_per_node, "processors");
  if (!local) return tl::unexpected(local.error());
  made->local_ = std::move(*local);
  auto known = SparseTable<Known>::create(config.processors(), "processors of the machine");
  if (!known) return tl::unexpected(known.error());
  made->known_ = std::move(*known);
  fabric.set_handler(runtime_message::kSpawn, &Processors::handle_spawn, made.get());
  fabric.set_handler(runtime_message::kDone, &Processors::handle_done, made.get());
  fabric.set_handler(runtime_message::kPeek, &Processors::handle_peek, made.get());
  fabric.set_handler(runtime_message::kPeeked, &Processors::handle_peeked, made.get());
  if (config.check && config.node != NodeId(0) && !interpreter::is_here()) {
    auto written = WrittenGlobals::create(config.node);
    if (!written) return tl::unexpected(written.error());
    made->written_.emplace(std::move(*written));
  }
  if (Status started = made->start_threads(); !started) return tl::unexpected(started.error());
  return made;
}

Status Processors::start_threads() {
  const AsynchronousSignalsBlocked blocked;
  program_mask_ = blocked.before();
  // Before any processor can run the program's code.
  count_threads();
  if (ProgramImage::is_wanted(config_))
    if (Status made = program_stacks::create(config_.processors_per_node); !made) return made;
  const bool has_main = config_.node == NodeId(0);
  for (unsigned i = 0; i < config_.processors_per_node; ++i) {
    Local& local = local_[i];
    local.profile = new (node_status()->profile[i].bytes) ProcessorProfile;
    local.number = config_.node.value * config_.processors_per_node + i;
    local.owner = this;
    if (has_main && i == 0) continue;
    if (const int failed = start_thread(local, true); failed != 0)
      return fail_errno(failed, fmt::format("cannot start the thread of processor {}", local.number));
  }
  return {};
}

int Processors::start_thread(Local& local, bool is_first) {
  const size_t place = local.number % config_.processors_per_node;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (place < cpus_.size()) {
    const cpu_set_t core = only(cpus_[place]);
    pthread_attr_setaffinity_np(&attributes, sizeof core, &core);
  }
  // A processor's second thread begins while its first one ends, which still has that memory.
  if (is_first && program_stacks::exist()) {
    const Stack memory = program_stacks::of_thread(static_cast<unsigned>(place));
    pthread_attr_setstack(&attributes, reinterpret_cast<void*>(memory.begin), memory.end - memory.begin);
  }
  // What the C library allocates for a thread must outlive state copies.
  const BootHeapScope boot;
  // This thread is not one of those that the program starts, which are counted.
  const int failed = create_real_thread(&local.thread, &attributes, &Processors::thread_main, &local);
  pthread_attr_destroy(&attributes);
  return failed;
}

void Processors::adopt_main_thread() {
  Local& local = local_[0];
  local.thread = pthread_self();
  if (!cpus_.empty()) {
    const cpu_set_t core = only(cpus_[0]);
    // The core may have gone since the launcher looked: then the processor runs where it is.
    static_cast<void>(pthread_setaffinity_np(local.thread, sizeof core, &core));
  }
  t_processor = static_cast<int>(local.number);
  t_place = 0;
  node_status()->processor[0].life.store(Life::kRuns, std::memory_order_release);
  {
    const BootHeapScope boot;
    become_processor(node_status()->processor[0]);
    note_program_stack(0);
  }
  if (races::g_compiled_detector != nullptr) races::g_compiled_detector->begin_processor(0);
  use_alternate_stack();
  virtual_time::adopt(0);
  virtual_time::begin_function(0);
  known_[local.number].runs = 1;
  known_[local.number].has_run = true;
  set_this_profile(*local.profile);
  name_track(local.number);
  local.profile->start();
  if (code_polls_) Computing::begin(fabric_);
}

unsigned Processors::current() const {
  if (t_processor >= 0) return static_cast<unsigned>(t_processor);
  return config_.node.value * config_.processors_per_node;
}

std::optional<unsigned> Processors::place_of_this_thread() {
  if (t_place < 0) return std::nullopt;
  return static_cast<unsigned>(t_place);
}

std::optional<unsigned> Processors::of_this_thread() {
  if (t_processor < 0) return std::nullopt;
  return static_cast<unsigned>(t_processor);
}

// --- Running

void* Processors::thread_main(void* argument) {
  auto* local = static_cast<Local*>(argument);
  const unsigned place = local->number % local->owner->config_.processors_per_node;
  local->stack = program_stacks::exist() ? program_stacks::of_processor(place) : stack_of_this_thread();
  t_processor = static_cast<int>(local->number);
  t_place = static_cast<int>(place);
  t_local = local;
  // Debuggers and profilers show this name. The thread of main() keeps the program's name, which is the process's.
  StackText name;
  pthread_setname_np(pthread_self(), name.text("mg proc ").number(local->number).c_str());
  {
    // The private heap may be overwritten with node 0's at any time.
    const BootHeapScope boot;
    become_processor(node_status()->processor[place]);
    note_program_stack(place);
  }
  if (races::g_compiled_detector != nullptr) races::g_compiled_detector->begin_processor(local->number);
  use_alternate_stack();
  virtual_time::adopt(place);
  set_this_profile(*local->profile);
  name_track(local->number);
  virtual_time::take_part();
  local->owner->run(*local);
  return nullptr;
}

// Runs functions for as long as the process lives: threads of a node end with it.
void Processors::run(Local& local) {
  while (true) {
    // An idle processor does not poll: it must cost nothing, and the service thread looks after messages.
    const uint32_t seen = local.work.prepare();
    if (local.has_work.load(std::memory_order_acquire) == 0) {
      local.work.sleep(seen);
      continue;
    }
    // This is checked here and not in the message's handler, because a thread that waits for messages may hold the
    // loader's lock.
    if (config_.node != NodeId(0) && !is_code(local.function))
      die(1, "mg_spawn: the function is not in a part of the program that this node has loaded; processor, address:",
          local.number, reinterpret_cast<uint64_t>(local.function));
    virtual_time::begin_function(local.work.when().load(std::memory_order_relaxed));
    local.profile->start();
    // The program's signals are open to this thread while the program's function runs, and to no thread of the
    // runtime otherwise.
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, &program_mask_, &blocked);
    host_.acquire(NodeId(0));
    races::told_acquire(races::object::start_of(local.number));
    ProcessorStatus& status = *this_status();
    status.function.store(reinterpret_cast<uint64_t>(local.function), std::memory_order_relaxed);
    status.life.store(Life::kRuns, std::memory_order_release);
    if (auto* const before = g_before_function.load(std::memory_order_acquire)) before();
    if (code_polls_) Computing::begin(fabric_);
    program_stacks::call(local.number % config_.processors_per_node, local.function, local.argument);
    pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
    returned(local);
    local.has_work.store(0, std::memory_order_release);
    finished(local.number);
  }
}

void Processors::set_before_function(void (*function)()) {
  g_before_function.store(function, std::memory_order_release);
}

// The program's function has returned. No processor could ever let go of a lock that this one still holds.
void Processors::returned(Local& local) {
  Computing::end(fabric_);
  ProcessorStatus& status = *this_status();
  if (status.held.load(std::memory_order_relaxed) != 0)
    die_of_return_with_lock(status.locks[0].lock.load(std::memory_order_relaxed),
                            status.locks[0].site.load(std::memory_order_relaxed), status.function.load());
  status.life.store(Life::kReturned, std::memory_order_release);
  races::told_release(races::object::end_of(local.number), races::Order::Mode::kReplace);
  host_.release();
  virtual_time::synchronise();
  local.profile->stop();
  virtual_time::end_function();
  // This comes before node 0 hears of the end: while a processor runs here no state is copied to this node, and what is
  // said is said before mg_join has returned.
  if (running_here_.fetch_sub(1) == 1) tell_written_globals();
}

// The program's own destructors of the thread have run by now, so what they wrote is released, too.
void Processors::thread_ends() {
  auto* const local = static_cast<Local*>(std::exchange(t_local, nullptr));
  if (local == nullptr) return;
  Processors& self = *local->owner;
  {
    const AsynchronousSignalsBlocked blocked;
    self.returned(*local);
    local->has_work.store(0, std::memory_order_release);
    pthread_detach(pthread_self());
    if (const int failed = self.start_thread(*local, false); failed != 0)
      die(1, "pthread_exit: cannot start another thread for the processor; its number, errno:", local->number,
          static_cast<uint64_t>(failed));
  }
  self.finished(local->number);
  virtual_time::leave();
}

void Processors::hand_over(Local& local, mg_function function, void* argument) {
  running_here_.fetch_add(1);
  local.function = function;
  local.argument = argument;
  local.work.mark();
  local.has_work.store(1, std::memory_order_release);
  if (virtual_time::on()) virtual_time::hand_over(local.number % config_.processors_per_node, virtual_time::stamp());
  local.work.notify();
}

void Processors::finished(unsigned processor) {
  if (config_.node == NodeId(0)) {
    known_[processor].changed.mark();
    known_[processor].runs.store(0, std::memory_order_release);
    known_[processor].changed.notify();
    return;
  }
  MessageHeader header;
  header.type = runtime_message::kDone;
  header.word[0] = processor;
  fabric_.send(NodeId(0), header, SendContext::kOrdinary);
}

void Processors::handle_done(void* context, const Message& message) {
  auto& self = *static_cast<Processors*>(context);
  const uint64_t processor = message.header.word[0];
  if (processor >= self.config_.processors() || self.node_of(static_cast<unsigned>(processor)) != message.from ||
      self.known_[processor].runs.load() == 0)
    panic("a processor ended that did not run, from node / processor", message.from.value, processor);
  self.known_[processor].changed.mark();
  self.known_[processor].runs.store(0, std::memory_order_release);
  self.known_[processor].changed.notify();
}

void Processors::handle_spawn(void* context, const Message& message) {
  auto& self = *static_cast<Processors*>(context);
  const uint64_t processor = message.header.word[0];
  if (message.from != NodeId(0) || processor >= self.config_.processors() ||
      self.node_of(static_cast<unsigned>(processor)) != self.config_.node)
    panic("work for a processor of another node, from node / processor", message.from.value, processor);
  Local& local = self.local_[processor % self.config_.processors_per_node];
  if (local.has_work.load() != 0) panic("work for a processor that runs", processor);
  // No processor runs here yet, so none is telling what was written.
  if (message.header.flags == kFirstAfterCopy && self.written_) self.written_->remember();
  self.hand_over(local, reinterpret_cast<mg_function>(message.header.word[1]),
                 reinterpret_cast<void*>(message.header.word[2]));
}

void Processors::tell_written_globals() {
  if (!written_) return;
  const BootHeapScope boot;
  const LockGuard one_at_a_time(telling_);
  for (const std::string& sentence : written_->news()) {
    std::fprintf(stderr, "multigrain: %s\n", sentence.c_str());
    if (check::g_checker != nullptr) check::g_checker->findings().count();
  }
}

// --- Spawn and join, on node 0

std::vector<unsigned> Processors::never_started() const {
  std::vector<unsigned> numbers;
  for (unsigned p = 0; p < config_.processors(); ++p)
    if (!known_[p].has_run) numbers.push_back(p);
  return numbers;
}

// The runtime knows the stack of the caller, that of main() and those of this node's processors; what the program does
// with threads of its own is the program's affair.
std::optional<std::string> Processors::why_not(const void* argument, unsigned processor, bool will_be_copied) {
  const NodeId node = node_of(processor);
  const auto address = reinterpret_cast<uintptr_t>(argument);
  bool on_a_stack = stack_of_this_thread().contains(address);
  for (unsigned i = 1; i < config_.processors_per_node; ++i) on_a_stack |= local_[i].stack.contains(address);
  if (on_a_stack)
    return fmt::format(
        "the argument {:#x} of processor {} is a local variable of node 0: node {} has another stack there; put it into "
        "shared memory (mg_alloc), or into a global or malloc's memory before the first processor of that node starts",
        address, processor, node.value);
  if (will_be_copied) {
    argument_at_copy_[node.value] = argument;
    return std::nullopt;
  }
  // An argument that all processors of a node are given is the node's own from the copy on, and the node may change it.
  if (argument == argument_at_copy_[node.value]) return std::nullopt;
  return why_not_there(argument, node);
}

// The node got its private memory when its first processor started. What the program has stored here since, above all
// into a block of its own for each processor, is not there: then the first bytes differ. No more than four of them are
// compared, since it is not known where the object ends, and what is beside it may differ.
std::optional<std::string> Processors::why_not_there(const void* argument, NodeId node) {
  const auto address = reinterpret_cast<uintptr_t>(argument);
  const bool in_heap = in_private_heap(address, 1);
  if (!in_heap && !in_program_globals(address, 1)) return std::nullopt;
  size_t length = std::min<size_t>(sizeof(int), address & -address);
  while (!(in_heap ? in_private_heap(address, length) : in_program_globals(address, length))) length /= 2;

  MessageHeader header;
  header.type = runtime_message::kPeek;
  header.word = {address, length, 0};
  const uint32_t answered = peeks_answered_.load(std::memory_order_acquire);
  fabric_.send(node, header, SendContext::kOrdinary);
  wait_until(fabric_, wait_, peeked_, [&] { return peeks_answered_.load(std::memory_order_acquire) != answered; });
  if (peeked_length_ == length && std::memcmp(peeked_bytes_.data(), argument, length) == 0) return std::nullopt;

  const auto variable = variable_at(address);
  return fmt::format(
      "the argument {:#x} ({}) is private memory, and node {} has not what is in it here: private memory is copied when a "
      "node's first processor starts, and this has changed since; fill in all arguments before the first mg_spawn, or "
      "put them into shared memory (mg_alloc)",
      address,
      variable  ? variable->described()
      : in_heap ? "a block of malloc"
                : "a global",
      node.value);
}

void Processors::handle_peek(void* context, const Message& message) {
  auto& self = *static_cast<Processors*>(context);
  const uint64_t address = message.header.word[0];
  const uint64_t length = message.header.word[1];
  if (message.from != NodeId(0) || length == 0 || length > sizeof(int))
    panic("a question about private memory that node 0 would not ask, from node / bytes", message.from.value, length);
  MessageHeader header;
  header.type = runtime_message::kPeeked;
  std::span<const std::byte> bytes;
  if (in_program_globals(address, length) || in_private_heap(address, length))
    bytes = {reinterpret_cast<const std::byte*>(address), length};
  self.fabric_.send(message.from, header, bytes, {}, SendContext::kHandler);
}

void Processors::handle_peeked(void* context, const Message& message) {
  auto& self = *static_cast<Processors*>(context);
  if (self.config_.node != NodeId(0) || message.payload.size() > self.peeked_bytes_.size())
    panic("an answer about private memory that nobody asked for, from node", message.from.value);
  self.peeked_length_ = message.payload.size();
  std::ranges::copy(message.payload, self.peeked_bytes_.begin());
  self.peeked_.mark();
  self.peeks_answered_.fetch_add(1, std::memory_order_release);
  self.peeked_.notify();
}

bool Processors::other_nodes_are_idle() {
  for (uint16_t n = 1; n < config_.nodes; ++n)
    if (!node_is_idle(NodeId(n))) return false;
  return true;
}

bool Processors::node_is_idle(NodeId node) {
  const unsigned first = node.value * config_.processors_per_node;
  for (unsigned p = first; p < first + config_.processors_per_node; ++p)
    if (known_[p].runs.load(std::memory_order_acquire) != 0) return false;
  return true;
}

int Processors::spawn(unsigned processor, mg_function function, void* argument, std::string& error) {
  if (config_.node != NodeId(0)) {
    error = fmt::format("mg_spawn: processors are started on node 0, and this is node {}", config_.node.value);
    return -EPERM;
  }
  if (processor >= config_.processors()) {
    error = fmt::format("mg_spawn: there is no processor {}: the machine has {} (numbered from 0)", processor,
                        config_.processors());
    return -EINVAL;
  }
  if (function == nullptr) {
    error = "mg_spawn: the function is a null pointer";
    return -EINVAL;
  }
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  const LockGuard one_at_a_time(spawning_);
  uint32_t idle = 0;
  const NodeId node = node_of(processor);
  const bool needs_state = node != NodeId(0) && node_is_idle(node) && !(runs_threads_ && has_copy_[node.value]);
  const bool is_first_elsewhere = node != NodeId(0) && other_nodes_are_idle();
  if (!known_[processor].runs.compare_exchange_strong(idle, 1)) {
    error = fmt::format("mg_spawn: processor {} is running already", processor);
    return -EBUSY;
  }
  if (node != NodeId(0)) {
    const BootHeapScope boot;
    if (const auto wrong = why_not(argument, processor, needs_state)) {
      known_[processor].runs = 0;
      error = "mg_spawn: " + *wrong;
      return -EINVAL;
    }
  }
  known_[processor].has_run = true;
  virtual_time::spend(&MachineCosts::spawn);
  if (is_first_elsewhere) host_.end_serial_part();
  races::told_release(races::object::start_of(processor), races::Order::Mode::kReplace);
  host_.release();
  if (needs_state) {
    if (Status copied = host_.copy_state(node); !copied) {
      known_[processor].runs = 0;
      error = fmt::format("mg_spawn: {}", copied.error().message);
      return -ENOMEM;
    }
    has_copy_[node.value] = true;
  }
  if (node == NodeId(0)) {
    hand_over(local_[processor], function, argument);
    return 0;
  }
  MessageHeader header;
  header.type = runtime_message::kSpawn;
  header.flags = needs_state ? kFirstAfterCopy : 0;
  header.word = {processor, reinterpret_cast<uint64_t>(function), reinterpret_cast<uint64_t>(argument)};
  fabric_.send(node, header, SendContext::kOrdinary);
  return 0;
}

int Processors::share_globals(std::string& error) {
  if (config_.node != NodeId(0)) {
    error = fmt::format("mg_share_globals: it is called on node 0, and this is node {}", config_.node.value);
    return -EPERM;
  }
  if (config_.nodes == 1) return 0;
  const CategoryScope protocol(this_profile(), Category::kProtocol);
  const LockGuard no_spawn(spawning_);
  for (unsigned p = 0; p < config_.processors(); ++p) {
    if (p == current() || known_[p].runs.load(std::memory_order_acquire) == 0) continue;
    error = fmt::format("mg_share_globals: processor {} runs; call it before other processors are started", p);
    return -EBUSY;
  }
  const BootHeapScope boot;
  if (const Status shared = host_.share_globals(); !shared) {
    error = fmt::format("mg_share_globals: {}", shared.error().message);
    return -ENOTSUP;
  }
  return 0;
}

int Processors::join(unsigned processor, std::string& error) {
  if (config_.node != NodeId(0)) {
    error = fmt::format("mg_join: processors are joined on node 0, and this is node {}", config_.node.value);
    return -EPERM;
  }
  if (processor >= config_.processors() || processor == current()) {
    error = fmt::format("mg_join: processor {} cannot be joined from here: the machine has {}, and the caller is {}",
                        processor, config_.processors(), current());
    return -EINVAL;
  }
  const CategoryScope waiting(this_profile(), Category::kBarrier);
  Known& known = known_[processor];
  wait_until(fabric_, wait_, known.changed, [&known] { return known.runs.load(std::memory_order_acquire) == 0; });
  host_.acquire(node_of(processor));
  races::told_acquire(races::object::end_of(processor));
  return 0;
}

}  // namespace multigrain
