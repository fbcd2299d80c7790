// Several processors use one page: those of a node fault on it at once; one releases while other processors of its node
// write it; and processors of different nodes write neighbouring bytes of it between the same two barriers.
#include "program.h"

namespace {

constexpr unsigned kPages = 24;
constexpr unsigned kRounds = 12;
constexpr uint64_t kWrites = 3000;

size_t page;
unsigned char* pages;
uint64_t* counters;  // one for each processor, all in one page
uint64_t* ticket;    // guarded by the lock
mg_lock_t lock;
mg_barrier_t barrier;

// All processors read, then write, the same pages in the same order: each page's first faults come together.
void fault_together() {
  const unsigned me = mg_processor();
  const unsigned all = mg_processors();
  for (unsigned round = 0; round < kRounds; ++round) {
    mg_barrier(barrier);
    for (unsigned p = 0; p < kPages; ++p) {
      for (unsigned i = 0; i < all; ++i)
        REQUIRE(pages[p * page + i] == (round == 0 ? 0 : program::pattern(p + i, round - 1)));
    }
    mg_barrier(barrier);
    for (unsigned p = 0; p < kPages; ++p) pages[p * page + me] = program::pattern(p + me, round);
  }
  mg_barrier(barrier);
}

// Each processor counts in a word of its own of one page, and now and then takes a lock, whose release must carry the
// node's writes without losing those that are being made meanwhile.
void write_during_release() {
  const unsigned me = mg_processor();
  for (uint64_t i = 1; i <= kWrites; ++i) {
    __atomic_store_n(&counters[me], i, __ATOMIC_RELAXED);
    if (i % (100 + 20 * me) == 0) {
      mg_lock(lock);
      ++*ticket;
      mg_unlock(lock);
    }
    if (i % 500 == 0) mg_release();
    REQUIRE(__atomic_load_n(&counters[me], __ATOMIC_RELAXED) == i);
  }
  mg_barrier(barrier);
  uint64_t tickets = 0;
  for (unsigned p = 0; p < mg_processors(); ++p) {
    REQUIRE(counters[p] == kWrites);
    tickets += kWrites / (100 + 20 * p);
  }
  REQUIRE(*ticket == tickets);
  mg_barrier(barrier);
}

void slave(void*) {
  fault_together();
  write_during_release();
}

}  // namespace

int main() {
  page = mg_page_size();
  pages = program::shared<unsigned char>(kPages * page);
  counters = program::shared<uint64_t>(page / sizeof(uint64_t), MG_HOME_NODE, mg_nodes() - 1);
  ticket = counters + mg_processors();
  lock = mg_lock_create();
  barrier = mg_barrier_create(0);
  program::run_on_all(slave);
  return 0;
}
