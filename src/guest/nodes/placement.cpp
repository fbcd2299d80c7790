#include "guest/nodes/placement.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/own_descriptors.h"
#include "guest/entry.h"
#include "guest/host.h"
#include "guest/nodes/deputy.h"
#include "guest/nodes/placer.h"
#include "guest/nodes/segments.h"
#include "guest/nodes/shared_mappings.h"
#include "guest/package.h"
#include "guest/signals.h"

namespace multigrain::guest {
namespace {

// The process that goes on elsewhere has been killed, or its node has died: so this one is killed.
[[noreturn]] void die_with_process() {
  kill(getpid(), SIGKILL);
  syscall(SYS_exit_group, 1);
  __builtin_unreachable();
}

class ShadowProcess final : public Deputy {
 public:
  ShadowProcess(int connection, int signals, ThreadBlock& block, uint64_t mask)
      : Deputy(block, mask), connection_(connection), signals_(signals) {
    tid_ = gettid();
  }
  ~ShadowProcess() override = default;

  // Serves the process until it comes home. Returns the number of the call for which it did.
  int64_t serve();
  // Takes the memory over.
  void take_memory(const AddressSpace::Account& before);
  // Goes on in its place.
  [[noreturn]] void go_on();

 private:
  void wait_for_request();
  void serve_request();
  void reply(long result, std::span<const std::byte> answer);
  long carry_out(const Request& request, std::span<const std::byte> data, std::vector<std::byte>& answer) override;
  long carry_out_package(std::span<const std::byte> data, std::vector<std::byte>& answer);

