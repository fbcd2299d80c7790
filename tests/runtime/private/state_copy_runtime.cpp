#include "state_copy_runtime.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/spin_lock.h"
#include "fabric/wait.h"
#include "runtime/private/private_heap.h"
#include "runtime/private/state_copy.h"
#include "runtime/start.h"

namespace multigrain {
namespace {

constexpr MessageType kRun = message_range::kTest;
constexpr MessageType kResult = message_range::kTest + 1;

// This sends messages over a SEQPACKET socket whose other end the other node has. It has no remote memory.
class SocketFabric final : public Fabric {
 public:
  SocketFabric(NodeId self, int fd) : self_(self), fd_(fd) {}

  [[nodiscard]] NodeId self() const override { return self_; }
  [[nodiscard]] unsigned nodes() const override { return 2; }
  void put(NodeId, SegmentId, uint64_t, std::span<const std::byte>) override { no_memory(); }
  void get(NodeId, SegmentId, uint64_t, std::span<std::byte>) override { no_memory(); }
  Completion start_put(NodeId, SegmentId, uint64_t, std::span<const std::byte>) override { no_memory(); }
  Completion start_get(NodeId, SegmentId, uint64_t, std::span<std::byte>) override { no_memory(); }
  bool is_complete(Completion) override { no_memory(); }
  void wait(Completion) override { no_memory(); }
  uint64_t fetch_and_set(NodeId, SegmentId, uint64_t, uint64_t) override { no_memory(); }
  uint64_t fetch_add(NodeId, SegmentId, uint64_t, uint64_t) override { no_memory(); }
  uint64_t compare_and_swap(NodeId, SegmentId, uint64_t, uint64_t, uint64_t) override { no_memory(); }

  void set_handler(MessageType type, MessageHandler handler, void* context) override {
    handlers_[type] = {handler, context};
  }

  using Fabric::send;
  void send(NodeId, const MessageHeader& header, std::span<const std::byte> payload, RemoteSlice, SendContext,
            Nanoseconds) override {
    iovec parts[2] = {{const_cast<MessageHeader*>(&header), sizeof header},
                      {const_cast<std::byte*>(payload.data()), payload.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    MG_CHECK(::sendmsg(fd_, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof header + payload.size()));
  }

  unsigned poll() override {
    if (!lock_.try_lock()) return 0;
    const ssize_t got = ::recv(fd_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got == 0) ::_exit(0);  // the other node has ended
    if (got >= static_cast<ssize_t>(sizeof(MessageHeader))) {
      Message message{.from = NodeId(static_cast<uint16_t>(1 - self_.value)), .header = {}, .payload = {}, .slice = {}};
      std::memcpy(&message.header, buffer_.data(), sizeof message.header);
      message.payload = {buffer_.data() + sizeof message.header, static_cast<size_t>(got) - sizeof message.header};
      const auto [handler, context] = handlers_[message.header.type];
      MG_CHECK(handler != nullptr, message.header.type);
      handler(context, message);
    }
    lock_.unlock();
    return got > 0 ? 1 : 0;
  }

  void begin_polling() override {}
  void end_polling() override {}
  void serve() override {
    pollfd readable{.fd = fd_, .events = POLLIN, .revents = 0};
    ::poll(&readable, 1, -1);
    poll();
  }
  void wake_service() override {}

 private:
  [[noreturn]] static void no_memory() { panic("the socket fabric has no remote memory"); }

  const NodeId self_;
  const int fd_;
  SpinLock lock_;
  std::array<std::pair<MessageHandler, void*>, 256> handlers_{};
  std::array<std::byte, sizeof(MessageHeader) + Fabric::kMaxPayload> buffer_;
};

struct Runtime {
  SocketFabric fabric;
  WaitPolicy policy;
  StateCopy copy;
  EventCount event;
  std::atomic<bool> run{false};
  std::atomic<bool> done{false};
  std::atomic<uint64_t> function{0};
  std::atomic<uint64_t> argument{0};
  std::atomic<long> result{0};
  StateCopyTotals totals;

  Runtime(NodeId self, int fd) : fabric(self, fd), copy(fabric, policy) {
    fabric.set_handler(kRun, on_run, this);
    fabric.set_handler(kResult, on_result, this);
  }
  static void on_run(void* context, const Message& message) {
    auto& self = *static_cast<Runtime*>(context);
    self.function = message.header.word[0];
    self.argument = message.header.word[1];
    self.run = true;
    self.event.notify();
  }
  static void on_result(void* context, const Message& message) {
    auto& self = *static_cast<Runtime*>(context);
    self.result = static_cast<long>(message.header.word[0]);
    self.done = true;
    self.event.notify();
  }
};

Runtime* g_runtime = nullptr;

void* service(void*) {
  const BootHeapScope boot;
  while (true) g_runtime->fabric.serve();
}

}  // namespace

// There is no node behind this runtime.
void stop_node() {}

int run_node(int argc, char** argv, char** envp, MainFunction user_main) {
  const NodeId self(static_cast<uint16_t>(std::atoi(std::getenv("MULTIGRAIN_NODE"))));
  {
    const BootHeapScope boot;
    g_runtime = new Runtime(self, std::atoi(std::getenv("TEST_SOCKET")));
    pthread_t thread;
    MG_CHECK(pthread_create(&thread, nullptr, service, nullptr) == 0);
    if (self != NodeId(0)) settle_c_library();
  }
  if (self == NodeId(0)) return user_main(argc, argv, envp);
  while (true) {
    wait_until(g_runtime->fabric, g_runtime->policy, g_runtime->event, [] { return g_runtime->run.load(); });
    g_runtime->run = false;
    const auto function = reinterpret_cast<long (*)(void*)>(g_runtime->function.load());
    MessageHeader header;
    header.type = kResult;
    header.word[0] = static_cast<uint64_t>(function(reinterpret_cast<void*>(g_runtime->argument.load())));
    g_runtime->fabric.send(NodeId(0), header, SendContext::kOrdinary);
  }
}

}  // namespace multigrain

using multigrain::g_runtime;

long copy_and_run(long (*function)(void*), void* argument) {
  auto& runtime = *g_runtime;
  runtime.totals = runtime.copy.send_state(multigrain::NodeId(1));
  if (runtime.totals.pieces == 0) return -1;
  runtime.done = false;
  multigrain::MessageHeader header;
  header.type = multigrain::kRun;
  header.word = {reinterpret_cast<uint64_t>(function), reinterpret_cast<uint64_t>(argument), 0};
  runtime.fabric.send(multigrain::NodeId(1), header, multigrain::SendContext::kOrdinary);
  multigrain::wait_until(runtime.fabric, runtime.policy, runtime.event, [&] { return runtime.done.load(); });
  return runtime.result;
}

unsigned long last_heap_bytes() {
  return g_runtime->totals.heap_bytes;
}
unsigned long last_global_bytes() {
  return g_runtime->totals.global_bytes;
}
