#include "trace/record/single_step.h"

#include <Zydis/Zydis.h>
#include <elf.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <list>
#include <unordered_map>
#include <unordered_set>

#include "base/child_process.h"
#include "base/clock.h"
#include "trace/record/symbols.h"

namespace multigrain::trace {
namespace {

constexpr uint64_t kPrivateInterval = 1u << 16;
constexpr uint64_t kProgressInterval = 1u << 12;
constexpr unsigned kMaxOperands = 4;
// This is the size of one reference; larger ones (saved register files) are several.
constexpr uint64_t kLargestReference = 64;
// glibc's thread descriptor lies at the top of a thread's stack, from where fs points. So much is kept for it.
constexpr uint64_t kThreadDescriptorBytes = 4096;
constexpr uint64_t kPage = 4096;

using Registers = user_regs_struct;

// Returns a register's value by Zydis's number for its 64-bit form.
uint64_t value_of(const Registers& r, ZydisRegister which) {
  switch (which) {
    case ZYDIS_REGISTER_RAX:
      return r.rax;
    case ZYDIS_REGISTER_RCX:
      return r.rcx;
    case ZYDIS_REGISTER_RDX:
      return r.rdx;
    case ZYDIS_REGISTER_RBX:
      return r.rbx;
    case ZYDIS_REGISTER_RSP:
      return r.rsp;
    case ZYDIS_REGISTER_RBP:
      return r.rbp;
    case ZYDIS_REGISTER_RSI:
      return r.rsi;
    case ZYDIS_REGISTER_RDI:
      return r.rdi;
    case ZYDIS_REGISTER_R8:
      return r.r8;
    case ZYDIS_REGISTER_R9:
      return r.r9;
    case ZYDIS_REGISTER_R10:
      return r.r10;
    case ZYDIS_REGISTER_R11:
      return r.r11;
    case ZYDIS_REGISTER_R12:
      return r.r12;
    case ZYDIS_REGISTER_R13:
      return r.r13;
    case ZYDIS_REGISTER_R14:
      return r.r14;
    case ZYDIS_REGISTER_R15:
      return r.r15;
    case ZYDIS_REGISTER_RIP:
      return r.rip;
    default:
      return 0;
  }
}

struct Operand {
  ZydisRegister base = ZYDIS_REGISTER_NONE;
  ZydisRegister index = ZYDIS_REGISTER_NONE;
  ZydisRegister segment = ZYDIS_REGISTER_NONE;
  uint8_t scale = 0;
  bool reads = false;
  bool writes = false;
  bool narrow = false;      // addresses have 32 bits
  bool stack_push = false;  // the operand is written below the stack pointer
  uint16_t bytes = 0;
  int64_t displacement = 0;  // with the instruction's length, if it is relative to the instruction
};

// This is an instruction, as far as its references go.
struct Decoded {
  bool known = false;
  bool system_call = false;
  bool repeats = false;  // the instruction does nothing if rcx is 0
  bool gathers = false;
  uint8_t operands = 0;
  Operand operand[kMaxOperands];
  SiteId site = 0;
};

struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
  [[nodiscard]] bool contains(uint64_t address) const { return address >= begin && address < end; }
};

// This is a call of an allocator that has not returned.
struct Call {
  enum class Kind : uint8_t { kNone, kAllocate, kReallocate } kind = Kind::kNone;
  uint64_t bytes = 0;
  uint64_t block = 0;  // the block that is reallocated
  uint64_t return_address = 0;
  uint64_t stack = 0;  // the stack pointer after the return
};

struct Thread {
  pid_t id = 0;
  ProcessorId processor = 0;
  bool ready = false;  // the thread has stopped and can make a step
  bool fresh = true;   // the thread has not made a step yet
  int signal = 0;      // the signal that the thread gets with the next step
  Range stack;
  bool stack_is_shared = false;  // another thread has referred to it
  Call call;
  uint64_t private_references = 0;
};

class Stepper {
 public:
  Stepper(const StepOptions& options, TraceWriter& writer, const std::function<void(uint64_t)>& progress)
      : options_(options), writer_(writer), progress_(progress) {
    ZydisDecoderInit(&decoder_, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  }
  ~Stepper() {
    if (pinned_) sched_setaffinity(0, sizeof affinity_, &affinity_);
    // If there is an error on the way, the program ends with its recorder.
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    while (waitpid(process_, nullptr, __WALL) < 0 && errno == EINTR) {
    }
  }
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  Result<SteppedRun> run(const std::vector<std::string>& command);

 private:
  Status start(const std::vector<std::string>& command);
  Status run_to_entry();
  void learn_program();
  Status name_variables(const Thread& thread);
  Status round();
  Status step(Thread& thread);
  Status stopped(pid_t id, int status);
  Thread& thread_of(pid_t id);
  Status end(pid_t id);
  void release(Thread& thread);
  const Decoded& decode(uint64_t address);
  Status record(Thread& thread, const Registers& registers, const Decoded& decoded);
  Status reference(Thread& thread, uint64_t address, uint64_t bytes, Access access, SiteId site);
  Status allocation(Thread& thread, const Registers& registers);
  Status event(const Thread& thread, EventKind kind, uint64_t address, uint64_t value, SiteId site = 0,
               uint32_t name = 0);
  Status report_private(Thread& thread);
  Thread* owner_of_stack(uint64_t address);
  Status share_stack(Thread& owner, uint64_t address);
  SiteId site_at(uint64_t address);
  uint64_t word_at(uint64_t address) const;

  const StepOptions& options_;
  TraceWriter& writer_;
  const std::function<void(uint64_t)>& progress_;
  ZydisDecoder decoder_;
  cpu_set_t affinity_ = {};  // this thread's affinity before the run
  bool pinned_ = false;
  pid_t process_ = 0;
  std::list<Thread> threads_;
  std::vector<bool> processor_used_;
  std::unordered_map<uint64_t, Decoded> decoded_;
  std::unordered_map<uint64_t, SiteId> sites_;
  std::unordered_map<std::string, uint32_t> names_;  // the names of allocations: the functions that asked for them
  std::vector<uint64_t> site_addresses_;             // the addresses of sites 1, 2, ...
  Symbols symbols_;
  bool variables_due_ = false;                       // those of symbols_ are to be named in the trace
  std::vector<uint64_t> variables_;                  // where those that are begin
  std::unordered_set<uint64_t> shared_stack_pages_;  // by number: those of stacks that another thread has referred to
  std::unordered_map<uint64_t, char> allocators_;    // entry points, with the first letters of the functions' names
  bool releasing_ = false;                           // the limit was reached, and threads run on untraced
  uint64_t private_due_ = kPrivateInterval;
  uint64_t progress_due_ = kProgressInterval;
  SteppedRun result_;
  bool done_ = false;
};

Status Stepper::start(const std::vector<std::string>& command) {
  ChildStart program;
  program.command = command;
  program.prepare = [] {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) return false;
    // Addresses are the same in every run.
    personality(ADDR_NO_RANDOMIZE);
    return true;
  };
  if (command.empty()) return fail("there is no program to run");
  const auto process = try_start_child(program);
  if (!process && process.error().step == ChildFailure::Step::kPrepare)
    return fail_errno(process.error().code, "this system does not let a process be single-stepped (ptrace)");
  if (!process) return fail_errno(process.error().code, fmt::format("cannot run '{}'", command.front()));
  process_ = *process;
  // The exec has stopped the process.
  wait_for_child(process_);
  // On one core the recorder and the program hand over to each other; on two, every instruction costs two wake-ups of
  // an idle core.
  if (sched_getaffinity(0, sizeof affinity_, &affinity_) == 0) {
    pinned_ = true;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    sched_setaffinity(process_, sizeof one, &one);
  }
  if (ptrace(PTRACE_SETOPTIONS, process_, nullptr, PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC) != 0) {
    return fail_errno(errno, "cannot single-step the program");
  }
  return run_to_entry();
}

// Lets the program run to its entry point, because the dynamic loader is long and of no interest.
Status Stepper::run_to_entry() {
  const int auxv = ::open(fmt::format("/proc/{}/auxv", process_).c_str(), O_RDONLY | O_CLOEXEC);
  uint64_t entry = 0;
  Elf64_auxv_t item;
  while (auxv >= 0 && read(auxv, &item, sizeof item) == static_cast<ssize_t>(sizeof item)) {
    if (item.a_type == AT_ENTRY) entry = item.a_un.a_val;
  }
  if (auxv >= 0) close(auxv);
  errno = 0;
  const long original = ptrace(PTRACE_PEEKTEXT, process_, entry, nullptr);
  if (entry == 0 || errno != 0) return fail("cannot find the program's entry point");
  constexpr long kBreakpoint = 0xcc;
  if (ptrace(PTRACE_POKETEXT, process_, entry, (original & ~0xffL) | kBreakpoint) != 0 ||
      ptrace(PTRACE_CONT, process_, nullptr, 0L) != 0) {
    return fail_errno(errno, "cannot single-step the program");
  }
  int status = 0;
  while (waitpid(process_, &status, __WALL) < 0 && errno == EINTR) {
  }
  if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) {
    if (!WIFSTOPPED(status)) process_ = 0;
    return fail("the program did not reach its entry point");
  }
  Registers registers;
  ptrace(PTRACE_GETREGS, process_, nullptr, &registers);
  registers.rip = entry;
  if (ptrace(PTRACE_POKETEXT, process_, entry, original) != 0 ||
      ptrace(PTRACE_SETREGS, process_, nullptr, &registers) != 0) {
    return fail_errno(errno, "cannot single-step the program");
  }
  return {};
}

