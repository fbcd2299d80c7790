// A core file of a node must not hold the secret of the job, the key of the gates, and the keys of the pairs.
//
// Two processes agree on a secret, connect over the transports that UCX_TLS says, send each other messages, and one of
// them crashes. The other, this test's own process, knows what to look for in the core file.
#include <gtest/gtest.h>
#include <link.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/hexadecimal.h"
#include "fabric/ucx/gate_token.h"
#include "fabric/ucx/job_secret.h"
#include "ucx_job.h"

namespace multigrain {
namespace {

using testing::MemoryWireup;
using testing::UcxJob;
using testing::WireupTable;

constexpr unsigned kNodes = 2;
constexpr MessageType kType = message_range::kTest;

// Returns why the kernel writes no core file into the working directory; empty if it does.
std::string no_core_files() {
  std::ifstream file("/proc/sys/kernel/core_pattern");
  std::string pattern;
  std::getline(file, pattern);
  if (pattern.empty() || pattern.find_first_of("|/") != std::string::npos)
    return "core files go elsewhere here (/proc/sys/kernel/core_pattern is '" + pattern + "')";
  rlimit limit{};
  getrlimit(RLIMIT_CORE, &limit);
  limit.rlim_cur = limit.rlim_max;
  if (limit.rlim_max != RLIM_INFINITY || setrlimit(RLIMIT_CORE, &limit) != 0) return "core files are limited here";
  return {};
}

// Returns the memory in a core file, without the registers.
std::string memory_in(const std::string& core) {
  std::string memory;
  ElfW(Ehdr) file;
  if (core.size() < sizeof file) return memory;
  std::memcpy(&file, core.data(), sizeof file);
  for (unsigned i = 0; i < file.e_phnum; ++i) {
    ElfW(Phdr) part;
    std::memcpy(&part, core.data() + file.e_phoff + i * sizeof part, sizeof part);
    if (part.p_type == PT_LOAD && part.p_offset < core.size()) memory.append(core, part.p_offset, part.p_filesz);
  }
  return memory;
}

struct Board {
  JobSecret secret;                // node 0 leaves it here for the test
  std::atomic<uint32_t> ready[2];  // nodes that have sent and received
  char stack[size_t{1} << 16];     // what functions that have returned have left on node 1's stack
};

// The key of a pair may still be in a register, or where a function put that register on the stack; that cannot be
// helped. Only functions that clean up behind them use the secret itself, so the test looks for it there, too.
[[gnu::noinline]] void take_away_what_is_left_on_the_stack(Board& board) {
  // There are no calls here, because finding a function puts the vector registers on the stack.
  volatile char dead[sizeof board.stack];
  asm volatile("" : "=m"(dead));
  for (size_t i = 0; i < sizeof dead; ++i) {
    board.stack[i] = dead[i];
    dead[i] = 0;
  }
}

// Runs a node, which agrees on a secret, connects, and exchanges messages of several sizes with the other one. Node 1
// then ends in `folder`.
int run_node(unsigned self, const WireupTable& table, UcxJob& job, Board& board, const std::filesystem::path& folder) {
  MemoryWireup wireup(table, self);
  auto secret = agree_on_secret(wireup);
  if (!secret) return 2;
  if (self == 0) board.secret = ***secret;
  job.options().secret = std::move(*secret);
  auto fabric = job.join(self);
  job.options().secret.reset();
  static std::atomic<unsigned> arrived{0};
  fabric->set_handler(kType, [](void*, const Message&) { arrived.fetch_add(1); }, nullptr);
  board.ready[self].fetch_add(1);
  const auto both_at = [&](uint32_t phase) {
    while (board.ready[0].load() < phase || board.ready[1].load() < phase) fabric->poll();
  };
  both_at(1);
  std::vector<std::byte> payload(16384, std::byte{0x42});
  for (unsigned i = 0; i < 60; ++i) {
    const size_t length = i % 3 == 0 ? 0 : i % 3 == 1 ? 200 : payload.size();
    fabric->send(NodeId(static_cast<uint16_t>(1 - self)), MessageHeader{.type = kType},
                 std::span<const std::byte>(payload).first(length), RemoteSlice{}, SendContext::kOrdinary);
  }
  while (arrived.load() < 60) fabric->poll();
  board.ready[self].fetch_add(1);
  both_at(2);
  // This text is in the core file, so that the search can be seen to find what is there. It has a page of its own,
  // because pages of the heap that UCX has had before may be left out.
  void* const found = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::strcpy(static_cast<char*>(found), "what stands in memory is in the core: 7c1f");
  *static_cast<char*>(found) = 'W';
  if (self == 0) {
    while (true) fabric->poll();
  }
  std::filesystem::current_path(folder);
  take_away_what_is_left_on_the_stack(board);
  __builtin_trap();
}

TEST(UcxSecrets, AreInNoCoreFile) {
  if (const std::string reason = no_core_files(); !reason.empty()) GTEST_SKIP() << reason;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("multigrain-core-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  auto* const board =
      static_cast<Board*>(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  // The search must not find the test's own copy of the secret in place of the node's.
  madvise(static_cast<void*>(board), sizeof(Board), MADV_DONTDUMP);
  const WireupTable table(kNodes);
  UcxJob job(kNodes);
  std::vector<pid_t> children;
  for (unsigned n = 0; n < kNodes; ++n) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      alarm(60);
      _exit(run_node(n, table, job, *board, folder));
    }
    children.push_back(child);
  }
  int status = 0;
  waitpid(children[1], &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGILL) << status;
  kill(children[0], SIGKILL);
  waitpid(children[0], nullptr, 0);

  std::string core;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    core = memory_in(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  std::filesystem::remove_all(folder);
  const auto holds = [&](const void* bytes, size_t length) {
    return memmem(core.data(), core.size(), bytes, length) != nullptr;
  };
  constexpr std::string_view kFound = "What stands in memory is in the core: 7c1f";
  ASSERT_TRUE(holds(kFound.data(), kFound.size())) << "no core file, or not a whole one: " << core.size() << " bytes";

  EXPECT_NE(board->secret, JobSecret{});
  for (unsigned from = 0; from < kNodes; ++from) {
    const uint64_t pair = ucx::pair_key(board->secret, from, 1 - from);
    EXPECT_FALSE(holds(&pair, sizeof pair)) << "the key of the pair from node " << from;
  }
  core.append(board->stack, sizeof board->stack);
  // Half of it is as bad.
  for (const size_t half : {0, 16}) {
    EXPECT_FALSE(holds(board->secret.data() + half, 16)) << "the secret";
    const std::string text = to_hexadecimal(std::span<const std::byte>(board->secret).subspan(half, 16));
    EXPECT_FALSE(holds(text.data(), text.size())) << "the secret, in hexadecimal";
  }
  const gate::Key key(board->secret);
  EXPECT_FALSE(holds(&key, 16)) << "the key of the gates";
  munmap(static_cast<void*>(board), sizeof(Board));
}

}  // namespace
}  // namespace multigrain
