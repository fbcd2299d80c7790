// This measures the floors, without the runtime: the same system calls and copies that the runtime
// makes, and nothing else.

#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/config.h"
#include "base/futex.h"
#include "commands.h"
#include "memory/access_rights.h"
#include "memory/diff.h"
#include "memory/region.h"
#include "roles.h"

namespace multigrain::bench {
namespace {

const Region* g_region;
AccessRights* g_rights;
bool g_resident;

void on_fault(int signal, siginfo_t* info, void* context) {
  const auto fault = g_rights->decode(signal, info, context);
  if (!fault) std::abort();
  if (g_resident || fault->is_write)
    g_rights->grant_write(fault->page, 1);
  else
    g_rights->grant_read(fault->page, 1);
}

void run_on(unsigned core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core % std::thread::hardware_concurrency(), &set);
  sched_setaffinity(0, sizeof set, &set);
}

template <typename Work>
double time_ns(Work&& work) {
  const uint64_t start = ticks();
  work();
  return static_cast<double>(ticks() - start) * 1000.0 / ticks_per_us();
}

// Lets two threads on two cores pass a word to each other, and returns the times of the round trips. `wait` waits for
// the other thread's value.
template <typename Wait, typename Notify>
std::vector<double> round_trips(unsigned count, Wait&& wait, Notify&& notify) {
  struct alignas(64) Line {
    std::atomic<uint32_t> word{0};
  };
  static Line there, back;
  there.word = back.word = 0;
  std::thread partner([&] {
    run_on(1);
    for (uint32_t i = 1; i <= count; ++i) {
      wait(there.word, i);
      back.word.store(i);
      notify(back.word);
    }
  });
  std::vector<double> samples;
  for (uint32_t i = 1; i <= count; ++i) {
    samples.push_back(time_ns([&] {
      there.word.store(i);
      notify(there.word);
      wait(back.word, i);
    }));
  }
  partner.join();
  return samples;
}

}  // namespace

std::vector<Series> measure_floors(AccessMechanism access, size_t page_size, const Effort& effort) {
  run_on(0);
  auto region = Region::create(uint64_t{1} << 30, page_size);
  auto rights = region ? choose(access, *region) : Result<std::unique_ptr<AccessRights>>(fail("no region"));
  if (!rights) {
    std::fprintf(stderr, "mgbench: %s\n", (region ? rights.error() : region.error()).message.c_str());
    std::exit(1);
  }
  g_region = &*region;
  g_rights = rights->get();
  struct sigaction action = {};
  action.sa_sigaction = &on_fault;
  action.sa_flags = SA_SIGINFO;
  sigfillset(&action.sa_mask);
  sigaction(g_rights->fault_signal(), &action, nullptr);

  Series read{"fault, read", {}}, upgrade{"fault, upgrade", {}}, resident{"fault, resident", {}},
      revoke{"rights, revoke", {}}, copy{"copy", {}}, other{"copy, other core's", {}};
  for (unsigned p = 0; p < effort.pages; ++p) region->alias(PageId(p))[0] = std::byte{1};
  for (unsigned round = 0; round < effort.rounds; ++round) {
    for (unsigned p = 0; p < effort.pages; ++p) {
      volatile std::byte* const page = region->view(PageId(p));
      g_resident = false;
      read.samples.push_back(time_ns([&] { static_cast<void>(page[0]); }));
      upgrade.samples.push_back(time_ns([&] { page[0] = std::byte{2}; }));
      g_resident = true;
      if (g_rights->name() == "mprotect")
        mprotect(region->view(PageId(p)), page_size, PROT_NONE);
      else
        madvise(region->view(PageId(p)), page_size, MADV_DONTNEED);
      resident.samples.push_back(time_ns([&] { page[0] = std::byte{2}; }));
      revoke.samples.push_back(time_ns([&] { g_rights->revoke(PageId(p), 1); }));
    }
  }

  std::vector<std::byte> mine(page_size);
  for (unsigned round = 0; round < effort.rounds; ++round) {
    for (unsigned p = 0; p < effort.pages; ++p) {
      std::fill_n(region->alias(PageId(p)), page_size, std::byte(round));
      copy.samples.push_back(time_ns([&] { copy_page(mine.data(), region->alias(PageId(p)), page_size); }));
    }
    std::thread writer([&] {
      run_on(1);
      for (unsigned p = 0; p < effort.pages; ++p) std::fill_n(region->alias(PageId(p)), page_size, std::byte(round));
    });
    writer.join();
    for (unsigned p = 0; p < effort.pages; ++p)
      other.samples.push_back(time_ns([&] { copy_page(mine.data(), region->alias(PageId(p)), page_size); }));
  }

  const unsigned trips = effort.pages * effort.rounds;
  const Series line{"line round trip", round_trips(
                                           trips,
                                           [](std::atomic<uint32_t>& word, uint32_t value) {
                                             while (word.load(std::memory_order_acquire) != value) cpu_relax();
                                           },
                                           [](std::atomic<uint32_t>&) {})};
  const Series wake{"wake-up round trip",
                    round_trips(
                        trips,
                        [](std::atomic<uint32_t>& word, uint32_t value) {
                          while (word.load() != value) futex_wait(word, value - 1, FutexScope::kProcess);
                        },
                        [](std::atomic<uint32_t>& word) { futex_wake(word, FutexScope::kProcess); })};
  Series half{"wake-up", wake.samples};
  for (double& sample : half.samples) sample /= 2;
  return {read, upgrade, resident, revoke, copy, other, line, wake, half};
}

Command add_floors(CLI::App& app) {
  struct Options {
    std::string access = "auto", page_size = "4096";
    Effort effort;
  };
  auto options = std::make_shared<Options>();
  CLI::App* const command = app.add_subcommand("floors", "the floors alone, as lines for mgbench itself")->group("");
  add_mgrun_option(*command, "MULTIGRAIN_ACCESS", options->access);
  add_mgrun_option(*command, "MULTIGRAIN_PAGE_SIZE", options->page_size);
  command->add_option("--pages", options->effort.pages, "pages touched in a round")->check(CLI::Range(8, 4096));
  command->add_option("--rounds", options->effort.rounds, "rounds")->check(CLI::Range(1, 10000));
  return {
      command, [options] {
        // Both are valid: the command line was checked.
        print_series(measure_floors(*parse_access(options->access), *parse_size(options->page_size), options->effort));
        return 0;
      }};
}

}  // namespace multigrain::bench