void Stepper::learn_program() {
  variables_due_ = true;
  decoded_.clear();
  symbols_.load(process_);
  allocators_.clear();
  for (const char* name : {"malloc", "calloc", "realloc", "free"}) {
    for (const uint64_t address : symbols_.find(name)) allocators_[address] = name[0];
  }
}

// Variables of the program and of the libraries that it begins with have their names. Those of a program before an exec are gone.
Status Stepper::name_variables(const Thread& thread) {
  variables_due_ = false;
  for (const uint64_t begin : variables_)
    if (auto status = event(thread, EventKind::kFree, begin, 0); !status) return status;
  variables_.clear();
  std::unordered_map<std::string, SiteId> files;
  for (const Symbols::Variable& variable : symbols_.variables()) {
    const auto [site, added] = files.try_emplace(variable.file, 0);
    if (added) {
      site_addresses_.push_back(0);  // of no instruction
      site->second = writer_.add_site({.file = variable.file, .function = "", .line = 0});
    }
    const uint32_t name = writer_.add_name(variable.name);
    if (auto status = event(thread, EventKind::kAllocate, variable.begin, variable.bytes, site->second, name); !status)
      return status;
    variables_.push_back(variable.begin);
  }
  return {};
}

Thread& Stepper::thread_of(pid_t id) {
  for (Thread& thread : threads_) {
    if (thread.id == id) return thread;
  }
  size_t number = 0;
  while (number < processor_used_.size() && processor_used_[number]) ++number;
  if (number == processor_used_.size()) processor_used_.push_back(false);
  processor_used_[number] = true;
  Thread& thread = threads_.emplace_back();
  thread.id = id;
  thread.processor = static_cast<ProcessorId>(number);
  if (processor_used_.size() > result_.processors) {
    result_.processors = static_cast<unsigned>(processor_used_.size());
    writer_.set_processors(result_.processors);
  }
  return thread;
}

