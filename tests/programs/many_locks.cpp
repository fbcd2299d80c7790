// There are a thousand locks, each for a few words. The sum of all increments must be right.
#include "program.h"

namespace {

constexpr unsigned kLocks = 1000;
constexpr unsigned kIncrements = 2000;

struct Cell {
  mg_lock_t lock;
  uint64_t count;
  uint64_t twice;
};
Cell* cells;

void slave(void*) {
  uint64_t random = mg_processor() * 2654435761u + 12345;
  for (unsigned i = 0; i < kIncrements / mg_processors(); ++i) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    Cell& cell = cells[(random >> 33) % kLocks];
    mg_lock(cell.lock);
    REQUIRE(cell.twice == 2 * cell.count);
    ++cell.count;
    cell.twice += 2;
    mg_unlock(cell.lock);
  }
}

}  // namespace

int main() {
  cells = program::shared<Cell>(kLocks);
  for (unsigned i = 0; i < kLocks; ++i) {
    cells[i].lock = mg_lock_create();
    REQUIRE(cells[i].lock != 0);
  }
  program::run_on_all(slave);
  uint64_t sum = 0;
  for (unsigned i = 0; i < kLocks; ++i) {
    sum += cells[i].count;
    REQUIRE(mg_trylock(cells[i].lock) == 1);
    mg_unlock(cells[i].lock);
    mg_lock_destroy(cells[i].lock);
  }
  REQUIRE(sum == uint64_t{kIncrements / mg_processors()} * mg_processors());
  return 0;
}
