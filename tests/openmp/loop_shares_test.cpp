#include "openmp/loop_shares.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "openmp/static_loops.h"

namespace multigrain::openmp {
namespace {

TeamShape team_of(unsigned nodes, unsigned threads_per_node, unsigned threads) {
  TeamShape team;
  team.threads = threads;
  team.nodes = (threads + threads_per_node - 1) / threads_per_node;
  EXPECT_LE(team.nodes, nodes);
  for (unsigned node = 0; node < team.nodes; ++node) team.first[node] = node * threads_per_node;
  team.first[team.nodes] = threads;
  return team;
}

// Gives out a loop to threads that ask in a random order, as shared_loops.cpp does, and counts how often each chunk was
// given. Returns for each thread the chunks that it was given, in their order.
std::vector<std::vector<Interval>> give_out(uint64_t chunks, const TeamShape& team, bool ascending, bool guided,
                                            unsigned seed) {
  std::mt19937 random(seed);
  LoopRest rest{};
  begin_rest(rest, chunks, team, ascending);
  std::vector<Interval> bulk(team.nodes);
  std::vector<bool> told(team.nodes, rest_is_empty(chunks, team, ascending));
  std::vector<unsigned> node_of;
  for (unsigned node = 0; node < team.nodes; ++node) {
    bulk[node] = own_share(chunks, team, node, ascending);
    node_of.insert(node_of.end(), team.threads_of(node), node);
  }
  std::vector<std::vector<Interval>> taken(team.threads);
  std::vector<unsigned> asking(team.threads);
  std::iota(asking.begin(), asking.end(), 0u);
  while (!asking.empty()) {
    const size_t which = random() % asking.size();
    const unsigned thread = asking[which], node = node_of[thread];
    const bool has_last = !taken[thread].empty() && taken[thread].back().end == chunks;
    if (!has_last && bulk[node].empty() && !told[node]) {
      bulk[node] = take(rest, team, node, ascending);
      told[node] = bulk[node].empty();
    }
    if (has_last || bulk[node].empty()) {
      asking.erase(asking.begin() + static_cast<long>(which));
      continue;
    }
    taken[thread].push_back(take_of_bulk(bulk[node], team.threads_of(node), guided));
  }
  return taken;
}

class Shares : public testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(Shares, EachChunkOnceInEveryTeam) {
  const auto [ascending, guided] = GetParam();
  unsigned seed = 0;
  for (const auto& [nodes, per_node] : {std::pair{1u, 1u}, {1u, 3u}, {2u, 1u}, {2u, 4u}, {5u, 3u}, {64u, 1u}})
    for (unsigned threads = 1; threads <= nodes * per_node; threads += 1 + threads / 4)
      for (const uint64_t chunks : {0ull, 1ull, 2ull, 3ull, 7ull, 16ull, 61ull, 1000ull}) {
        const TeamShape team = team_of(nodes, per_node, threads);
        const auto taken = give_out(chunks, team, ascending, guided, ++seed);
        std::vector<int> times(chunks, 0);
        for (const auto& of_thread : taken) {
          uint64_t before = 0;
          for (const Interval& interval : of_thread) {
            ASSERT_FALSE(interval.empty());
            ASSERT_LE(interval.end, chunks);
            for (uint64_t chunk = interval.begin; chunk < interval.end; ++chunk) ++times[chunk];
            if (ascending) {
              ASSERT_GE(interval.begin, before);
            }
            before = interval.end;
          }
          // L5: nothing comes after the last chunk.
          for (size_t i = 0; i + 1 < of_thread.size(); ++i) ASSERT_NE(of_thread[i].end, chunks);
        }
        for (const int time : times) ASSERT_EQ(time, 1) << nodes << "x" << per_node << " chunks " << chunks;
      }
}

INSTANTIATE_TEST_SUITE_P(EveryKind, Shares, testing::Combine(testing::Bool(), testing::Bool()));

TEST(Shares, NoNodeLooksAtARestThatIsEmpty) {
  const TeamShape team = team_of(4, 1, 4);
  EXPECT_TRUE(rest_is_empty(4, team, false));
  EXPECT_FALSE(rest_is_empty(8, team, false));
  EXPECT_FALSE(rest_is_empty(1, team, true));
  EXPECT_TRUE(rest_is_empty(1000, team_of(1, 4, 4), false));
}

// Walks through the loop as compiled code does, by the thread's part, and counts each iteration.
// Goes round at the type's limits, as compiled code never does.
template <typename T, typename Step>
T plus(T value, Step step) {
  using U = std::make_unsigned_t<T>;
  return static_cast<T>(static_cast<U>(value) + static_cast<U>(step));
}

template <typename T>
void walk(int32_t schedule, T lower, T upper, std::make_signed_t<T> step, std::make_signed_t<T> chunk,
          uint32_t threads) {
  using S = std::make_signed_t<T>;
  const uint64_t count = count_iterations<T>(lower, upper, step);
  const LoopBounds<T> bounds{lower, step};
  std::vector<int> times(count, 0);
  int have_last = 0;
  const auto before_or_at = [&](T a, T b) { return step > 0 ? a <= b : a >= b; };
  for (uint32_t number = 0; number < threads; ++number) {
    const StaticPart<T> part = static_part<T>(schedule, lower, upper, step, chunk, number, threads);
    have_last += part.has_last ? 1 : 0;
    const bool chunked = schedule == kScheduleStaticChunked;
    bool reached_last = false;
    T begin = part.lower, end = part.upper;
    while (before_or_at(begin, end)) {
      if (!before_or_at(end, upper)) end = upper;
      for (T value = begin;; value = plus(value, step)) {
        const uint64_t iteration = count_iterations<T>(lower, value, step) - 1;
        ASSERT_LT(iteration, count);
        ASSERT_EQ(bounds.value(iteration), value);
        ++times[iteration];
        reached_last = iteration + 1 == count;
        if (!before_or_at(plus(value, step), end) || value == end || iteration + 1 == count) break;
      }
      if (!chunked || reached_last) break;
      // Compiled code's own variable goes from 0 to the number of iterations, so this does not go round a limit there.
      const uint64_t next =
          count_iterations<T>(lower, begin, step) - 1 + static_cast<uint64_t>(std::max<S>(chunk, 1)) * threads;
      if (next >= count) break;
      ASSERT_EQ(plus(begin, part.stride), bounds.value(next));
      begin = bounds.value(next);
      const uint64_t last = std::min(count, next + static_cast<uint64_t>(std::max<S>(chunk, 1))) - 1;
      end = bounds.value(last);
    }
    EXPECT_EQ(part.has_last, reached_last && count != 0);
  }
  EXPECT_EQ(have_last, count != 0 ? 1 : 0);
  for (const int time : times) ASSERT_EQ(time, 1);
}

template <typename T>
void walk_everywhere() {
  constexpr T kMin = std::numeric_limits<T>::min(), kMax = std::numeric_limits<T>::max();
  for (const int32_t schedule : {kScheduleStatic, kScheduleStaticChunked, kScheduleStaticBalancedChunked})
    for (const int threads : {1, 2, 3, 8, 17})
      for (const int chunk : {0, 1, 3, 16}) {
        const auto run = [&](T lower, T upper, int step) {
          walk<T>(schedule, lower, upper, static_cast<std::make_signed_t<T>>(step),
                  static_cast<std::make_signed_t<T>>(chunk), static_cast<uint32_t>(threads));
        };
        run(0, 99, 1);
        run(10, 9, 1);
        run(5, 5, 1);
        run(3, 100, 7);
        run(100, 3, -7);
        run(100, 0, -1);
        run(static_cast<T>(kMax - 40), kMax, 1);
        run(static_cast<T>(kMax - 40), kMax, 9);
        run(static_cast<T>(kMin + 40), kMin, -1);
        run(static_cast<T>(kMin + 40), kMin, -9);
        run(kMin, static_cast<T>(kMin + 12), 5);
      }
}

TEST(StaticLoops, EachIterationOnceForInt) {
  walk_everywhere<int32_t>();
}
TEST(StaticLoops, EachIterationOnceForUnsigned) {
  walk_everywhere<uint32_t>();
}
TEST(StaticLoops, EachIterationOnceForLong) {
  walk_everywhere<int64_t>();
}
TEST(StaticLoops, EachIterationOnceForUnsignedLong) {
  walk_everywhere<uint64_t>();
}

TEST(StaticLoops, LoopsOverWholeTypesAreCounted) {
  EXPECT_EQ(count_iterations<int32_t>(INT32_MIN, INT32_MAX, 1), uint64_t{1} << 32);
  EXPECT_EQ(count_iterations<int32_t>(INT32_MAX, INT32_MIN, INT32_MIN), 2u);
  EXPECT_EQ(count_iterations<uint32_t>(0, UINT32_MAX, 2), uint64_t{1} << 31);
  EXPECT_EQ(count_iterations<int64_t>(INT64_MIN, INT64_MAX, 2), uint64_t{1} << 63);
  EXPECT_EQ(count_iterations<uint64_t>(0, UINT64_MAX, 1), UINT64_MAX);
}

}  // namespace
}  // namespace multigrain::openmp