Status Stepper::event(const Thread& thread, EventKind kind, uint64_t address, uint64_t value, SiteId site,
                      uint32_t name) {
  return writer_.append(Event{writer_.references(), address, value, name, site, thread.processor, kind});
}

Status Stepper::report_private(Thread& thread) {
  if (thread.private_references == 0) return {};
  const uint64_t count = thread.private_references;
  thread.private_references = 0;
  result_.facts.private_references += count;
  return event(thread, EventKind::kPrivate, 0, count);
}

Status Stepper::end(pid_t id) {
  for (auto at = threads_.begin(); at != threads_.end(); ++at) {
    if (at->id != id) continue;
    processor_used_[at->processor] = false;
    Status status;
    if (!at->fresh) {
      status = report_private(*at);
      if (status && at->stack_is_shared) status = event(*at, EventKind::kFree, at->stack.begin, 0);
      if (status) status = event(*at, EventKind::kEnd, 0, 0);
    }
    threads_.erase(at);
    return status;
  }
  return {};
}

void Stepper::release(Thread& thread) {
  ptrace(PTRACE_DETACH, thread.id, nullptr, static_cast<long>(thread.signal));
  thread.signal = 0;
  thread.ready = false;
}

// Acts on what waitpid said of a thread.
Status Stepper::stopped(pid_t id, int status) {
  if (WIFEXITED(status) || WIFSIGNALED(status)) {
    if (id == process_) {
      // The end of the first thread is reported after the ends of all other threads.
      result_.run.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      result_.run.exit_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      while (!threads_.empty()) {
        if (auto ended = end(threads_.front().id); !ended) return ended;
      }
      process_ = 0;
      done_ = true;
      return {};
    }
    return end(id);
  }
  if (!WIFSTOPPED(status)) return {};
  Thread& thread = thread_of(id);
  const int signal = WSTOPSIG(status);
  const int what = status >> 16;
  if (what == PTRACE_EVENT_EXEC) {
    // An exec has ended the other threads.
    for (auto at = threads_.begin(); at != threads_.end();) {
      const pid_t other = (at++)->id;
      if (other == id) continue;
      if (auto ended = end(other); !ended) return ended;
    }
    learn_program();
    thread.stack = {};
  } else if (what == 0 && signal != SIGTRAP && !(thread.fresh && signal == SIGSTOP)) {
    thread.signal = signal;
  }
  thread.ready = true;
  if (releasing_) release(thread);
  return {};
}

