// Hosts one node of a run of several nodes whose program knows nothing of Multigrain. mgrun --binary starts it; it is
// not for users.
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/guest_environment.h"
#include "base/own_descriptors.h"
#include "base/shell_status.h"
#include "guest/nodes/nodes.h"
#include "guest/nodes/placer.h"
#include "runtime/node.h"

namespace {

constexpr int kCannotStart = 2;

int usage() {
  std::fputs(
      "mghost-node runs a program for mgrun --binary; use that. Usage: mghost-node [--spread-processes] --execute PATH -- NAME [ARGUMENTS...]\n",
      stderr);
  return kCannotStart;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace multigrain;
  const bool spreads = argc > 1 && std::string_view(argv[1]) == "--spread-processes";
  if (spreads) {
    --argc;
    ++argv;
  }
  if (argc < 5 || std::string_view(argv[1]) != "--execute" || std::string_view(argv[3]) != "--") return usage();
  const std::string path = argv[2];
  const std::vector<std::string> words(argv + 4, argv + argc);
  std::vector<std::string> environment = guest::environment_for_guest(environ);
  guest::let_openmp_sleep(environment);
  const uint64_t mask = guest::block_signals();
  const auto refuse = [](const Error& error) {
    std::fprintf(stderr, "multigrain: cannot start: %s\n", error.message.c_str());
    std::_Exit(kCannotStart);
  };
  own_descriptors::divide();
  // It is forked while this process has nothing yet. Which node this is, is not known either.
  std::optional<guest::Placer> placer;
  if (spreads) {
    auto forked = guest::Placer::start();
    if (!forked) refuse(forked.error());
    placer = std::move(*forked);
  }
  cpu_set_t cores;
  sched_getaffinity(0, sizeof cores, &cores);
  std::unique_ptr<guest::Nodes> nodes;
  const Status started = Node::start([&](Node& node) -> Status {
    auto created = guest::Nodes::create(node, cores);
    if (!created) return tl::unexpected(created.error());
    nodes = std::move(*created);
    return {};
  });
  if (!started) refuse(started.error());
  Node& node = *Node::get();
  if (node.config().node != NodeId(0)) {
    if (placer) placer->serve(node.cores());
    if (const Status begun = nodes->begin_away(placer ? placer->name() : 0); !begun) refuse(begun.error());
    // The launcher gives these to every node, but the guest's handlers are at home: a signal that the guest survives must
    // not end this node. A handler could interrupt the guest's threads, so there is none.
    for (const int number : {SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2}) signal(number, SIG_IGN);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, nullptr, sizeof mask);
    node.serve_until_the_end();
  }
  if (placer) placer->dismiss();
  if (spreads)
    if (const Status begun = nodes->place_processes(); !begun) refuse(begun.error());
  const guest::CannotExecute why = nodes->run(path, words, environment, mask);
  std::fprintf(stderr, "mgrun: %s\n", why.sentence.c_str());
  std::_Exit(why.code == ENOENT ? kNotFound : kNotExecutable);
}
