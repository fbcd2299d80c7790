#include "runtime/start.h"

#include <cstdio>
#include <cstdlib>

#include "profile/virtual_time.h"
#include "runtime/checkpoints.h"
#include "runtime/external_launch.h"
#include "runtime/interpose/threads.h"
#include "runtime/interpreter.h"
#include "runtime/interpreter_entry.h"
#include "runtime/node.h"
#include "runtime/private/private_heap.h"
#include "runtime/program_stacks.h"
#include "threads/program.h"
#include "threads/sharing.h"

namespace multigrain {
namespace {

// This is registered before main(), so it runs after everything that the program registers.
void at_exit(int status, void*) {
  // In a child that the program forked there is no node: the child's exit is its own affair.
  Node* const node = Node::get();
  if (node == nullptr) return;
  const bool is_complete = node->finish(status);
  if (status != 0) return;
  // The statistics that the user asked for are lost, or --races or --check has found something. The C library goes on with what is
  // left to do at the end, with this status.
  if (const int other = is_complete ? node->status_of_success() : 1; other != 0) std::exit(other);
}

// The static objects of a program of threads have shared memory, so this node is needed until they are gone. This
// constructor runs before the program's, so what it registers runs after what they do.
[[gnu::constructor]] void outlive_static_objects() {
  if (threads::is_program_of_threads()) on_exit(&at_exit, nullptr);
}

}  // namespace

void stop_node() {
  if (Node* const node = Node::get()) node->stop();
}

int run_node(int argc, char** argv, char** envp, MainFunction user_main) {
  // What starts the interpreter is no node.
  if (interpreter::is_preloaded() && !interpreter::is_here()) return user_main(argc, argv, envp);
  if (const Status joined = join_external_launch(argv); !joined) {
    std::fprintf(stderr, "multigrain: cannot start: %s\n", joined.error().message.c_str());
    std::_Exit(2);
  }
  // This comes before the node starts: its processors may be given work, and call exit(), before this thread gets
  // any further.
  if (!threads::is_program_of_threads()) on_exit(&at_exit, nullptr);
  const auto prepare = [](Node& node) -> Status {
    threads::prepare_sharing(node);
    if (node.config().node != NodeId(0)) node.pass_on_signals();
    if (const Status created = Checkpoints::create(node); !created) return created;
    if (Checkpoints::get() != nullptr && threads::is_program_of_threads())
      return fail("there are no checkpoints (--checkpoint, --restart) of programs compiled with -fmultigrain-threads");
    return {};
  };
  if (Status started = Node::start(prepare); !started) {
    // The launcher checked what it could; this is what only the node itself finds out.
    const char* const number = secure_getenv("MULTIGRAIN_NODE");
    std::fprintf(stderr, "multigrain: node %s cannot start: %s\n", number != nullptr ? number : "0",
                 started.error().message.c_str());
    // The process ends by _Exit, because nothing of the program has run, and so nothing of it is to be flushed.
    std::_Exit(2);
  }
  {
    // Processors of this node may have been given work by now. Before they begin, its private heap is overwritten with node
    // 0's, while this thread is still here.
    const BootHeapScope boot;
    forget_launch();
    if (interpreter::is_here()) interpreter::forget_preload();
  }
  Node& node = *Node::get();
  if (node.config().node != NodeId(0) && interpreter::is_here())
    return interpreter::run_worker(node, {argv, static_cast<size_t>(argc)}, envp, user_main);
  if (node.config().node != NodeId(0)) node.serve_until_the_end();
  // mgrun has warned already about the variables of the processes that it starts.
  if (node.config().job_fd < 0 && !node.config().wireup.starts_with("fd:"))
    for (const std::string& sentence : unknown_variables(false))
      std::fprintf(stderr, "multigrain: %s\n", sentence.c_str());
  if (const Status shared = threads::begin_sharing(node); !shared) {
    std::fprintf(stderr, "multigrain: the program was compiled with -fmultigrain-threads, but %s\n",
                 shared.error().message.c_str());
    std::exit(2);
  }
  if (Checkpoints* const checkpoints = Checkpoints::get()) {
    if (const Status begun = checkpoints->begin(); !begun) {
      std::fprintf(stderr, "multigrain: cannot start: %s\n", begun.error().message.c_str());
      std::_Exit(2);
    }
  }
  virtual_time::begin_program();
  if (Checkpoints* const checkpoints = Checkpoints::get(); checkpoints != nullptr && checkpoints->has_program())
    return checkpoints->go_on(0);
  return program_stacks::call_main(user_main, argc, argv, envp);
}

}  // namespace multigrain