uint64_t Stepper::word_at(uint64_t address) const {
  uint64_t word = 0;
  const iovec local = {&word, sizeof word};
  const iovec remote = {reinterpret_cast<void*>(address), sizeof word};
  process_vm_readv(process_, &local, 1, &remote, 1, 0);
  return word;
}

SiteId Stepper::site_at(uint64_t address) {
  const auto [found, added] = sites_.try_emplace(address, 0);
  if (added) {
    site_addresses_.push_back(address);
    found->second = writer_.add_site(symbols_.site_of(address));
  }
  return found->second;
}

const Decoded& Stepper::decode(uint64_t address) {
  Decoded& decoded = decoded_[address];
  if (decoded.known) return decoded;
  decoded.known = true;
  uint8_t code[ZYDIS_MAX_INSTRUCTION_LENGTH];
  const iovec local = {code, sizeof code};
  // This reads up to the end of the page, and of the next if that is there.
  const size_t in_page = std::min<size_t>(sizeof code, 4096 - address % 4096);
  const iovec remote[2] = {{reinterpret_cast<void*>(address), in_page},
                           {reinterpret_cast<void*>(address + in_page), sizeof code - in_page}};
  const ssize_t got = process_vm_readv(process_, &local, 1, remote, in_page == sizeof code ? 1 : 2, 0);
  ZydisDecodedInstruction instruction;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  if (got <= 0 ||
      !ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder_, code, static_cast<size_t>(got), &instruction, operands))) {
    return decoded;  // the processor will raise an exception
  }
  decoded.system_call = instruction.mnemonic == ZYDIS_MNEMONIC_SYSCALL;
  decoded.repeats =
      (instruction.attributes & (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE | ZYDIS_ATTRIB_HAS_REPNE)) != 0;
  // These instructions name memory but do not refer to it.
  const bool hint = instruction.mnemonic == ZYDIS_MNEMONIC_NOP ||
                    instruction.meta.category == ZYDIS_CATEGORY_PREFETCH ||
                    instruction.meta.category == ZYDIS_CATEGORY_WIDENOP;
  for (unsigned i = 0; i < instruction.operand_count && !hint; ++i) {
    const ZydisDecodedOperand& from = operands[i];
    if (from.type != ZYDIS_OPERAND_TYPE_MEMORY || from.mem.type == ZYDIS_MEMOP_TYPE_AGEN) continue;
    if (from.mem.type == ZYDIS_MEMOP_TYPE_VSIB) {
      decoded.gathers = true;
      continue;
    }
    if (decoded.operands == kMaxOperands) break;
    Operand& to = decoded.operand[decoded.operands++];
    to.base = from.mem.base;
    to.index = from.mem.index;
    to.segment = from.mem.segment;
    to.scale = from.mem.scale;
    to.reads = (from.actions & ZYDIS_OPERAND_ACTION_MASK_READ) != 0;
    to.writes = (from.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0;
    to.narrow = instruction.address_width == 32;
    to.bytes = static_cast<uint16_t>(from.size / 8);
    to.displacement = from.mem.disp.has_displacement ? from.mem.disp.value : 0;
    if (to.base == ZYDIS_REGISTER_RIP) to.displacement += instruction.length;
    if (to.narrow) {
      to.base = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, to.base);
      to.index = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, to.index);
    }
    to.stack_push = from.visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN && to.base == ZYDIS_REGISTER_RSP && to.writes;
    if (to.bytes != 0 && to.base != ZYDIS_REGISTER_RSP) decoded.site = site_at(address);
  }
  return decoded;
}

