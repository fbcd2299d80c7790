#include "guest/nodes/placed_process.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "guest/calls.h"
#include "guest/cluster.h"
#include "guest/entry.h"
#include "guest/host.h"
#include "guest/nodes/away.h"
#include "guest/nodes/messages.h"
#include "guest/nodes/process_link.h"
#include "guest/nodes/segments.h"
#include "guest/nodes/shared_mappings.h"
#include "guest/package.h"
#include "guest/signals.h"
#include "guest/threads.h"

namespace multigrain::guest {
namespace {

// Says that the process goes home for no call of its own.
constexpr long kNoCall = -1;

// Nobody is left to whom this process could be something.
[[noreturn]] void end_process() {
  _exit(0);
}

class PlacedProcess final : public Cluster {
 public:
  PlacedProcess(int connection, int signals, unsigned first_processor, ThreadBlock& thread,
                const std::atomic<bool>& is_ending)
      : connection_(connection),
        signals_(signals),
        first_processor_(first_processor),
        thread_(thread),
        is_ending_(is_ending) {}

  [[nodiscard]] bool is_home() const override { return false; }
  [[nodiscard]] bool is_process_away() const override { return true; }
  [[nodiscard]] unsigned first_processor() const override { return first_processor_; }

  // All faults are the guest's own.
  bool on_fault(int, const siginfo_t&, const ucontext_t&, ThreadBlock&) override { return false; }
  void come_home(const ucontext_t& context, ThreadBlock& thread) override;
  bool copy_at_home(uint64_t, void*, size_t, bool) override { return false; }
  void expect_copy(uint64_t, uint64_t, bool) override {}
  void explain_fault(siginfo_t&, ThreadBlock&) override {}
  long futex(Call& call) override;
  void wake(uint64_t address, uint32_t count) override {
    syscall(SYS_futex, address, FUTEX_WAKE, count, nullptr, nullptr, 0);
  }
  long start_thread(const ThreadStart&, ThreadBlock&) override { return go_home(SYS_clone); }
  // A process that forks is at home.
  long save_memory() override { return -ENOSYS; }
  void forget_saved_memory(long) override {}
  void become_child(long, bool) override {}
  void place_child(Call&) override {}
  void thread_begins(const ThreadBlock&, const ThreadStart&) override {}
  void call_begins() override {}
  void call_ends() override {}
  void process_ends(int) override {}
  void begin_sharing_descriptors(bool) override {}
  void end_sharing_descriptors() override {}
  [[noreturn]] void exit_guest(int status) override;
  long carry_out(Package& package, ThreadBlock& thread) override;
  long call_at_home(long number, const uint64_t (&arguments)[6], ThreadBlock& thread) override;
  long start_process_at_home(Call& call) override { return go_home(call.number); }
  long action_at_home(int signal, const SystemAction* wanted, SystemAction* before, ThreadBlock& thread) override;
  long set_mask_at_home(uint64_t mask, bool must_take, ThreadBlock& thread) override;
  void act_by_default_at_home(int signal, bool is_forced, ThreadBlock& thread) override;
  siginfo_t take_signal(ThreadBlock& thread) override;
  void thread_has_ended(ThreadBlock&) override {}
  [[noreturn]] void first_thread_has_ended(int status) override { exit_guest(status); }

 private:
  // Returns what call_at_home() and the like return for a call that has to be made at home.
  long go_home(long number) {
    thread_.needs_home = true;
    wanted_ = number;
    return kRestart;
  }
  [[noreturn]] void lose_home();
  long ask(Request request, std::span<const std::byte> data = {}, std::vector<std::byte>* answer = nullptr);
  std::optional<long> call_here(long number, const uint64_t (&arguments)[6]);
  void send_memory();

