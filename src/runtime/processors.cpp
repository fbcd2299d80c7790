#include "runtime/processors.h"

#include <elf.h>
#include <link.h>
#include <sched.h>

#include <cerrno>
#include <memory>

#include "base/line.h"
#include "runtime/crash_record.h"
#include "runtime/lock_mistakes.h"
#include "runtime/message_types.h"
#include "runtime/private/private_heap.h"
#include "runtime/signal_mask.h"
#include "status/node_status.h"

namespace multigrain {
namespace {

[[gnu::tls_model("initial-exec")]] thread_local int t_processor = -1;
// A Processors::Local, of threads that were started for a processor.
[[gnu::tls_model("initial-exec")]] thread_local void* t_local = nullptr;

cpu_set_t only(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  return set;
}

// Whether a program can have something to call there: a spawn names a place in memory, and comes from another process.
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
  if (Status started = made->start_threads(); !started) return tl::unexpected(started.error());
  return made;
}

Status Processors::start_threads() {
  const AsynchronousSignalsBlocked blocked;
  program_mask_ = blocked.before();
  const bool has_main = config_.node == NodeId(0);
  for (unsigned i = 0; i < config_.processors_per_node; ++i) {
    Local& local = local_[i];
    // The table's memory is zero; a profile's initial state is not (it is stopped).
    new (&local.profile) ProcessorProfile;
    local.number = config_.node.value * config_.processors_per_node + i;
    local.owner = this;
    if (has_main && i == 0) continue;
    if (const int failed = start_thread(local); failed != 0)
      return fail_errno(failed, fmt::format("cannot start the thread of processor {}", local.number));
  }
  return {};
}

int Processors::start_thread(Local& local) {
  const size_t place = local.number % config_.processors_per_node;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (place < cpus_.size()) {
    const cpu_set_t core = only(cpus_[place]);
    pthread_attr_setaffinity_np(&attributes, sizeof core, &core);
  }
  // What the C library allocates for a thread outlives state copies.
  const BootHeapScope boot;
  const int failed = pthread_create(&local.thread, &attributes, &Processors::thread_main, &local);
  pthread_attr_destroy(&attributes);
  return failed;
}

void Processors::adopt_main_thread() {
  Local& local = local_[0];
  local.thread = pthread_self();
  if (!cpus_.empty()) {
    const cpu_set_t core = only(cpus_[0]);
    // A core that has gone since the launcher looked: the processor runs where it is.
    static_cast<void>(pthread_setaffinity_np(local.thread, sizeof core, &core));
  }
  t_processor = static_cast<int>(local.number);
  node_status()->processor[0].life.store(Life::kRuns, std::memory_order_release);
  {
    const BootHeapScope boot;
    become_processor(node_status()->processor[0]);
  }
  use_alternate_stack();
  virtual_time::adopt(0);
  virtual_time::begin_function(0);
  known_[local.number].runs = 1;
  set_this_profile(local.profile);
  local.profile.start();
}

unsigned Processors::current() const {
  if (t_processor >= 0) return static_cast<unsigned>(t_processor);
  return config_.node.value * config_.processors_per_node;
}

// --- Running

void* Processors::thread_main(void* argument) {
  auto* local = static_cast<Local*>(argument);
  t_processor = static_cast<int>(local->number);
  t_local = local;
  const unsigned place = local->number % local->owner->config_.processors_per_node;
  // For debuggers and profilers. That of main() keeps the program's name, which is the process's.
  Line name;
  pthread_setname_np(pthread_self(), name.text("mg proc ").number(local->number).c_str());
  {
    // The private heap may be overwritten with node 0's at any time.
    const BootHeapScope boot;
    become_processor(node_status()->processor[place]);
  }
  use_alternate_stack();
  virtual_time::adopt(place);
  set_this_profile(local->profile);
  local->owner->run(*local);
  return nullptr;
}

// Runs for as long as the process: threads of a node end with it.
void Processors::run(Local& local) {
  while (true) {
    // An idle processor does not poll: it must cost nothing, and the service thread looks after messages.
    const uint32_t seen = local.work.prepare();
    if (local.has_work.load(std::memory_order_acquire) == 0) {
      local.work.sleep(seen);
      continue;
    }
    // Here and not in the message's handler: the loader's lock may be held by somebody who waits for messages.
    if (config_.node != NodeId(0) && !is_code(local.function))
      die(1, "mg_spawn: the function is not in a part of the program that this node has loaded; processor, address:",
          local.number, reinterpret_cast<uint64_t>(local.function));
    virtual_time::begin_function(local.work.when().load(std::memory_order_relaxed));
    local.profile.start();
    // The program's signals are open to it while its function runs, and to nobody here otherwise.
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, &program_mask_, &blocked);
    host_.acquire(NodeId(0));
    ProcessorStatus& status = *this_status();
    status.function.store(reinterpret_cast<uint64_t>(local.function), std::memory_order_relaxed);
    status.life.store(Life::kRuns, std::memory_order_release);
    local.function(local.argument);
    pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
    returned(local);
    local.has_work.store(0, std::memory_order_release);
    finished(local.number);
  }
}

// The program's function has returned. Nobody could ever let go of a lock that it still holds.
void Processors::returned(Local& local) {
  ProcessorStatus& status = *this_status();
  if (status.held.load(std::memory_order_relaxed) != 0)
    die_of_return_with_lock(status.locks[0].lock.load(std::memory_order_relaxed),
                            status.locks[0].site.load(std::memory_order_relaxed), status.function.load());
  status.life.store(Life::kReturned, std::memory_order_release);
  host_.release();
  virtual_time::synchronise();
  local.profile.stop();
  virtual_time::end_function();
}

// What the program's own destructors of the thread did has been done, so that it is released, too.
void Processors::thread_ends() {
  auto* const local = static_cast<Local*>(std::exchange(t_local, nullptr));
  if (local == nullptr) return;
  Processors& self = *local->owner;
  {
    const AsynchronousSignalsBlocked blocked;
    self.returned(*local);
    local->has_work.store(0, std::memory_order_release);
    pthread_detach(pthread_self());
    if (const int failed = self.start_thread(*local); failed != 0)
      die(1, "pthread_exit: cannot start another thread for the processor; its number, errno:", local->number,
          static_cast<uint64_t>(failed));
  }
  self.finished(local->number);
}

void Processors::hand_over(Local& local, mg_function function, void* argument) {
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
  self.hand_over(local, reinterpret_cast<mg_function>(message.header.word[1]),
                 reinterpret_cast<void*>(message.header.word[2]));
}

// --- Spawn and join, on node 0

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
  const std::lock_guard one_at_a_time(spawning_);
  uint32_t idle = 0;
  const NodeId node = node_of(processor);
  const bool needs_state = node != NodeId(0) && node_is_idle(node);
  if (!known_[processor].runs.compare_exchange_strong(idle, 1)) {
    error = fmt::format("mg_spawn: processor {} is running already", processor);
    return -EBUSY;
  }
  host_.release();
  if (needs_state) {
    if (Status copied = host_.copy_state(node); !copied) {
      known_[processor].runs = 0;
      error = fmt::format("mg_spawn: {}", copied.error().message);
      return -ENOMEM;
    }
  }
  if (node == NodeId(0)) {
    hand_over(local_[processor], function, argument);
    return 0;
  }
  MessageHeader header;
  header.type = runtime_message::kSpawn;
  header.word = {processor, reinterpret_cast<uint64_t>(function), reinterpret_cast<uint64_t>(argument)};
  fabric_.send(node, header, SendContext::kOrdinary);
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
  return 0;
}

}  // namespace multigrain