Status Stepper::reference(Thread& thread, uint64_t address, uint64_t bytes, Access access, SiteId site) {
  for (uint64_t done = 0; done < bytes; done += kLargestReference) {
    const auto size = static_cast<uint8_t>(std::min(bytes - done, kLargestReference));
    const Reference made = {address + done, site, thread.processor, access, size};
    if (auto status = writer_.append(std::span(&made, 1)); !status) return status;
  }
  return {};
}

Thread* Stepper::owner_of_stack(uint64_t address) {
  for (Thread& thread : threads_)
    if (thread.stack.contains(address)) return &thread;
  return nullptr;
}

// Another thread refers to a stack. From now on all references to this page of it are part of the trace.
Status Stepper::share_stack(Thread& owner, uint64_t address) {
  shared_stack_pages_.insert(address / kPage);
  if (owner.stack_is_shared) return {};
  owner.stack_is_shared = true;
  const uint32_t name = writer_.add_name(fmt::format("stack of processor {}", owner.processor));
  return event(owner, EventKind::kAllocate, owner.stack.begin, owner.stack.end - owner.stack.begin, 0, name);
}

Status Stepper::record(Thread& thread, const Registers& registers, const Decoded& decoded) {
  if (decoded.gathers) ++result_.gathers;
  if (decoded.repeats && registers.rcx == 0) return {};
  for (unsigned i = 0; i < decoded.operands; ++i) {
    const Operand& operand = decoded.operand[i];
    const unsigned count = unsigned{operand.reads} + unsigned{operand.writes};
    uint64_t address = value_of(registers, operand.base) + value_of(registers, operand.index) * operand.scale +
                       static_cast<uint64_t>(operand.displacement);
    if (operand.narrow) address &= 0xffffffffu;
    if (operand.segment == ZYDIS_REGISTER_GS) address += registers.gs_base;
    const bool own_stack = thread.stack.contains(address);
    if (operand.stack_push || operand.segment == ZYDIS_REGISTER_FS ||
        (own_stack && !shared_stack_pages_.contains(address / kPage))) {
      thread.private_references += count;
      continue;
    }
    if (own_stack) {
      result_.facts.stack_references += count;
    } else if (Thread* const owner = owner_of_stack(address); owner != nullptr) {
      result_.facts.stack_references += count;
      if (auto status = share_stack(*owner, address); !status) return status;
    }
    if (operand.reads) {
      if (auto status = reference(thread, address, operand.bytes, Access::kRead, decoded.site); !status) return status;
    }
    if (operand.writes) {
      if (auto status = reference(thread, address, operand.bytes, Access::kWrite, decoded.site); !status) return status;
    }
  }
  return {};
}

