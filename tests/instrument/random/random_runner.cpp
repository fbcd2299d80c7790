// Runs programs of random_programs.py that were built twice, plainly and with checks, and compares what they leave in
// memory. Those with checks work on lines that an adversary takes away (fake_line_protocol.h).
//
//   random_runner --plain plain.so --checked checked.so [--rounds N] [--line-shift N] [--seed N] [--takes-stores]
//                 [--messages]
//
// Prints "NAME wrong: ..." for each program that left something else, and exits with 1 then. A program that crashes or
// does not end in time ends the runner, too: the last line names the program, and the exit status is 3 or 4.
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "../fake_line_protocol.h"
#include "../kernels.h"

namespace {

using multigrain::testing::FakeLineProtocol;

constexpr size_t kBytes = 32 * 1024;  // more than struct data of random_programs.py has
constexpr size_t kThreads = 2;

// The handler of signals finds here what each thread runs.
std::array<std::atomic<const char*>, kThreads + 1> running{};

void die(int signal) {
  const auto say = [](const char* text) { (void)!write(STDOUT_FILENO, text, strlen(text)); };
  for (const auto& name : running) {
    if (name.load() == nullptr) continue;
    say(name.load());
    say(signal == SIGALRM ? " does not end\n" : " crashed\n");
  }
  _exit(signal == SIGALRM ? 4 : 3);
}

std::vector<kernel> programs_of(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fmt::print(stderr, "random_runner: {}\n", dlerror());
    std::exit(2);
  }
  std::vector<kernel> all;
  for (auto* at = static_cast<const kernel*>(dlsym(library, "c_kernels")); at->name != nullptr; ++at)
    all.push_back(*at);
  return all;
}

using Memory = std::vector<unsigned char>;

Memory input(uint64_t seed) {
  Memory bytes(kBytes);
  std::mt19937_64 random(seed);
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Compares random programs with and without checks");
  std::string plain_path, checked_path;
  size_t rounds = 2;
  unsigned line_shift = 6, limit = 300;
  uint64_t seed = 1;
  multigrain::testing::FakeOptions options;
  app.add_option("--plain", plain_path, "the programs as Clang compiles them")->required();
  app.add_option("--checked", checked_path, "the programs with checks")->required();
  app.add_option("--rounds", rounds, "how often each thread runs each program");
  app.add_option("--line-shift", line_shift, "the binary logarithm of the size of a line");
  app.add_option("--seed", seed, "of the adversary and of the programs' memory");
  app.add_option("--limit", limit, "seconds after which the runner gives up");
  app.add_flag("--takes-stores", options.takes_stores, "the protocol makes most stores that it is offered");
  app.add_flag("--messages", options.has_messages, "every poll finds messages");
  CLI11_PARSE(app, argc, argv);

  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM}) std::signal(signal, die);
  alarm(limit);
  const std::vector<kernel> plain = programs_of(plain_path), checked = programs_of(checked_path);
  if (plain.size() != checked.size()) {
    fmt::print(stderr, "random_runner: {} has {} programs, {} has {}\n", plain_path, plain.size(), checked_path,
               checked.size());
    return 2;
  }
  std::vector<Memory> expected;
  for (size_t i = 0; i < plain.size(); ++i) {
    Memory memory = input(seed + i);
    running[kThreads] = plain[i].name;
    plain[i].run(memory.data());
    expected.push_back(std::move(memory));
  }
  running[kThreads] = nullptr;

  FakeLineProtocol protocol(kThreads * kBytes, line_shift, options);
  protocol.unleash(seed);
  std::vector<std::atomic<bool>> wrong(plain.size());
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      protocol.join();
      unsigned char* const memory = protocol.memory() + t * kBytes;
      for (size_t i = 0; i < rounds * checked.size(); ++i) {
        const size_t k = (i + t * checked.size() / 2) % checked.size();
        const Memory start = input(seed + k);
        Memory result(kBytes);
        running[t] = checked[k].name;
        __multigrain_store(memory, kBytes, start.data());
        checked[k].run(memory);
        const bool leaves_hazard = std::ranges::any_of(std::span(__multigrain_hazards, MG_FINE_HAZARDS),
                                                       [](uint64_t word) { return word != 0; });
        __multigrain_load(memory, kBytes, result.data());
        running[t] = nullptr;
        if (leaves_hazard && !wrong[k].exchange(true))
          fmt::print("{} wrong: it returns with a hazard published\n", checked[k].name);
        if (result == expected[k] || wrong[k].exchange(true)) continue;
        size_t at = 0;
        while (result[at] == expected[k][at]) ++at;
        fmt::print("{} wrong: byte {} is {}, not {}\n", checked[k].name, at, result[at], expected[k][at]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  protocol.dismiss();
  std::fflush(stdout);
  for (const auto& one : wrong)
    if (one) return 1;
  return 0;
}
