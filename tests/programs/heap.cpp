// This tests the shared heap: zeroed blocks that do not overlap, aligned as asked, at home where asked, allocated on
// one node and freed on another.
#include <cstring>
#include <vector>

#include "program.h"

namespace {

constexpr unsigned kBlocks = 40;

struct Block {
  unsigned char* data;
  size_t size;
};
Block* blocks;  // kBlocks for each processor
mg_barrier_t barrier;

void check_and_free(Block& block, unsigned owner) {
  for (size_t i = 0; i < block.size; ++i) REQUIRE(block.data[i] == program::pattern(i, owner));
  mg_free(block.data);
}

void slave(void*) {
  const unsigned me = mg_processor();
  const unsigned all = mg_processors();
  for (unsigned round = 0; round < 3; ++round) {
    for (unsigned b = 0; b < kBlocks; ++b) {
      Block& block = blocks[me * kBlocks + b];
      mg_alloc_options options = MG_ALLOC_OPTIONS_INIT;
      options.alignment = size_t{1} << (b % 13);
      options.home = static_cast<mg_home>(b % 5);
      options.node = b % mg_nodes();
      block.size = b % 8 == 0 ? 3 * mg_page_size() + b : b * 37;
      block.data = static_cast<unsigned char*>(mg_alloc(block.size, &options));
      REQUIRE(block.data != nullptr && mg_is_shared(block.data));
      REQUIRE(reinterpret_cast<uintptr_t>(block.data) % options.alignment == 0);
      for (size_t i = 0; i < block.size; ++i) REQUIRE(block.data[i] == 0);
      for (size_t i = 0; i < block.size; ++i) block.data[i] = program::pattern(i, me);
    }
    mg_barrier(barrier);
    const unsigned other = (me + mg_processors_per_node()) % all;
    for (unsigned b = 0; b < kBlocks; ++b) check_and_free(blocks[other * kBlocks + b], other);
    mg_barrier(barrier);
  }
}

void check_homes() {
  const size_t page = mg_page_size();
  const unsigned nodes = mg_nodes();
  const size_t pages = 4 * nodes;
  const auto* const interleaved = program::shared<char>(pages * page, MG_HOME_INTERLEAVED);
  const auto* const blocked = program::shared<char>(pages * page, MG_HOME_BLOCKED);
  const auto* const last = program::shared<char>(pages * page, MG_HOME_NODE, nodes - 1);
  auto* const touched = program::shared<char>(pages * page, MG_HOME_FIRST_TOUCH);
  for (size_t i = 0; i < pages; ++i) {
    REQUIRE(mg_home_of(interleaved + i * page) == mg_home_of(interleaved + (i + nodes) % pages * page));
    REQUIRE(mg_home_of(blocked + i * page) == static_cast<int>(i / 4));
    REQUIRE(mg_home_of(last + i * page) == static_cast<int>(nodes) - 1);
    REQUIRE(mg_home_of(touched + i * page) == -1);
  }
  touched[page] = 1;
  REQUIRE(mg_home_of(touched + page) == 0);
  REQUIRE(mg_home_of(touched) == -1);
  int local = 0;
  REQUIRE(mg_home_of(&local) == -1 && !mg_is_shared(&local));
}

}  // namespace

int main() {
  check_homes();
  blocks = program::shared<Block>(kBlocks * mg_processors());
  barrier = mg_barrier_create(0);
  program::run_on_all(slave);
  mg_free(nullptr);
  char* const a = program::shared<char>(0);
  char* const b = program::shared<char>(0);
  REQUIRE(a != b);
  return 0;
}