// These are calls of the C library's allocator, recognised by their entry points and return addresses.
Status Stepper::allocation(Thread& thread, const Registers& registers) {
  Call& call = thread.call;
  if (call.kind != Call::Kind::kNone) {
    if (registers.rip != call.return_address || registers.rsp != call.stack) return {};
    const uint64_t block = registers.rax;
    const bool resized = call.kind == Call::Kind::kReallocate && call.block != 0;
    call.kind = Call::Kind::kNone;
    if (block == 0) return {};
    if (resized) {
      if (auto status = event(thread, EventKind::kFree, call.block, 0); !status) return status;
    }
    const SiteId site = site_at(registers.rip - 1);
    const auto [name, added] = names_.try_emplace(writer_.header().sites[site].function, 0);
    if (added && !name->first.empty()) name->second = writer_.add_name(name->first);
    return event(thread, EventKind::kAllocate, block, call.bytes, site, name->second);
  }
  const auto found = allocators_.find(registers.rip);
  if (found == allocators_.end()) return {};
  call.return_address = word_at(registers.rsp);
  call.stack = registers.rsp + 8;
  switch (found->second) {
    case 'm':
      call.kind = Call::Kind::kAllocate;
      call.bytes = registers.rdi;
      return {};
    case 'c':
      call.kind = Call::Kind::kAllocate;
      call.bytes = registers.rdi * registers.rsi;
      return {};
    case 'r':
      call.kind = Call::Kind::kReallocate;
      call.block = registers.rdi;
      call.bytes = registers.rsi;
      return {};
    default:
      return registers.rdi == 0 ? Status() : event(thread, EventKind::kFree, registers.rdi, 0);
  }
}

Status Stepper::step(Thread& thread) {
  Registers registers;
  if (ptrace(PTRACE_GETREGS, thread.id, nullptr, &registers) != 0) {
    if (errno != ESRCH) return fail_errno(errno, "cannot read the registers of a thread");
    thread.ready = false;  // the thread was killed; waitpid will report that
    return {};
  }
  if (thread.fresh || thread.stack.end == 0) {
    for (const Mapping& mapping : mappings_of(process_)) {
      if (registers.rsp < mapping.begin || registers.rsp >= mapping.end) continue;
      thread.stack = {mapping.begin, mapping.end};
      if (mapping.path == "[stack]") {
        thread.stack.begin = mapping.end - std::min<uint64_t>(mapping.end, uint64_t{8} << 20);  // this stack grows
      } else if (registers.fs_base > registers.rsp && registers.fs_base < mapping.end) {
        thread.stack.end =
            std::min<uint64_t>(mapping.end, (registers.fs_base + kThreadDescriptorBytes) & ~uint64_t{4095});
      }
    }
  }
  if (thread.fresh) {
    thread.fresh = false;
    if (auto status = event(thread, EventKind::kStart, 0, 0); !status) return status;
  }
  if (variables_due_)
    if (auto status = name_variables(thread); !status) return status;
  if (auto status = allocation(thread, registers); !status) return status;
  const Decoded& decoded = decode(registers.rip);
  const bool system_call = decoded.system_call;
  if (auto status = record(thread, registers, decoded); !status) return status;
  ++result_.instructions;
  if (system_call) {
    // After these calls, the code may have changed.
    switch (registers.rax) {
      case SYS_mmap:
      case SYS_munmap:
      case SYS_mprotect:
      case SYS_mremap:
        decoded_.clear();
        break;
      default:
        break;
    }
  }
  const int signal = std::exchange(thread.signal, 0);
  thread.ready = false;
  const pid_t id = thread.id;
  if (ptrace(PTRACE_SINGLESTEP, id, nullptr, static_cast<long>(signal)) != 0) {
    return errno == ESRCH ? Status() : fail_errno(errno, "cannot single-step a thread");
  }
  if (system_call) return {};  // the call may block, so round() finds out which threads have returned
  int status = 0;
  while (waitpid(id, &status, __WALL) < 0) {
    if (errno == ECHILD) return end(id);
    if (errno != EINTR) return fail_errno(errno, "cannot wait for a thread");
  }
  return stopped(id, status);
}

