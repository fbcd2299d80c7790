#include "threads/sharing.h"

#include <pthread.h>

#include "runtime/allocation.h"
#include "runtime/interpose/threads.h"
#include "runtime/message_types.h"
#include "threads/memory.h"
#include "threads/posix_objects.h"
#include "threads/posix_threads.h"
#include "threads/program.h"
#include "threads/shared_stack.h"

namespace multigrain::threads {
namespace {

constinit std::atomic<bool> g_is_sharing{false};
constinit std::atomic<SharedState*> g_state{nullptr};

bool is_to_share(const Node& node) {
  return is_program_of_threads() && node.config().nodes > 1;
}

// A child of fork() is a process of one thread, with a copy of all memory, and no node.
void become_child() {
  if (!is_sharing()) return;
  g_is_sharing.store(false, std::memory_order_release);
  serve_threads(nullptr);
  serve_posix_objects_of_child();
  serve_memory_of_child();
}

void serve_program() {
  Node::get()->shared_globals().copy_all_at_fork();
  pthread_atfork(nullptr, nullptr, &become_child);
  serve_memory();
  serve_posix_objects();
  serve_posix_threads();
  g_is_sharing.store(true, std::memory_order_release);
}

}  // namespace

bool is_sharing() {
  return g_is_sharing.load(std::memory_order_acquire);
}

SharedState* shared_state() {
  return g_state.load(std::memory_order_acquire);
}

void* allocate_shared(size_t size) {
  Node& node = *Node::get();
  const auto block = allocate(node, size, 0, node.default_placement(size, Grain::kPage), Contents::kZero, 0);
  return block ? *block : nullptr;
}

// Node 0 sends the state before it starts the first processor of a node, and messages of one node to another arrive in
// their order: so the program runs nowhere without it.
void prepare_sharing(Node& node) {
  if (!is_to_share(node)) return;
  node.fabric().set_handler(
      runtime_message::kThreadsState,
      [](void* context, const Message& message) {
        auto& self = *static_cast<Node*>(context);
        auto* const state = reinterpret_cast<SharedState*>(message.header.word[0]);
        if (message.from != NodeId(0) || !self.region().contains(state))
          panic("a node says where the state of threads is that does not know; node / address:", message.from.value,
                message.header.word[0]);
        g_state.store(state, std::memory_order_release);
      },
      &node);
  if (node.config().node != NodeId(0)) serve_program();
}

Status begin_sharing(Node& node) {
  if (!is_to_share(node)) return {};
  std::string error;
  if (node.processors().share_globals(error) != 0) return fail("{}", error);
  auto* const state = static_cast<SharedState*>(allocate_shared(sizeof(SharedState)));
  if (state == nullptr) return fail("there is no shared memory for the state of the program's threads");
  g_state.store(state, std::memory_order_release);
  MessageHeader header;
  header.type = runtime_message::kThreadsState;
  header.word[0] = reinterpret_cast<uint64_t>(state);
  node.processors().run_threads();
  for (uint16_t n = 1; n < node.config().nodes; ++n) node.fabric().send(NodeId(n), header, SendContext::kOrdinary);
  serve_program();
  if (!use_shared_stack() || !adopt_main_thread())
    return fail("there is no shared memory for the program's first stack");
  return {};
}

}  // namespace multigrain::threads
