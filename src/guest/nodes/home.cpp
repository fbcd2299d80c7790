#include "guest/nodes/home.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/node_set.h"
#include "guest/calls.h"
#include "guest/entry.h"
#include "guest/host.h"
#include "guest/nodes/deputy.h"
#include "guest/package.h"
#include "guest/signals.h"
#include "profile/this_thread.h"

namespace multigrain::guest {

class Shadow final : public Deputy {
 public:
  Shadow(Home& home, NodeId node, uint16_t slot, ThreadBlock& block, uint64_t mask)
      : Deputy(block, mask), home_(home), node_(node), slot_(slot) {}

  static void* main(void* self);
  static void go_on_at_home(Shadow& shadow);
  // The message handlers call these two.
  void request_came() {
    if (virtual_time::on()) asked_at_.store(virtual_time::stamp(), std::memory_order_relaxed);
    requests_.fetch_add(1, std::memory_order_release);
    syscall(SYS_futex, &requests_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
  void started(long result) {
    start_result_ = result;
    has_started_.store(1, std::memory_order_release);
    changed_.notify();
  }

 private:
  friend class Home;
  [[nodiscard]] std::byte* memory() const { return home_.slots_ + slot_ * slots::kSize; }
  void wait_for_request();
  void poll_for_request();
  // Returns false if the thread has ended.
  bool serve();
  long carry_out(const Request& request, std::span<const std::byte> data, std::vector<std::byte>& answer) override;
  long carry_out_package(std::span<const std::byte> data, std::vector<std::byte>& answer);
  // Makes a call with numbers for arguments. Returns nothing if the call is like any other.
  std::optional<long> call(const Request& request);
  long start_thread(std::span<const std::byte> data);
  long start_process(const Request& request, std::span<const std::byte> data);
  long copy(const Request& request, std::span<const std::byte> data, std::vector<std::byte>& answer);
  void reply(long result, std::span<const std::byte> answer);
  [[nodiscard]] Asker asker() const { return {.node = node_, .slot = slot_}; }
  void send_signal();

  Home& home_;
  const NodeId node_;
  const uint16_t slot_;
  std::atomic<uint32_t> requests_{0};
  uint32_t served_ = 0;
  uint64_t replied_at_ = 0;               // in ticks
  size_t offered_ = 0;                    // how many bytes of the answer are an offer
  std::atomic<Nanoseconds> asked_at_{0};  // in virtual time
  bool calls_often_ = false;
  uint64_t usual_gap_ = 0;  // in ticks: as long as its thread may take for the next request
  std::binary_semaphore begun_{0};
  std::binary_semaphore may_end_{0};  // the starting thread needs it no more
  long start_result_ = 0;
  std::atomic<uint32_t> has_started_{0};
  EventCount changed_;
};

namespace {

constexpr size_t kShadowStack = size_t{512} << 10;

// A thread that has made a call so soon after the one before will make another. Its shadow polls for that as long as
// two wake-ups take, which it saves by that, or as long as the thread has taken for calls before: between two that the
// home makes it may make some by itself (local_files.h).
constexpr double kOftenUs = 100;
constexpr double kPollUs = 20;

}  // namespace

void* Shadow::main(void* self) {
  auto& shadow = *static_cast<Shadow*>(self);
  const Status prepared = prepare_thread(shadow.block_);
  shadow.tid_ = prepared ? gettid() : 0;
  if (prepared) shadow.apply_mask();
  shadow.begun_.release();
  if (!prepared) return nullptr;
  shadow.home_.profiles_.begin_shadow();
  bool goes_on = true;
  while (goes_on) {
    shadow.wait_for_request();
    const virtual_time::WorkFor caller(shadow.asked_at_.load(std::memory_order_relaxed));
    const CategoryScope serving(this_profile(), Category::kSystem);
    goes_on = shadow.serve();
  }
  shadow.home_.profiles_.end();
  if (shadow.takes_over_) {
    go_on_at_home(shadow);
    return nullptr;
  }
  retire_thread();
  destroy_block(&shadow.block_);
  shadow.may_end_.acquire();
  shadow.home_.shadow_ended(shadow);
  return nullptr;
}

// The thread that was a shadow is the guest's from here on, and ends as any of this node's.
void Shadow::go_on_at_home(Shadow& shadow) {
  ThreadBlock& block = shadow.block_;
  ucontext_t& context = copy_context(*reinterpret_cast<const ucontext_t*>(shadow.context_), block);
  shadow.may_end_.acquire();
  shadow.home_.thread_came_home(shadow);
  guest::host().cluster->thread_begins(block, {});
  enter_guest(block, context);
  guest::host().cluster->thread_has_ended(block);
  retire_thread();
  destroy_block(&block);
}

// Handles the node's messages while it waits, so that the request needs no other thread.
void Shadow::poll_for_request() {
  const auto least = static_cast<uint64_t>(kPollUs * ticks_per_us());
  // Where cores are shared, waits are to poll for less time than that, since the core could be the caller's.
  if (home_.policy_.spin_ticks < least) return;
  const uint64_t limit = std::max(least, usual_gap_ + usual_gap_ / 2);
  home_.polling_.fetch_add(1, std::memory_order_relaxed);
  {
    PollingScope polling(home_.fabric_);
    const uint64_t start = ticks();
    while (requests_.load(std::memory_order_acquire) == served_ && (block_.pending_signal == 0 || takes_over_) &&
           ticks() - start < limit && home_.has_core_for_pollers())
      if (home_.fabric_.poll() == 0) cpu_relax();
  }
  home_.polling_.fetch_sub(1, std::memory_order_relaxed);
}

void Shadow::wait_for_request() {
  if (calls_often_) poll_for_request();
  while (requests_.load(std::memory_order_acquire) == served_) {
    if (has_sent_signal() || takes_over_) {
      // The next signal has to wait for the thread's answer, or for this thread to take its place.
      syscall(SYS_futex, &requests_, FUTEX_WAIT_PRIVATE, served_, nullptr, nullptr, 0);
      continue;
    }
    if (block_.pending_signal != 0) send_signal();
    const uint64_t arguments[6] = {reinterpret_cast<uint64_t>(&requests_), FUTEX_WAIT_PRIVATE, served_, 0, 0, 0};
    pass_call(SYS_futex, arguments, block_);
  }
  ++served_;
  const uint64_t gap = ticks() - replied_at_;
  calls_often_ = gap < static_cast<uint64_t>(kOftenUs * ticks_per_us());
  if (calls_often_) usual_gap_ = std::max(gap, usual_gap_ - usual_gap_ / 8);
}

void Shadow::send_signal() {
  const siginfo_t info = take_signal();
  if (info.si_signo == 0) return;
  MessageHeader header;
  header.type = guest_message::kSignal;
  header.small = slot_;
  home_.fabric_.send(node_, header, std::as_bytes(std::span(&info, 1)), {}, SendContext::kOrdinary);
}

bool Shadow::serve() {
  Request request;
  std::memcpy(&request, memory(), sizeof request);
  if (request.kind == RequestKind::kEnd) return false;
  if (request.bytes > slots::kMaxData) panic("a request of a thread that is away is too large, bytes", request.bytes);
  std::vector<std::byte> answer;
  offered_ = 0;
  if (request.kind == RequestKind::kPackage && request.arguments[0] != 0 && home_.files_ != nullptr)
    home_.files_->returned(static_cast<int>(request.number), request.arguments[0],
                           request.arguments[2] != 0 ? std::optional(request.arguments[1]) : std::nullopt, asker());
  const long result = carry_out_in_order(request, {memory() + slots::kRequestData, request.bytes}, answer);
  reply(result, answer);
  return true;
}

void Shadow::reply(long result, std::span<const std::byte> answer) {
  MessageHeader header;
  header.type = guest_message::kReply;
  header.small = slot_;
  header.word[0] = static_cast<uint64_t>(result);
  header.word[1] = offered_;
  header.extra = static_cast<uint32_t>(answer.size());
  if (!answer.empty()) std::memcpy(memory() + slots::kReplyData, answer.data(), answer.size());
  if (block_.pending_signal != 0 && !has_sent_signal() && !takes_over_) {
    const siginfo_t info = take_signal();
    if (info.si_signo != 0) {
      std::memcpy(memory() + slots::kReplySignal, &info, sizeof info);
      header.flags = 1;
    }
  }
  home_.fabric_.send(node_, header, SendContext::kOrdinary);
  replied_at_ = ticks();
}

long Shadow::carry_out(const Request& request, std::span<const std::byte> data, std::vector<std::byte>& answer) {
  switch (request.kind) {
    case RequestKind::kCall:
      if (const auto result = call(request)) return *result;
      break;
    case RequestKind::kPackage:
      return carry_out_package(data, answer);
    case RequestKind::kThread:
      return start_thread(data);
    case RequestKind::kProcess:
      return start_process(request, data);
    case RequestKind::kArea: {
      const AreaAnswer found = home_.host_.answer_area(request.arguments[0]);
      const auto bytes = std::as_bytes(std::span(&found, 1));
      answer.assign(bytes.begin(), bytes.end());
      return 0;
    }
    case RequestKind::kCopy:
      return copy(request, data, answer);
    default:
      break;
  }
  return Deputy::carry_out(request, data, answer);
}

long Shadow::copy(const Request& request, std::span<const std::byte> data, std::vector<std::byte>& answer) {
  const uint64_t address = request.arguments[0];
  const uint64_t bytes = request.arguments[1];
  if (bytes > slots::kMaxData) panic("a copy of a thread that is away is too large, bytes", bytes);
  if (request.arguments[2] != 0) return write_guest(address, data.data(), data.size()) ? 0 : -EFAULT;
  answer.resize(bytes);
  if (read_guest(address, answer.data(), bytes)) return 0;
  answer.clear();
  return -EFAULT;
}

long Shadow::carry_out_package(std::span<const std::byte> data, std::vector<std::byte>& answer) {
  Package package;
  if (!package.take_request(data)) panic("a package of a thread that is away, which is none; bytes", data.size());
  std::vector<std::byte> offer;
  const bool is_hosts = is_about_hosts_descriptor(package.number(), package.arguments());
  const long result = is_hosts                  ? -EBADF
                      : home_.files_ != nullptr ? home_.files_->carry_out(package, block_, asker(), offer)
                                                : package.carry_out(block_);
  const auto given = package.reply(result);
  answer.assign(given.begin(), given.end());
  answer.insert(answer.end(), offer.begin(), offer.end());
  offered_ = offer.size();
  return result;
}

std::optional<long> Shadow::call(const Request& request) {
  if (is_about_hosts_descriptor(request.number, request.arguments)) return -EBADF;
  if (request.number == SYS_exit_group) home_.host_.exit_guest(static_cast<int>(request.arguments[0]));
  const auto& argument = request.arguments;
  AddressSpace& space = host().space;
  switch (request.number) {
    case SYS_madvise:
      return space.discard(argument[0], page_up(argument[1]));
    case SYS_msync:
      return space.sync(argument[0], argument[1], static_cast<int>(argument[2]));
    case SYS_mincore:
      return space.check_mapped(argument[0], argument[1]);
    case SYS_futex: {
      // This is for a mutex with an owner (Nodes::system_owned_futex).
      const timespec deadline{.tv_sec = static_cast<time_t>(argument[4]), .tv_nsec = static_cast<long>(argument[5])};
      const uint64_t as_system[6] = {
          argument[0], argument[1], argument[2], argument[3] != 0 ? reinterpret_cast<uint64_t>(&deadline) : 0, 0, 0};
      return pass_call(SYS_futex, as_system, block_);
    }
    default:
      return std::nullopt;
  }
}

long Shadow::start_thread(std::span<const std::byte> data) {
  ThreadToStart wanted;
  if (data.size() <= sizeof wanted) panic("a thread to start without its context");
  std::memcpy(&wanted, data.data(), sizeof wanted);
  const ucontext_t& context = restore_context(data.subspan(sizeof wanted), context_);
  const ThreadStart start{.context = &context,
                          .stack = wanted.stack,
                          .thread_pointer = wanted.thread_pointer,
                          .parent_tid = wanted.parent_tid,
                          .child_tid = wanted.child_tid,
                          .clear_tid = wanted.clear_tid};
  return home_.start_thread(start, block_, wanted.mask);
}

long Shadow::start_process(const Request& request, std::span<const std::byte> data) {
  ucontext_t& context = restore_context(data, context_);
  block_.guest_fs = request.thread_pointer;
  Call made{.number = request.number, .arguments = {}, .context = context, .thread = block_};
  std::ranges::copy(request.arguments, made.arguments);
  guest::set_mask(context, block_, mask_);
  const pid_t before = getpid();
  const long result = carry_out_of_table(made);
  if (result == 0 && getpid() != before) {
    // This is the child, which goes on where its parent is, in this process.
    context.uc_mcontext.gregs[REG_RAX] = 0;
    block_.tid = 0;
    enter_guest(block_, copy_context(context, block_));
  }
  return result;
}

Home::Home(Fabric& fabric, const WaitPolicy& policy, HomeHost& host, std::byte* slots, unsigned cores,
           ThreadProfiles& profiles)
    : fabric_(fabric), policy_(policy), host_(host), slots_(slots), cores_(cores), profiles_(profiles) {
  for (unsigned slot = slots::kCount; slot-- > 0;) free_slots_.push_back(static_cast<uint16_t>(slot));
  threads_on_[0] = 1;
  fabric.set_handler(guest_message::kRequest, &Home::on_request, this);
  fabric.set_handler(guest_message::kStarted, &Home::on_started, this);
}

Home::~Home() = default;

bool Home::has_core_for_pollers() const {
  const unsigned threads = threads_on_[0].load(std::memory_order_relaxed) + polling_.load(std::memory_order_relaxed);
  return threads <= cores_ + asleep_here_.load(std::memory_order_relaxed);
}

NodeId Home::choose_node() {
  unsigned best = 0;
  for (unsigned node = 1; node < fabric_.nodes(); ++node)
    if (threads_on_[node].load() < threads_on_[best].load()) best = node;
  return NodeId(static_cast<uint16_t>(best));
}

std::optional<uint16_t> Home::take_slot() {
  if (free_slots_.empty()) return std::nullopt;
  const uint16_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

long Home::start_thread(const ThreadStart& start, const ThreadBlock& parent, uint64_t mask) {
  NodeId node;
  std::optional<uint16_t> slot;
  {
    const LockGuard hold(lock_);
    node = choose_node();
    if (node.value != 0) slot = take_slot();
    if (!slot) node = NodeId(0);
    threads_on_[node.value].fetch_add(1);
    threads_.fetch_add(1);
  }
  if (!slot) {
    ThreadStart here = start;
    here.creator = gettid();
    if (virtual_time::on()) here.when = virtual_time::stamp();
    const long result = guest::start_thread(here, parent);
    if (result < 0) thread_ended(0);
    return result;
  }
  const Result<ThreadBlock*> created = create_block();
  if (!created) return -EAGAIN;
  ThreadBlock& block = **created;
  block.actions = parent.actions;
  block.node = node.value;
  auto* const shadow = new Shadow(*this, node, *slot, block, mask);
  shadows_[*slot].store(shadow, std::memory_order_release);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kShadowStack);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread{};
  const int failed = pthread_create(&thread, &attributes, &Shadow::main, shadow);
  pthread_attr_destroy(&attributes);
  if (failed == 0) {
    constexpr int kSetIds = 33;  // SIGSETXID, as in start_thread() of threads.cpp
    parent.actions->restore(kSetIds);
    shadow->begun_.acquire();
  }
  if (failed != 0 || shadow->tid_ == 0) {
    destroy_block(&block);
    shadow_ended(*shadow);
    return -EAGAIN;
  }
  const ThreadToStart wanted{.stack = start.stack,
                             .thread_pointer = start.thread_pointer,
                             .parent_tid = start.parent_tid,
                             .child_tid = start.child_tid,
                             .clear_tid = start.clear_tid,
                             .mask = mask,
                             .tid = shadow->tid_};
  const pid_t tid = shadow->tid_;
  guest::host().masks.inherit(gettid(), tid);
  const std::vector<std::byte> context = save_context(*start.context);
  std::vector<std::byte> payload(sizeof wanted + context.size());
  std::memcpy(payload.data(), &wanted, sizeof wanted);
  std::memcpy(payload.data() + sizeof wanted, context.data(), context.size());
  MessageHeader header;
  header.type = guest_message::kStart;
  header.small = *slot;
  {
    PollingScope polling(fabric_);
    fabric_.send(node, header, payload, {}, SendContext::kOrdinary);
    wait_until(polling, policy_, shadow->changed_,
               [shadow] { return shadow->has_started_.load(std::memory_order_acquire) != 0; });
  }
  const long result = shadow->start_result_;
  shadow->may_end_.release();
  return result < 0 ? result : tid;
}

void Home::release(Shadow& shadow) {
  // The next thread of this slot has no use for the memory of this one's large requests.
  madvise(shadow.memory(), slots::kSize, MADV_REMOVE);
  const LockGuard hold(lock_);
  shadows_[shadow.slot_].store(nullptr, std::memory_order_release);
  free_slots_.push_back(shadow.slot_);
  delete &shadow;
}

void Home::shadow_ended(Shadow& shadow) {
  guest::host().masks.forget(shadow.tid_);
  const unsigned node = shadow.node_.value;
  release(shadow);
  thread_ended(node);
}

void Home::thread_came_home(Shadow& shadow) {
  threads_on_[shadow.node_.value].fetch_sub(1);
  threads_on_[0].fetch_add(1);
  release(shadow);
}

// A process without threads ends, with the status of its first thread.
void Home::thread_ended(unsigned node) {
  threads_on_[node].fetch_sub(1);
  if (threads_.fetch_sub(1) == 1) host_.exit_guest(status_.load());
}

Shadow* Home::shadow_of(const Message& message) {
  Shadow* const shadow =
      message.header.small < slots::kCount ? shadows_[message.header.small].load(std::memory_order_acquire) : nullptr;
  if (shadow == nullptr || shadow->node_ != message.from)
    panic("a message of a thread that is not there, node / slot", message.from.value, message.header.small);
  return shadow;
}

void Home::on_request(void* self, const Message& message) {
  static_cast<Home*>(self)->shadow_of(message)->request_came();
}

void Home::on_started(void* self, const Message& message) {
  static_cast<Home*>(self)->shadow_of(message)->started(static_cast<int64_t>(message.header.word[0]));
}

}  // namespace multigrain::guest