// Runs one instruction of every thread that can run.
Status Stepper::round() {
  bool any = false;
  for (auto at = threads_.begin(); at != threads_.end() && !done_;) {
    Thread& thread = *at++;  // the thread's end removes it from the list
    if (!thread.ready) continue;
    any = true;
    if (auto status = step(thread); !status) return status;
  }
  // Looks after threads in system calls, and new ones.
  bool waiting = false;
  for (const Thread& thread : threads_) waiting |= !thread.ready;
  while (!done_ && (waiting || releasing_ || threads_.empty())) {
    int status = 0;
    const pid_t id = waitpid(-1, &status, __WALL | (any ? WNOHANG : 0));
    if (id == 0) break;
    if (id < 0) {
      if (errno == EINTR) continue;
      return fail_errno(errno, "cannot wait for the program");
    }
    any = true;
    if (auto handled = stopped(id, status); !handled) return handled;
  }
  return {};
}

Result<SteppedRun> Stepper::run(const std::vector<std::string>& command) {
  const Nanoseconds begin = monotonic_ns();
  if (auto status = start(command); !status) return tl::unexpected(status.error());
  learn_program();
  thread_of(process_).ready = true;
  while (!done_) {
    if (auto status = round(); !status) return tl::unexpected(status.error());
    if (writer_.references() >= private_due_) {
      private_due_ = writer_.references() + kPrivateInterval;
      for (Thread& thread : threads_) {
        if (auto status = report_private(thread); !status) return tl::unexpected(status.error());
      }
    }
    if (progress_ && writer_.references() >= progress_due_) {
      progress_due_ = writer_.references() + kProgressInterval;
      progress_(writer_.references());
    }
    if (options_.max_references != 0 && writer_.references() >= options_.max_references && !releasing_) {
      releasing_ = true;
      result_.facts.stopped = "the limit on references was reached";
      for (Thread& thread : threads_) {
        if (thread.ready) release(thread);
      }
    }
  }
  result_.run.seconds = static_cast<double>(monotonic_ns() - begin) * 1e-9;
  std::vector<Site> sites(writer_.header().sites.begin() + 1, writer_.header().sites.end());
  symbols_.add_lines(site_addresses_, sites);
  for (size_t i = 0; i < sites.size(); ++i) writer_.set_site(static_cast<SiteId>(i + 1), sites[i]);
  return std::move(result_);
}

}  // namespace

Result<SteppedRun> single_step(const std::vector<std::string>& command, const StepOptions& options, TraceWriter& writer,
                               const std::function<void(uint64_t)>& progress) {
  return Stepper(options, writer, progress).run(command);
}

}  // namespace multigrain::trace