  const int connection_;
  const int signals_;
  int64_t wanted_ = 0;
};

void ShadowProcess::wait_for_request() {
  pollfd event{.fd = connection_, .events = POLLIN, .revents = 0};
  while (event.revents == 0) {
    if (has_sent_signal()) {
      // All signals are blocked. The next one has to wait for the process's answer.
      poll(&event, 1, -1);
      continue;
    }
    if (block_.pending_signal != 0) {
      const siginfo_t info = take_signal();
      if (info.si_signo == 0) continue;
      if (send(signals_, &info, sizeof info, MSG_NOSIGNAL) != sizeof info) die_with_process();
      continue;
    }
    const uint64_t arguments[6] = {reinterpret_cast<uint64_t>(&event), 1, ~uint64_t{0}, 0, 0, 0};
    pass_call(SYS_poll, arguments, block_);
  }
}

int64_t ShadowProcess::serve() {
  apply_mask();
  while (!takes_over_) {
    wait_for_request();
    serve_request();
  }
  return wanted_;
}

void ShadowProcess::serve_request() {
  Request request;
  if (!receive_value(connection_, request)) die_with_process();
  if (request.bytes > slots::kMaxData) panic("a request of a process that is away is too large, bytes", request.bytes);
  std::vector<std::byte> data(request.bytes);
  if (!receive_all(connection_, data.data(), data.size())) die_with_process();
  std::vector<std::byte> answer;
  // The process ends, whatever signal is on its way to it.
  if (request.kind == RequestKind::kCall && request.number == SYS_exit_group)
    syscall(SYS_exit_group, static_cast<int>(request.arguments[0]));
  if (request.kind == RequestKind::kTakeOver) wanted_ = request.number;
  const long result = carry_out_in_order(request, data, answer);
  reply(result, answer);
}

void ShadowProcess::reply(long result, std::span<const std::byte> answer) {
  LinkReply reply{.result = result, .bytes = static_cast<uint32_t>(answer.size()), .has_signal = 0, .signal = {}};
  if (block_.pending_signal != 0 && !has_sent_signal() && !takes_over_) {
    reply.signal = take_signal();
    reply.has_signal = reply.signal.si_signo != 0 ? 1 : 0;
  }
  if (!send_value(connection_, reply) || !send_all(connection_, answer.data(), answer.size())) die_with_process();
}

long ShadowProcess::carry_out(const Request& request, std::span<const std::byte> data, std::vector<std::byte>& answer) {
  return request.kind == RequestKind::kPackage ? carry_out_package(data, answer)
                                               : Deputy::carry_out(request, data, answer);
}

long ShadowProcess::carry_out_package(std::span<const std::byte> data, std::vector<std::byte>& answer) {
  Package package;
  if (!package.take_request(data)) panic("a package of a process that is away, which is none; bytes", data.size());
  const bool is_hosts = is_about_hosts_descriptor(package.number(), package.arguments());
  const long result = is_hosts ? -EBADF : package.carry_out(block_);
  const auto given = package.reply(result);
  answer.assign(given.begin(), given.end());
  return result;
}

// What has no file is the other process's (P2), and areas of files are as they were (P1).
void ShadowProcess::take_memory(const AddressSpace::Account& before) {
  block_all();
  AddressSpace& space = guest::host().space;
  const auto no_room = [](long result) {
    die(127, "a process that comes home has no room for its memory, errno", static_cast<uint64_t>(-result));
  };
  ProcessComesHome header;
  if (!receive_value(connection_, header)) die_with_process();
  std::vector<Area> areas(header.areas);
  if (!receive_all(connection_, areas.data(), areas.size() * sizeof(Area))) die_with_process();
  for (const Area& area : before.areas) {
    if (area.file == 0) space.unmap(area.range.begin, area.range.end - area.range.begin);
    if (!segments::is_segment(area.file)) continue;
    // The other process still has it attached, so that it is there even if it has been removed.
    if (const long result = segments::map(area); result != 0) no_room(result);
  }
  for (const Area& area : areas) {
    if (area.file != 0) continue;
    const long result = space.map(area.range.begin, area.range.end - area.range.begin, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (result < 0) no_room(result);
  }
  if (!receive_pages(connection_)) die_with_process();
  for (const Area& area : areas) {
    if (area.file != 0 || area.rights == (PROT_READ | PROT_WRITE)) continue;
    const long result = space.protect(area.range.begin, area.range.end - area.range.begin, area.rights);
    if (result != 0) no_room(result);
  }
  AddressSpace::Account account{.areas = {}, .reserved = {}, .break_begin = before.break_begin, .break_end = 0};
  account.break_end = header.break_end;
  space.take_account(account);
}

void ShadowProcess::go_on() {
  own_descriptors::give_up();
  ThreadBlock& block = block_;
  ucontext_t& context = copy_context(*reinterpret_cast<const ucontext_t*>(context_), block);
  block.tid = 0;
  enter_guest(block, context);
  // A process's first thread ends without coming here.
  die(127, {"a process that came home has ended in an unknown way"});
}

}  // namespace

Result<std::unique_ptr<Placement>> Placement::create(unsigned nodes, Processors processors) {
  void* const shared = mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return fail_errno(errno, "no memory to count the program's processes");
  return std::unique_ptr<Placement>(new Placement(nodes, processors, new (shared) Counts));
}

int Placement::stay(Stays why) {
  counts_->stayed[static_cast<size_t>(why)].fetch_add(1, std::memory_order_relaxed);
  return -1;
}

void Placement::count_return(int64_t call) {
  counts_->came_home.fetch_add(1, std::memory_order_relaxed);
  if (static_cast<uint64_t>(call) < kCallNumbers)
    counts_->came_home_for[static_cast<size_t>(call)].fetch_add(1, std::memory_order_relaxed);
}

int Placement::begin(const AddressSpace::Account& account, bool can_be_placed, bool is_limited) {
  if (!can_be_placed) return stay(Stays::kShares);
  if (is_limited) return stay(Stays::kLimits);
  const NodeId node(static_cast<uint16_t>((counts_->turn.fetch_add(1, std::memory_order_relaxed) + 1) % nodes_));
  if (node == kHome) return stay(Stays::kTurn);
  FileDescriptor connection = connect_to_placer(placers_[node.value].load());
  if (!connection.is_open() || !send_areas(connection.get(), node, account)) return stay(Stays::kNoNode);
  account_ = account;
  return connection.release();
}

void Placement::use(int connection) {
  connection_ = connection;
}

bool Placement::send_areas(int connection, NodeId node, const AddressSpace::Account& account) const {
  const ProcessToPlace header{.vdso = getauxval(AT_SYSINFO_EHDR),
                              .break_begin = account.break_begin,
                              .break_end = account.break_end,
                              .processors = processors_,
                              .number = getpid(),
                              .nodes = nodes_,
                              .first_processor = node.value * processors_.of_a_node,
                              .areas = static_cast<uint32_t>(account.areas.size()),
                              .reserved = static_cast<uint32_t>(account.reserved.size()),
                              .ranges = static_cast<uint32_t>(ranges_.size())};
  if (!send_value(connection, header)) return false;
  for (const Area& area : account.areas) {
    const bool has_descriptor = area.file != 0 && !segments::is_segment(area.file);
    if (!send_value(connection, area) ||
        !send_descriptor(connection, has_descriptor ? SharedMappings::descriptor_of(area.file) : -1))
      return false;
  }
  return send_all(connection, account.reserved.data(), account.reserved.size() * sizeof(Range)) &&
         send_all(connection, ranges_.data(), ranges_.size() * sizeof(Range));
}

std::optional<FileDescriptor> Placement::send_rest(int connection, Call& call, uint64_t mask, Stays& why) {
  ThreadBlock& thread = call.thread;
  call.context.uc_mcontext.gregs[REG_RAX] = 0;
  // Held signals stay with the shadow, which sends them when they are not blocked.
  const ThreadToTakeOver going{.thread_pointer = thread.guest_fs,
                               .gs = 0,
                               .clear_tid = thread.clear_tid,
                               .robust_list = thread.robust_list,
                               .mask = mask,
                               .alternate_stack = thread.alternate_stack,
                               .held = {},
                               .processor = thread.processor,
                               .gs_is_guests = false};
  const std::vector<std::byte> context = save_context(call.context);
  const auto bytes = static_cast<uint32_t>(context.size());
  why = Stays::kNoNode;
  ProcessPlaced answer;
  // The node may have answered without reading everything, which makes sending fail.
  const bool is_sent = send_value(connection, going) && send_value(connection, bytes) &&
                       send_all(connection, context.data(), context.size()) && send_pages(connection, account_.areas);
  if (!receive_value(connection, answer)) return std::nullopt;
  if (answer.why != NotPlaced::kNone) {
    why = answer.why == NotPlaced::kVdso     ? Stays::kVdso
          : answer.why == NotPlaced::kMemory ? Stays::kMemory
                                             : Stays::kThread;
    return std::nullopt;
  }
  FileDescriptor signals;
  if (!is_sent || !receive_descriptor(connection, signals) || !signals.is_open()) return std::nullopt;
  FileDescriptor kept(own_descriptors::keep(signals.release()));
  return kept.is_open() ? std::optional(std::move(kept)) : std::nullopt;
}

// What has no file is the other process's from here on (P2), and so is what shmctl() counts of its segments.
void Placement::leave_memory() const {
  for (const Area& area : account_.areas) {
    void* const begin = reinterpret_cast<void*>(area.range.begin);
    const uint64_t bytes = area.range.end - area.range.begin;
    if (area.file == 0) madvise(begin, bytes, MADV_DONTNEED);
    if (segments::is_segment(area.file))
      mmap(begin, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  }
}

void Placement::place(Call& call) {
  const int connection = std::exchange(connection_, -1);
  if (connection < 0) return;
  const uint64_t mask = mask_of(call.context, call.thread);
  Stays why = Stays::kNoNode;
  auto signals = send_rest(connection, call, mask, why);
  if (!signals) {
    stay(why);
    own_descriptors::give_up();
    return;
  }
  counts_->placed.fetch_add(1, std::memory_order_relaxed);
  leave_memory();
  auto* const shadow = new ShadowProcess(connection, signals->release(), call.thread, mask);
  count_return(shadow->serve());
  shadow->take_memory(account_);
  shadow->go_on();
}

std::string Placement::describe() const {
  constexpr std::array<const char*, kReasons> kWhy = {"by turn",
                                                      "sharing more than memory with its parent",
                                                      "with a limit on its address space",
                                                      "since the node did not answer",
                                                      "since the node's vdso is elsewhere",
                                                      "since the node had no room for its memory",
                                                      "since the node could not host it"};
  const auto value = [](const std::atomic<uint32_t>& count) { return count.load(std::memory_order_relaxed); };
  uint32_t stayed = value(counts_->without_nodes);
  for (const auto& count : counts_->stayed) stayed += value(count);
  const uint32_t placed = value(counts_->placed);
  if (stayed + placed == 0) return {};
  std::string text =
      fmt::format("processes: {} forked, {} to other nodes, {} at home", stayed + placed, placed, stayed);
  std::vector<std::string> reasons;
  for (size_t i = 0; i < kReasons; ++i)
    if (const uint32_t count = value(counts_->stayed[i]); count != 0)
      reasons.push_back(fmt::format("{} {}", count, kWhy[i]));
  if (const uint32_t count = value(counts_->without_nodes); count != 0)
    reasons.push_back(fmt::format("{} forked by others than the first process", count));
  if (!reasons.empty()) text += fmt::format(" ({})", fmt::join(reasons, ", "));
  text += fmt::format("; {} came home", value(counts_->came_home));
  reasons.clear();
  for (size_t i = 0; i < kCallNumbers; ++i)
    if (const uint32_t count = value(counts_->came_home_for[i]); count != 0)
      reasons.push_back(fmt::format("{} for {}", count, name_of_call(static_cast<long>(i))));
  if (!reasons.empty()) text += fmt::format(" ({})", fmt::join(reasons, ", "));
  return text;
}

}  // namespace multigrain::guest
