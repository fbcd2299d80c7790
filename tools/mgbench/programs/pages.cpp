// mgbench runs this program, mgbench-pages, under mgrun to measure page protocols through the public interface.
// Processor 0 measures. The other processors are the home, the writer or the holder of the lock.

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/clock.h"
#include "multigrain/multigrain.h"
#include "references.h"
#include "roles.h"

namespace multigrain::bench {
namespace {

// All processors read this. It is written before they are started.
struct Stage {
  volatile char* pages;
  size_t page_size;
  unsigned page_count, rounds;
  mg_barrier_t barrier;
  mg_lock_t lock;
};
Stage g_stage;

volatile char& first_byte(unsigned page) {
  return g_stage.pages[page * g_stage.page_size];
}

// Makes a load that the compiler cannot leave out. A volatile object that is only named in a
// statement need not be read.
void read_byte(unsigned page) {
  [[maybe_unused]] const char value = first_byte(page);
}

template <typename Work>
double time_ns(Work&& work) {
  const uint64_t start = ticks();
  work();
  return static_cast<double>(ticks() - start) * 1000.0 / ticks_per_us();
}

void set_stage(const Effort& effort, unsigned home) {
  g_stage.page_size = mg_page_size();
  g_stage.page_count = effort.pages;
  g_stage.rounds = effort.rounds;
  g_stage.barrier = mg_barrier_create(0);
  g_stage.lock = mg_lock_create();
  mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
  options.home = MG_HOME_NODE;
  options.node = home;
  g_stage.pages = static_cast<volatile char*>(mg_alloc(effort.pages * g_stage.page_size, &options));
  if (g_stage.pages == nullptr) {
    std::fprintf(stderr, "mgbench: %s\n", mg_error());
    std::exit(1);
  }
}

// In the first round pages are untouched and windows are not mapped, so it does not show what a running program sees.
constexpr unsigned kWarmUp = 1;

void start_others(mg_function function) {
  for (unsigned p = 1; p < mg_processors(); ++p) {
    if (mg_spawn(p, function, nullptr) != 0) {
      std::fprintf(stderr, "mgbench: %s\n", mg_error());
      std::exit(1);
    }
  }
}

// --- Page faults, upgrades and releases of a page whose home is node 1

void write_all(char value) {
  for (unsigned p = 0; p < g_stage.page_count; ++p)
    for (size_t i = 0; i < g_stage.page_size; i += 64) (&first_byte(p))[i] = value;
}

// Fills the pages and releases them, so that processor 0 has no copies, and the home has no right either. Then it waits
// in a barrier (polling or asleep, as MULTIGRAIN_SPIN says) while processor 0 measures.
void home_that_waits(void*) {
  for (unsigned round = 0; round < g_stage.rounds + kWarmUp; ++round) {
    for (int part = 0; part < 2; ++part) {
      write_all(static_cast<char>(round));
      mg_barrier(g_stage.barrier);
      mg_barrier(g_stage.barrier);
    }
  }
}

// This is longer than a processor polls before it blocks.
constexpr useconds_t kHomeIsAsleep = 2000;

std::vector<Series> measure_faults(const Effort& effort, const char* suffix) {
  set_stage(effort, 1);
  start_others(&home_that_waits);
  Series read{"page fault, read" + std::string(suffix), {}}, write{"page fault, write" + std::string(suffix), {}},
      upgrade{"upgrade fault" + std::string(suffix), {}}, grant{"single-writer transition" + std::string(suffix), {}},
      resident{"local fault on a resident page", {}};
  for (unsigned round = 0; round < effort.rounds + kWarmUp; ++round) {
    mg_barrier(g_stage.barrier);
    if (*suffix != '\0') usleep(kHomeIsAsleep);
    for (unsigned p = 0; p < effort.pages; ++p) {
      const double t = time_ns([p] { read_byte(p); });
      const double u = time_ns([p] { first_byte(p) = 1; });
      const double r = time_ns([] { mg_release(); });
      // The kernel forgets the page-table entry, as it does when memory is short; the node still has the page.
      void* const address = const_cast<char*>(&first_byte(p));
      madvise(address, g_stage.page_size, MADV_DONTNEED);
      const double l = time_ns([p] { first_byte(p) = 2; });
      if (round < kWarmUp) continue;
      read.samples.push_back(t);
      upgrade.samples.push_back(u);
      grant.samples.push_back(r);
      resident.samples.push_back(l);
    }
    mg_barrier(g_stage.barrier);
    mg_barrier(g_stage.barrier);
    if (*suffix != '\0') usleep(kHomeIsAsleep);
    for (unsigned p = 0; p < effort.pages; ++p) {
      const double t = time_ns([p] { first_byte(p) = 1; });
      if (round >= kWarmUp) write.samples.push_back(t);
    }
    mg_barrier(g_stage.barrier);
  }
  mg_join_all();
  std::vector<Series> all{read, write, upgrade, grant};
  if (*suffix == '\0') all.push_back(resident);
  return all;
}

// --- The same read fault while the home's only processor computes and never waits

void home_that_computes(void*) {
  for (unsigned round = 0; round < g_stage.rounds + kWarmUp; ++round) {
    write_all(static_cast<char>(round));
    mg_barrier(g_stage.barrier);
    // The home computes long enough for processor 0 to take all its faults, even if each costs a wake-up.
    const uint64_t end = mg_time_ns() + uint64_t{g_stage.page_count} * 60'000;
    volatile double sum = 0;
    while (mg_time_ns() < end)
      for (int i = 0; i < 1000; ++i) sum = sum + i;
    mg_barrier(g_stage.barrier);
  }
}

std::vector<Series> measure_busy(const Effort& effort) {
  set_stage(effort, 1);
  start_others(&home_that_computes);
  Series read{"page fault, read, home computes", {}};
  for (unsigned round = 0; round < effort.rounds + kWarmUp; ++round) {
    mg_barrier(g_stage.barrier);
    for (unsigned p = 0; p < effort.pages; ++p) {
      const double t = time_ns([p] { read_byte(p); });
      if (round >= kWarmUp) read.samples.push_back(t);
    }
    mg_barrier(g_stage.barrier);
  }
  mg_join_all();
  return {read};
}

// --- References to a page of node 1's that is used where it is, under placement

// Writes the pages, so that their lines are in this node's cache.
void home_that_writes(void*) {
  for (unsigned round = 0; round < g_stage.rounds + kWarmUp; ++round) {
    write_all(1);
    mg_barrier(g_stage.barrier);
    mg_barrier(g_stage.barrier);
  }
}

std::vector<Series> measure_global(const Effort& effort, const References& references, const std::string& how) {
  if (references.read == nullptr) {
    std::fprintf(stderr, "mgbench: this build has no mgcc, and so no references by checks\n");
    std::exit(2);
  }
  set_stage(effort, 1);
  start_others(&home_that_writes);
  Series read{"reference to global memory" + how + ", read", {}},
      atomic{"reference to global memory" + how + ", atomic", {}};
  for (unsigned round = 0; round < effort.rounds + kWarmUp; ++round) {
    mg_barrier(g_stage.barrier);
    for (unsigned p = 0; p < effort.pages; ++p) {
      const bool is_read = p % 2 == 0;
      const double t = (is_read ? references.read : references.exchange)(&first_byte(p), g_stage.page_size);
      if (t < 0) {
        std::fprintf(stderr, "mgbench: a page in global memory does not hold what its home has written\n");
        std::exit(1);
      }
      if (round >= kWarmUp) (is_read ? read : atomic).samples.push_back(t);
    }
    mg_barrier(g_stage.barrier);
  }
  mg_join_all();
  return {read, atomic};
}

// --- A page whose single writer is node 2, and whose home is node 1

void single_writer(void*) {
  for (unsigned round = 0; round < 2 * (g_stage.rounds + kWarmUp); ++round) {
    if (mg_processor() == 2) {
      write_all(static_cast<char>(round));
      mg_release();  // there are no other writers any more, so the page enters single-writer mode
    }
    mg_barrier(g_stage.barrier);
    mg_barrier(g_stage.barrier);
    // This takes processor 0's copies away, so that node 2 is the only writer again.
    if (mg_processor() == 2) {
      write_all(0);
      mg_release();
    }
    mg_barrier(g_stage.barrier);
  }
}

std::vector<Series> measure_single_writer(const Effort& effort) {
  set_stage(effort, 1);
  start_others(&single_writer);
  Series read{"page fault, single-writer, read", {}}, write{"page fault, single-writer, write", {}};
  for (unsigned round = 0; round < 2 * (effort.rounds + kWarmUp); ++round) {
    mg_barrier(g_stage.barrier);
    for (unsigned p = 0; p < effort.pages; ++p) {
      const bool writes = round % 2 == 1;
      const double t = writes ? time_ns([p] { first_byte(p) = 3; }) : time_ns([p] { read_byte(p); });
      if (round >= 2 * kWarmUp) (writes ? write : read).samples.push_back(t);
    }
    mg_barrier(g_stage.barrier);
    mg_barrier(g_stage.barrier);
  }
  mg_join_all();
  return {read, write};
}

// --- Release of a page that all nodes have written and none has released, and whose home is node 1

// Processor 0 takes the lock before the barrier and holds it until it has measured. The other processors write
// after the barrier and then wait for the lock. To wait is no release, and they answer messages meanwhile, as a
// waiting processor does.
constexpr useconds_t kAllHaveWritten = 500;

void write_own_word(unsigned page, unsigned round) {
  (&first_byte(page))[8 * mg_processor()] = static_cast<char>(round);
}

void writer_of_own_word(void*) {
  for (unsigned round = 0; round < g_stage.rounds + kWarmUp; ++round) {
    for (unsigned p = 0; p < g_stage.page_count; ++p) {
      mg_barrier(g_stage.barrier);
      write_own_word(p, round);
      mg_lock(g_stage.lock);
      mg_unlock(g_stage.lock);
      mg_barrier(g_stage.barrier);
    }
  }
}

std::vector<Series> measure_release(const Effort& effort) {
  const Effort fewer{.pages = effort.pages / 8 + 1, .rounds = effort.rounds / 4 + 1};
  set_stage(fewer, 1);
  start_others(&writer_of_own_word);
  Series release{"release, " + std::to_string(mg_nodes()) + " writers", {}};
  for (unsigned round = 0; round < fewer.rounds + kWarmUp; ++round) {
    for (unsigned p = 0; p < fewer.pages; ++p) {
      mg_lock(g_stage.lock);
      mg_barrier(g_stage.barrier);
      write_own_word(p, round + 1);
      usleep(kAllHaveWritten);
      const double t = time_ns([] { mg_release(); });
      mg_unlock(g_stage.lock);
      mg_barrier(g_stage.barrier);
      if (round >= kWarmUp) release.samples.push_back(t);
    }
  }
  mg_join_all();
  return {release};
}

// --- Locks

// Takes the lock and holds it for a while, so that the other node requests it meanwhile. Returns the time that it
// took to take the lock.
double use_lock() {
  constexpr uint64_t kHeldNs = 3000;
  const double t = time_ns([] { mg_lock(g_stage.lock); });
  const uint64_t until = mg_time_ns() + kHeldNs;
  while (mg_time_ns() < until) {
  }
  mg_unlock(g_stage.lock);
  return t;
}

void lock_holder(void*) {
  for (unsigned i = 0; i < g_stage.rounds * g_stage.page_count; ++i) {
    mg_lock(g_stage.lock);
    mg_unlock(g_stage.lock);
    mg_barrier(g_stage.barrier);
    mg_barrier(g_stage.barrier);
  }
  mg_barrier(g_stage.barrier);
  for (unsigned i = 0; i < g_stage.rounds * g_stage.page_count; ++i) use_lock();
}

std::vector<Series> measure_locks(const Effort& effort) {
  set_stage(effort, 1);
  Series local{"lock and unlock, held here last", {}};
  for (unsigned i = 0; i < effort.rounds * effort.pages; ++i)
    local.samples.push_back(time_ns([] {
                              for (int k = 0; k < 10; ++k) {
                                mg_lock(g_stage.lock);
                                mg_unlock(g_stage.lock);
                              }
                            }) /
                            10);
  start_others(&lock_holder);
  Series remote{"lock, free on another node", {}}, contended{"lock, held by another node for 3 us", {}};
  for (unsigned i = 0; i < effort.rounds * effort.pages; ++i) {
    mg_barrier(g_stage.barrier);
    remote.samples.push_back(time_ns([] { mg_lock(g_stage.lock); }));
    mg_unlock(g_stage.lock);
    mg_barrier(g_stage.barrier);
  }
  mg_barrier(g_stage.barrier);
  for (unsigned i = 0; i < effort.rounds * effort.pages; ++i) contended.samples.push_back(use_lock());
  mg_join_all();
  return {local, remote, contended};
}

// --- Barriers

void barrier_partner(void*) {
  for (unsigned i = 0; i < g_stage.rounds * g_stage.page_count; ++i) mg_barrier(g_stage.barrier);
}

std::vector<Series> measure_barrier(const Effort& effort) {
  set_stage(effort, 0);
  start_others(&barrier_partner);
  Series barrier{"barrier, " + std::to_string(mg_nodes()) + " nodes", {}};
  for (unsigned i = 0; i < effort.rounds * effort.pages; ++i)
    barrier.samples.push_back(time_ns([] { mg_barrier(g_stage.barrier); }));
  mg_join_all();
  return {barrier};
}

}  // namespace

// --- A barrier before which the processors of node 0 have written pages whose home is node 1. Processor 0 is the
// last of its node to arrive, so it does the work for the pages. Node 1 has no such work and waits, so node 0 has
// both cores.

// How often one of node 0's other processors has come to the barrier.
std::atomic<unsigned> g_about_to_wait{0};
constexpr unsigned kPagesOfABarrier = 512;

void write_share(unsigned round) {
  const unsigned c = mg_processors_per_node();
  if (mg_node() != 0) return;
  for (unsigned p = mg_processor() % c; p < g_stage.page_count; p += c) first_byte(p) = static_cast<char>(round);
}

void writer_before_barrier(void*) {
  for (unsigned round = 0; round < g_stage.rounds + kWarmUp; ++round) {
    write_share(round);
    if (mg_node() == 0) g_about_to_wait.fetch_add(1);
    mg_barrier(g_stage.barrier);
    mg_barrier(g_stage.barrier);
  }
}

std::vector<Series> measure_barrier_pages(const Effort& effort, const std::string& suffix) {
  set_stage({.pages = kPagesOfABarrier, .rounds = effort.rounds}, 1);
  start_others(&writer_before_barrier);
  Series barrier{"barrier, 512 pages written, " + suffix, {}};
  for (unsigned round = 0; round < effort.rounds + kWarmUp; ++round) {
    write_share(round);
    while (g_about_to_wait.load() != (round + 1) * (mg_processors_per_node() - 1)) {
    }
    const double t = time_ns([] { mg_barrier(g_stage.barrier); });
    if (round >= kWarmUp) barrier.samples.push_back(t);
    mg_barrier(g_stage.barrier);
  }
  mg_join_all();
  return {barrier};
}

// --- Reading memory of another node in order, as fast as reading ahead allows

void writer_of_the_scan(void*) {
  for (unsigned round = 0; round < g_stage.rounds + kWarmUp; ++round) {
    write_all(static_cast<char>(round + 1));
    mg_barrier(g_stage.barrier);
    mg_barrier(g_stage.barrier);
  }
}

std::vector<Series> measure_scan(const Effort& effort) {
  set_stage({.pages = static_cast<unsigned>(kScanBytes / mg_page_size()), .rounds = effort.rounds}, 1);
  start_others(&writer_of_the_scan);
  Series scan{"64 MiB read ahead", {}};
  for (unsigned round = 0; round < effort.rounds + kWarmUp; ++round) {
    mg_barrier(g_stage.barrier);
    const double t = time_ns([] {
      for (unsigned p = 0; p < g_stage.page_count; ++p) read_byte(p);
    });
    if (round >= kWarmUp) scan.samples.push_back(t);
    mg_barrier(g_stage.barrier);
  }
  mg_join_all();
  return {scan};
}

std::vector<Series> run_role(const std::string& role, const Effort& effort) {
  if (role == "faults") return measure_faults(effort, "");
  if (role == "faults-woken")
    return measure_faults({.pages = effort.pages / 4 + 1, .rounds = effort.rounds / 2 + 1}, ", home asleep");
  if (role == "faults-busy") return measure_busy({.pages = effort.pages, .rounds = effort.rounds / 4 + 1});
  if (role == "single-writer")
    return measure_single_writer({.pages = effort.pages / 4 + 1, .rounds = effort.rounds / 4 + 1});
  if (role == "release") return measure_release(effort);
  if (role == "locks") return measure_locks(effort);
  if (role == "barrier")
    return measure_barrier({.pages = effort.pages, .rounds = mg_nodes() > 2 ? effort.rounds / 4 + 1 : effort.rounds});
  if (role == "barrier-pages") {
    const char* const options = std::getenv("MULTIGRAIN_HLRC");
    const bool cooperative = options != nullptr && std::string_view(options).find("cooperative") != std::string::npos;
    return measure_barrier_pages(effort, mg_processors_per_node() == 1 ? "1 processor"
                                         : cooperative                 ? "2 processors, cooperative"
                                                                       : "2 processors, leader");
  }
  if (role == "global") return measure_global(effort, kPlainReferences, "");
  if (role == "global-checks") return measure_global(effort, kCheckedReferences, " by check");
  const Effort of_sleepers{.pages = effort.pages / 4 + 1, .rounds = effort.rounds / 2 + 1};
  if (role == "global-asleep") return measure_global(of_sleepers, kPlainReferences, ", home asleep");
  if (role == "global-checks-asleep") return measure_global(of_sleepers, kCheckedReferences, " by check, home asleep");
  if (role == "scan") return measure_scan({.pages = 0, .rounds = effort.rounds / 4 + 1});
  std::fprintf(stderr, "mgbench: there is no role '%s'\n", role.c_str());
  std::exit(2);
}

}  // namespace multigrain::bench

// mgbench calls this as mgbench-pages ROLE PAGES ROUNDS, and reads what it prints.
int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "mgbench-pages is a part of mgbench: run that\n");
    return 2;
  }
  const multigrain::bench::Effort effort{.pages = static_cast<unsigned>(std::atoi(argv[2])),
                                         .rounds = static_cast<unsigned>(std::atoi(argv[3]))};
  multigrain::bench::print_series(multigrain::bench::run_role(argv[1], effort));
  return 0;
}