  const int connection_;
  const int signals_;
  const unsigned first_processor_;
  ThreadBlock& thread_;
  const std::atomic<bool>& is_ending_;
  long wanted_ = kNoCall;
};

// Its shadow has ended, or been killed. What others share with the process they can still use.
void PlacedProcess::lose_home() {
  block_signals();
  give_up_robust_mutexes(thread_);
  end_process();
}

long PlacedProcess::ask(Request request, std::span<const std::byte> data, std::vector<std::byte>* answer) {
  request.bytes = static_cast<uint32_t>(data.size());
  LinkReply reply;
  if (!send_value(connection_, request) || !send_all(connection_, data.data(), data.size()) ||
      !receive_value(connection_, reply))
    lose_home();
  std::vector<std::byte> found(reply.bytes);
  if (!receive_all(connection_, found.data(), found.size())) lose_home();
  if (answer != nullptr) *answer = std::move(found);
  if (reply.has_signal != 0) {
    thread_.pending_info = reply.signal;
    thread_.pending_signal = reply.signal.si_signo;
  }
  return reply.result;
}

long PlacedProcess::carry_out(Package& package, ThreadBlock& thread) {
  const auto& argument = package.arguments();
  switch (package.number()) {
    case SYS_clock_gettime:
      // The time that this process has had of its processor.
      if (const auto clock = static_cast<clockid_t>(argument[0]);
          clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID)
        return package.carry_out(thread);
      break;
    case SYS_getrusage:
      if (const auto who = static_cast<int>(argument[0]); who == RUSAGE_SELF || who == RUSAGE_THREAD)
        return package.carry_out(thread);
      break;
    case SYS_pkey_alloc:
    case SYS_pkey_free:
      // Keys belong to memory.
      return go_home(package.number());
    default:
      break;
  }
  std::vector<std::byte> bytes;
  const long result = ask({.kind = RequestKind::kPackage}, package.request(), &bytes);
  // The reply to a call that is to be made again has no data.
  if (result == kRestart) return result;
  if (!package.take_reply(bytes))
    panic("a reply that does not fit its call, number / bytes", static_cast<uint64_t>(package.number()), bytes.size());
  return result;
}

// Carries out a call about memory without a file. Returns nothing if it has to be made at home.
std::optional<long> PlacedProcess::call_here(long number, const uint64_t (&argument)[6]) {
  AddressSpace& space = host().space;
  const auto integer = [&argument](size_t i) { return static_cast<int>(argument[i]); };
  switch (number) {
    case SYS_mmap: {
      const int flags = integer(3);
      const bool is_plain =
          (flags & MAP_TYPE) == MAP_PRIVATE && (flags & MAP_ANONYMOUS) != 0 && (flags & MAP_HUGETLB) == 0;
      if (!is_plain || ((flags & MAP_FIXED) != 0 && space.has_file_in(argument[0], argument[1]))) return std::nullopt;
      return space.map(argument[0], argument[1], integer(2), flags, integer(4), argument[5], thread_.node);
    }
    case SYS_munmap:
      if (space.has_file_in(argument[0], argument[1])) return std::nullopt;
      return space.unmap(argument[0], argument[1]);
    case SYS_mprotect:
      if (space.has_file_in(argument[0], argument[1])) return std::nullopt;
      return space.protect(argument[0], argument[1], integer(2));
    case SYS_mremap:
      if (space.has_file_in(argument[0], argument[1]) ||
          ((integer(3) & MREMAP_FIXED) != 0 && space.has_file_in(argument[4], argument[2])))
        return std::nullopt;
      return space.remap(argument[0], argument[1], argument[2], integer(3), argument[4], thread_.node);
    case SYS_brk:
      return space.set_break(argument[0]);
    case SYS_madvise:  // MADV_DONTNEED
      if (space.has_file_in(argument[0], argument[1])) return std::nullopt;
      return space.discard(argument[0], page_up(argument[1]));
    case SYS_mincore:
      return space.check_mapped(argument[0], argument[1]);
    case SYS_msync:
      return space.sync(argument[0], argument[1], integer(2));
    default:
      return std::nullopt;
  }
}

long PlacedProcess::call_at_home(long number, const uint64_t (&arguments)[6], ThreadBlock&) {
  if (number == SYS_exit_group) exit_guest(static_cast<int>(arguments[0]));
  // This one is about numbers of descriptors alone. Of others the home would need the guest's memory.
  if (number == SYS_close_range) {
    Request request{.kind = RequestKind::kCall, .bytes = 0, .number = number};
    std::ranges::copy(arguments, request.arguments);
    return ask(request);
  }
  if (const auto result = call_here(number, arguments)) return *result;
  return go_home(number);
}

void PlacedProcess::exit_guest(int status) {
  block_signals();
  give_up_robust_mutexes(thread_);
  Request request{.kind = RequestKind::kCall, .bytes = 0, .number = SYS_exit_group};
  request.arguments[0] = static_cast<uint64_t>(status);
  ask(request);
  end_process();
}

long PlacedProcess::action_at_home(int signal, const SystemAction* wanted, SystemAction* before, ThreadBlock&) {
  const Request request{.kind = RequestKind::kAction, .bytes = 0, .number = signal};
  std::vector<std::byte> bytes;
  const auto data = wanted != nullptr ? std::as_bytes(std::span(wanted, 1)) : std::span<const std::byte>{};
  const long result = ask(request, data, &bytes);
  if (before != nullptr && bytes.size() == sizeof *before) std::memcpy(before, bytes.data(), sizeof *before);
  return result;
}

long PlacedProcess::set_mask_at_home(uint64_t mask, bool must_take, ThreadBlock& thread) {
  Request request{.kind = RequestKind::kMask};
  const uint32_t acted_on = thread.signals_acted_on;
  request.arguments[0] = mask;
  request.arguments[1] = must_take ? 1 : 0;
  request.arguments[2] = acted_on;
  const long result = ask(request);
  if (result == 0) {
    thread.mask_at_home = mask;
    thread.signals_answered = acted_on;
  }
  return result;
}

void PlacedProcess::act_by_default_at_home(int signal, bool is_forced, ThreadBlock&) {
  Request request{.kind = RequestKind::kDefault, .bytes = 0, .number = signal};
  request.arguments[0] = is_forced ? 1 : 0;
  ask(request);
}

siginfo_t PlacedProcess::take_signal(ThreadBlock& thread) {
  siginfo_t info{};
  const ssize_t count = recv(signals_, &info, sizeof info, MSG_DONTWAIT);
  if (count == 0) lose_home();
  if (count == sizeof info) return info;
  if (is_ending_ && !thread.needs_home) go_home(kNoCall);
  return {};
}

// The words of a process with one thread are of its own memory, or of files that this machine has.
long PlacedProcess::futex(Call& call) {
  switch (call.integer(1) & FUTEX_CMD_MASK) {
    case FUTEX_LOCK_PI:
    case FUTEX_LOCK_PI2:
    case FUTEX_TRYLOCK_PI:
    case FUTEX_UNLOCK_PI:
    case FUTEX_WAIT_REQUEUE_PI:
    case FUTEX_CMP_REQUEUE_PI:
      // The system puts the number of the calling thread into the word, which must be the guest's.
      return go_home(call.number);
    default:
      break;
  }
  const long result = pass_call(call.number, call.arguments, call.thread);
  if (result != -EINTR) return result;
  // kKick, by which the home's signals come, does not say whether the guest's handler lets calls start again.
  const int signal = call.thread.pending_signal;
  if (signal <= 0) return kRestart;
  const bool has_timeout = call.arguments[3] != 0;
  const bool restarts = (call.thread.actions->action(signal).flags & SA_RESTART) != 0;
  return restarts && !has_timeout ? kRestart : result;
}

// --- Coming home

void PlacedProcess::come_home(const ucontext_t& context, ThreadBlock& thread) {
  thread.needs_home = false;
  const long wanted = std::exchange(wanted_, kNoCall);
  const Request request{.kind = RequestKind::kTakeOver, .bytes = 0, .number = wanted};
  if (ask(request, thread_to_take_over(context, thread)) != 0) return;
  block_signals();
  send_memory();
  // Segments that have been removed are there for as long as somebody has them attached. The home closes the connection when
  // it has them.
  char none = 0;
  receive_all(connection_, &none, sizeof none);
  end_process();
}

void PlacedProcess::send_memory() MG_NO_THREAD_SAFETY_ANALYSIS {
  AddressSpace& space = host().space;
  space.lock();
  const AddressSpace::Account account = space.locked_account();
  space.unlock();
  const ProcessComesHome header{.break_end = account.break_end, .areas = static_cast<uint32_t>(account.areas.size())};
  if (!send_value(connection_, header) ||
      !send_all(connection_, account.areas.data(), account.areas.size() * sizeof(Area)) ||
      !send_pages(connection_, account.areas))
    end_process();
}

// --- The beginning

// Maps an area as the home has it. Its pages come later.
bool map_area(const Area& area, const FileDescriptor& file) {
  if (segments::is_segment(area.file)) return segments::map(area) == 0;
  if (area.file != 0)
    return file.is_open() && map_over_view(area.range, area.rights, area.is_shared, file.get(), area.offset) == 0;
  void* const wanted = reinterpret_cast<void*>(area.range.begin);
  return mmap(wanted, area.range.end - area.range.begin, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

bool set_rights(const std::vector<Area>& areas) {
  return std::ranges::all_of(areas, [](const Area& area) {
    return area.file != 0 ||
           mprotect(reinterpret_cast<void*>(area.range.begin), area.range.end - area.range.begin, area.rights) == 0;
  });
}

// Everything that the home sends before the process begins.
struct Arriving {
  ProcessToPlace header;
  AddressSpace::Account account;
  std::vector<Range> ranges;
  ThreadToTakeOver thread;
  std::vector<std::byte> context;
  NotPlaced why = NotPlaced::kNone;
};

template <typename T>
bool receive_many(int socket, std::vector<T>& values, uint32_t count) {
  values.resize(count);
  return receive_all(socket, values.data(), count * sizeof(T));
}

// All is received, even if the process cannot be here, so that the home comes to the answer.
bool receive(int socket, Arriving& arriving) {
  ProcessToPlace& header = arriving.header;
  AddressSpace::Account& account = arriving.account;
  uint32_t context_bytes = 0;
  if (!receive_value(socket, header)) return false;
  if (header.vdso != getauxval(AT_SYSINFO_EHDR)) arriving.why = NotPlaced::kVdso;
  for (uint32_t i = 0; i < header.areas; ++i) {
    Area area;
    FileDescriptor file;
    if (!receive_value(socket, area) || !receive_descriptor(socket, file)) return false;
    if (!map_area(area, file)) arriving.why = NotPlaced::kMemory;
    account.areas.push_back(area);
  }
  account.break_begin = header.break_begin;
  account.break_end = header.break_end;
  return receive_many(socket, account.reserved, header.reserved) &&
         receive_many(socket, arriving.ranges, header.ranges) && receive_value(socket, arriving.thread) &&
         receive_value(socket, context_bytes) && receive_many(socket, arriving.context, context_bytes) &&
         arriving.why == NotPlaced::kNone && receive_pages(socket);
}

}  // namespace

void run_placed_process(FileDescriptor connection, const std::atomic<bool>& is_ending) {
  // Messages, such as that the home has gone, are no reason to end before the guest's mutexes are given up.
  for (const int number : {SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE, SIGCHLD})
    signal(number, SIG_IGN);
  const int home = connection.get();
  Arriving arriving;
  if (!receive(home, arriving)) {
    if (arriving.why != NotPlaced::kNone) send_value(home, ProcessPlaced{.why = arriving.why});
    end_process();
  }
  const auto refuse = [home](NotPlaced why) {
    send_value(home, ProcessPlaced{.why = why});
    end_process();
  };
  if (!set_rights(arriving.account.areas)) refuse(NotPlaced::kMemory);
  const ProcessToPlace& header = arriving.header;
  Host& state = *new (place_of_host()) Host(arriving.ranges, std::make_unique<PrivateMappings>(), header.nodes);
  state.is_first = false;
  state.processors = header.processors;
  state.memory_is_shared = true;
  state.traps_all_calls = true;
  state.space.take_account(arriving.account);

  int signals[2];
  const Result<ThreadBlock*> created = create_block();
  if (!created || !install_host_handlers() || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, signals) != 0)
    refuse(NotPlaced::kThread);
  FileDescriptor sending(signals[1]);
  // The system sends kKick when there is a message, or when the other end is gone.
  if (fcntl(signals[0], F_SETOWN, getpid()) != 0 || fcntl(signals[0], F_SETSIG, kKick) != 0 ||
      fcntl(signals[0], F_SETFL, O_ASYNC) != 0)
    refuse(NotPlaced::kThread);
  ThreadBlock& block = **created;
  Away away(0);
  ActionsAtHome actions(block);
  const ThreadToTakeOver& thread = arriving.thread;
  block.away = &away;
  block.actions = &actions;
  block.tid = header.number;
  block.guest_fs = thread.thread_pointer;
  block.clear_tid = thread.clear_tid;
  block.robust_list = thread.robust_list;
  block.alternate_stack = thread.alternate_stack;
  block.processor = thread.processor;
  block.mask_at_home = thread.mask;
  PlacedProcess process(home, signals[0], header.first_processor, block, is_ending);
  state.cluster = &process;
  ucontext_t& context = restore_context(arriving.context, block.frame);
  context.uc_stack = block.stack();
  set_mask(context, block, thread.mask);
  if (!prepare_thread(block)) refuse(NotPlaced::kThread);
  if (!send_value(home, ProcessPlaced{}) || !send_descriptor(home, sending.get())) end_process();
  sending.close();
  enter_guest(block, context);
  end_process();
}

}  // namespace multigrain::guest
