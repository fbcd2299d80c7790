// A thread keeps its loop hazard published from one piece of a loop to the next, unless a requester waits.
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>

#include "fake_line_protocol.h"
#include "instrument/abi.h"
#include "memory/checked_memory.h"

namespace multigrain::testing {
namespace {

uint64_t loop_hazard() {
  return __atomic_load_n(&__multigrain_hazards[MG_FINE_LOOP_HAZARD], __ATOMIC_SEQ_CST);
}

TEST(LoopHazard, IsClearedAtTheNextPieceWhenARequesterWaits) {
  FakeLineProtocol protocol(64 << 10, 7);
  std::thread([&protocol] {
    protocol.join();
    const uintptr_t first = reinterpret_cast<uintptr_t>(protocol.memory());
    const auto begin_piece = [&](uintptr_t at) {
      const mg_fine_run run = {at, at + 256, 1, 0, 1};
      return __multigrain_batch_begin_in_loop(&run, 1);
    };
    ASSERT_NE(begin_piece(first), 0u);
    const uint64_t published = loop_hazard();
    ASSERT_NE(published, 0u);
    ASSERT_NE(begin_piece(first + 4096), 0u);
    EXPECT_EQ(loop_hazard(), published);

    protocol.begin_to_wait();
    ASSERT_NE(begin_piece(first + 8192), 0u);
    const uint64_t again = loop_hazard();
    EXPECT_NE(again, 0u);
    EXPECT_NE(again, published) << "the requester would wait on";
    // It has been told once.
    ASSERT_NE(begin_piece(first), 0u);
    EXPECT_EQ(loop_hazard(), again);
    __atomic_store_n(&__multigrain_hazards[MG_FINE_LOOP_HAZARD], 0, __ATOMIC_RELEASE);
  }).join();
}

}  // namespace
}  // namespace multigrain::testing
