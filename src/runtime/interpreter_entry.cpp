#include "runtime/interpreter_entry.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/futex.h"
#include "multigrain/checkpoint.h"
#include "runtime/interpose/threads.h"
#include "runtime/interpreter.h"
#include "runtime/signal_mask.h"

namespace multigrain::interpreter {
namespace {

constexpr const char* kWorker = "from multigrain.shared import worker; worker.main()";

// Whether there has been work for this node, and whether the interpreter takes it: then g_work says how.
constinit std::atomic<uint32_t> g_is_wanted{0};
constinit std::atomic<uint32_t> g_is_ready{0};
constinit std::atomic<mg_function> g_work{nullptr};

void set_and_wake(std::atomic<uint32_t>& word) {
  word.store(1, std::memory_order_release);
  futex_wake(word, FutexScope::kProcess);
}

void wait_for(std::atomic<uint32_t>& word) {
  while (word.load(std::memory_order_acquire) == 0) futex_wait(word, 0, FutexScope::kProcess);
}

void* end_main(void* node) {
  pthread_setname_np(pthread_self(), "mg end");
  static_cast<Node*>(node)->serve_until_the_end();
}

}  // namespace

int run_worker(Node& node, std::span<char* const> arguments, char** environment, MainFunction interpreter_main) {
  {
    const AsynchronousSignalsBlocked blocked;
    pthread_t thread;
    if (const int failed = create_real_thread(&thread, nullptr, &end_main, &node); failed != 0)
      die(1, "cannot start the thread that waits for the end of the run; errno", static_cast<uint64_t>(failed));
    pthread_detach(thread);
  }
  wait_for(g_is_wanted);
  // A worker does not ask for input when it has nothing to do.
  unsetenv("PYTHONINSPECT");
  std::vector<std::string> words = worker_arguments(arguments, kWorker);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return interpreter_main(static_cast<int>(words.size()), pointers.data(), environment);
}

}  // namespace multigrain::interpreter

extern "C" {

void __multigrain_interpreter_work(void* argument) {
  using namespace multigrain::interpreter;
  set_and_wake(g_is_wanted);
  if (argument == nullptr) return;
  wait_for(g_is_ready);
  g_work.load(std::memory_order_relaxed)(argument);
}

void __multigrain_set_interpreter_work(mg_function work) {
  using namespace multigrain::interpreter;
  g_work.store(work, std::memory_order_relaxed);
  set_and_wake(g_is_ready);
}

int __multigrain_writes_checkpoints(void) {
  const multigrain::Node* const node = multigrain::Node::get();
  return node != nullptr && !node->config().checkpoint.empty() ? 1 : 0;
}

void __multigrain_interpreter_checkpoint(void* root) {
  mg_checkpoint(root);
}

const char* __multigrain_version(void) {
  return MULTIGRAIN_VERSION;
}
}
