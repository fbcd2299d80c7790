#include "guest/nodes/away.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/lock_guard.h"
#include "guest/cluster.h"
#include "guest/host.h"
#include "profile/this_thread.h"

namespace multigrain::guest {

Requests::Requests(Fabric& fabric, const WaitPolicy& policy, uint64_t slots)
    : fabric_(fabric), policy_(policy), slots_(slots) {
  if (fabric.self() == kHome) return;
  fabric.set_handler(guest_message::kReply, &Requests::on_reply, this);
  fabric.set_handler(guest_message::kSignal, &Requests::on_signal, this);
}

void Requests::begin(Away& away) {
  away.tid_ = gettid();
  const LockGuard hold(lock_);
  by_slot_[away.slot_] = &away;
}

void Requests::end(Away& away) {
  {
    const LockGuard hold(lock_);
    by_slot_[away.slot_] = nullptr;
  }
  const Request request{.kind = RequestKind::kEnd};
  fabric_.put(kHome, SegmentId::kFrames, slots_ + away.slot_ * slots::kSize, std::as_bytes(std::span(&request, 1)));
  MessageHeader header;
  header.type = guest_message::kRequest;
  header.small = away.slot_;
  fabric_.send(kHome, header, SendContext::kOrdinary);
}

long Requests::ask(ThreadBlock& thread, Request request, std::span<const std::byte> data,
                   std::vector<std::byte>* answer) {
  this_profile().count(Counter::kCallsAtHome);
  Away& away = *thread.away;
  const uint64_t slot = slots_ + away.slot_ * slots::kSize;
  MG_CHECK(data.size() <= slots::kMaxData, data.size());
  request.bytes = static_cast<uint32_t>(data.size());
  fabric_.put(kHome, SegmentId::kFrames, slot, std::as_bytes(std::span(&request, 1)));
  if (!data.empty()) fabric_.put(kHome, SegmentId::kFrames, slot + slots::kRequestData, data);
  away.has_reply_.store(0, std::memory_order_relaxed);
  MessageHeader header;
  header.type = guest_message::kRequest;
  header.small = away.slot_;
  {
    PollingScope polling(fabric_);
    fabric_.send(kHome, header, SendContext::kOrdinary);
    wait_until(polling, policy_, away.changed_,
               [&away] { return away.has_reply_.load(std::memory_order_acquire) != 0; });
  }
  if (away.has_signal_) {
    siginfo_t info;
    fabric_.get(kHome, SegmentId::kFrames, slot + slots::kReplySignal, std::as_writable_bytes(std::span(&info, 1)));
    thread.pending_info = info;
    thread.pending_signal = info.si_signo;
  }
  if (answer != nullptr) {
    answer->resize(away.bytes_);
    if (away.bytes_ != 0) fabric_.get(kHome, SegmentId::kFrames, slot + slots::kReplyData, *answer);
  }
  return away.result_;
}

siginfo_t Requests::take_signal(Away& away) {
  if (!away.has_sent_signal_.load(std::memory_order_acquire)) return {};
  const siginfo_t taken = away.signal_;
  away.has_sent_signal_.store(false, std::memory_order_relaxed);
  return taken;
}

Away* Requests::away_of(const Message& message) {
  if (message.from != kHome || message.header.small >= slots::kCount)
    panic("a message of the guest's home that cannot be from it, node / slot", message.from.value,
          message.header.small);
  return by_slot_[message.header.small];
}

void Requests::on_reply(void* self, const Message& message) {
  auto& requests = *static_cast<Requests*>(self);
  const LockGuard hold(requests.lock_);
  Away* const away = requests.away_of(message);
  if (away == nullptr) panic("a reply to a thread that is not here, slot", message.header.small);
  away->result_ = static_cast<int64_t>(message.header.word[0]);
  away->bytes_ = message.header.extra;
  away->has_signal_ = message.header.flags != 0;
  away->offered_ = static_cast<uint32_t>(message.header.word[1]);
  if (away->offered_ > away->bytes_) panic("an offer that is larger than its reply, bytes", away->offered_);
  if (away->bytes_ > slots::kMaxData) panic("a reply that is too large, bytes", away->bytes_);
  away->has_reply_.store(1, std::memory_order_release);
  away->changed_.notify();
}

// The thread may have ended meanwhile. Then the signal is dropped, and no other thread misses it, since it was
// for this thread.
void Requests::on_signal(void* self, const Message& message) {
  auto& requests = *static_cast<Requests*>(self);
  const LockGuard hold(requests.lock_);
  Away* const away = requests.away_of(message);
  if (message.payload.size() != sizeof(siginfo_t)) panic("a signal of the wrong size, bytes", message.payload.size());
  if (away == nullptr) return;
  if (away->has_sent_signal_.load())
    panic("a signal for a thread that has not taken the one before, slot", message.header.small);
  std::memcpy(&away->signal_, message.payload.data(), sizeof(siginfo_t));
  away->has_sent_signal_.store(true, std::memory_order_release);
  syscall(SYS_tgkill, getpid(), away->tid_, kKick);
}

std::vector<std::byte> thread_to_take_over(const ucontext_t& context, const ThreadBlock& thread) {
  ThreadToTakeOver coming{.thread_pointer = thread.guest_fs,
                          .gs = 0,
                          .clear_tid = thread.clear_tid,
                          .robust_list = thread.robust_list,
                          .mask = mask_of(context, thread),
                          .alternate_stack = thread.alternate_stack,
                          .held = {},
                          .processor = thread.processor,
                          .gs_is_guests = thread.gs_is_guests};
  std::ranges::copy(thread.held, coming.held);
  if (thread.gs_is_guests) asm volatile("rdgsbase %0" : "=r"(coming.gs));
  const std::vector<std::byte> saved = save_context(context);
  std::vector<std::byte> data(sizeof coming + saved.size());
  std::memcpy(data.data(), &coming, sizeof coming);
  std::memcpy(data.data() + sizeof coming, saved.data(), saved.size());
  return data;
}

SystemAction ActionsAtHome::action(int signal) {
  SystemAction before;
  host().cluster->action_at_home(signal, nullptr, &before, thread_);
  return before;
}

long ActionsAtHome::set(int signal, const SystemAction& action) {
  return host().cluster->action_at_home(signal, &action, nullptr, thread_);
}

}  // namespace multigrain::guest
