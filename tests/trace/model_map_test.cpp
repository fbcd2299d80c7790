// Maps from threads to cores and nodes: what they say, and what they are refused for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "random_trace.h"
#include "trace/model/optimal.h"
#include "trace/model/thread_map.h"

namespace multigrain::trace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Places {
  std::vector<unsigned> nodes, cores;
};

Places places_of(std::string_view text, unsigned threads) {
  const auto map = ThreadMap::parse(text, threads);
  if (!map) {
    ADD_FAILURE() << text << ": " << map.error().message;
    return {};
  }
  Places places;
  for (unsigned thread = 0; thread < threads; ++thread) {
    places.nodes.push_back(map->node_of(thread));
    places.cores.push_back(map->core_of(thread));
    EXPECT_LT(map->node_of(thread), map->nodes());
    EXPECT_LT(map->core_of(thread), map->cores());
    EXPECT_EQ(map->nodes_of_cores()[map->core_of(thread)], map->node_of(thread));
    EXPECT_EQ(map->place_of(thread, MemoryOf::kCore), map->core_of(thread));
    EXPECT_EQ(map->place_of(thread, MemoryOf::kNode), map->node_of(thread));
  }
  return places;
}

TEST(ThreadMaps, ListsNameThreadsAsTasksetDoes) {
  EXPECT_THAT(places_of("0-1:0,2-3:1", 4).nodes, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(places_of("0-1:0,2-3:1", 4).cores, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(places_of("0,3-4:1,1-2,5:0", 6).nodes, ElementsAre(1, 0, 0, 1, 1, 0));
  EXPECT_THAT(places_of("2:0,0:7,1:0", 3).nodes, ElementsAre(7, 0, 0));
  const auto sparse = ThreadMap::parse("0:0,1:3", 2);
  ASSERT_TRUE(sparse);
  EXPECT_EQ(sparse->nodes(), 4u);
  EXPECT_EQ(sparse->cores(), 2u);
}

TEST(ThreadMaps, ThreadsShareCores) {
  // Cores of the same number on two nodes are two.
  const Places places = places_of("0,2:0.5,1:0.1,3-4:1.5,5:1.0", 6);
  EXPECT_THAT(places.nodes, ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(places.cores, ElementsAre(0, 1, 0, 2, 2, 3));
  // One node's threads have cores by number, the other's have each its own.
  EXPECT_THAT(places_of("0-1:0.0,2-3:1", 4).cores, ElementsAre(0, 0, 1, 2));
}

TEST(ThreadMaps, DistributionsAreSlurms) {
  EXPECT_THAT(places_of("block:2", 5).nodes, ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT(places_of("cyclic:2", 5).nodes, ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(places_of("block:2", 5).cores, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(places_of("block:2x2", 8).cores, ElementsAre(0, 1, 0, 1, 2, 3, 2, 3));
  EXPECT_THAT(places_of("cyclic:2x1", 4).cores, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(places_of("block:8", 2).nodes, ElementsAre(0, 4));
}

TEST(ThreadMaps, BadOnesAreRefusedInASentence) {
  const struct {
    const char* text;
    const char* sentence;
  } bad[] = {
      {"0-3", "names no node for thread 0"},
      {"0-2:0", "says nothing about thread 3 of the trace's 4"},
      {"0-3:0,3:1", "names thread 3 twice"},
      {"0,0:0", "names thread 0 twice"},
      {"0-4:0", "names thread 4, and the trace has 4 threads"},
      {"3-0:0", "names no threads"},
      {"a-3:0", "names no threads"},
      {"", "names no threads"},
      {"0-3:0,", "names no threads"},
      {",0-3:0", "names no threads"},
      {"-3:0", "names no threads"},
      {"0-:0", "names no threads"},
      {"0-3:", "names no node: give NODE or NODE.CORE"},
      {"0-3:x", "names no node: give NODE or NODE.CORE"},
      {"0-3:0.", "names no node: give NODE or NODE.CORE"},
      {"0-3:0.1.2", "names no node: give NODE or NODE.CORE"},
      {"0-3:0:1", "names no node: give NODE or NODE.CORE"},
      {"0-3:1024", "at most 1024 nodes"},
      {"0-3:4294967295", "at most 1024 nodes"},
      {"0-3:4294967296", "names no node"},
      {"0-99999999999:0", "names no threads"},
      {"0-1:0.0,2-3:0", "some threads of node 0 a core, and others none"},
      {"block:0", "give block:NODES"},
      {"block:", "give block:NODES"},
      {"block:2x", "give block:NODES"},
      {"block:2x0", "give block:NODES"},
      {"cyclic:x2", "give cyclic:NODES"},
      {"cyclic:1025", "at most 1024 nodes"},
      {"plane:2", "names no threads"},
  };
  for (const auto& [text, sentence] : bad) {
    const auto map = ThreadMap::parse(text, 4);
    ASSERT_FALSE(map) << text;
    EXPECT_THAT(map.error().message, HasSubstr(sentence)) << text;
  }
}

// A trace by place is the trace in which each thread's references are its node's (or core's).
TEST(ThreadMaps, ATraceByPlaceIsThatOfThePlaces) {
  std::mt19937 random(1);
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const unsigned threads = 2 + static_cast<unsigned>(seed % 7);
    const auto references =
        random_references({.processors = threads, .references = 3000, .bytes = 4096, .writes = 0.3}, seed);
    // A random map, written out.
    std::string text;
    for (unsigned thread = 0; thread < threads; ++thread)
      text += fmt::format("{}{}:{}.{}", thread == 0 ? "" : ",", thread, random() % 3, random() % 2);
    const auto map = ThreadMap::parse(text, threads);
    ASSERT_TRUE(map) << text;
    for (const MemoryOf memory : {MemoryOf::kNode, MemoryOf::kCore}) {
      std::vector<Reference> by_hand = references;
      for (Reference& reference : by_hand) reference.processor = map->place_of(reference.processor, memory);
      Machine machine = numa_machine(64);
      machine.memory = memory;
      machine.processors = std::max(2u, map->places(memory));
      TraceByPlace by_place(source_of(threads, references), *map, memory);
      EXPECT_EQ(by_place.header().processors, map->places(memory));
      const auto one = optimal(by_place, std::vector{machine});
      const auto other = optimal(*source_of(map->places(memory), by_hand), std::vector{machine});
      ASSERT_TRUE(one && other);
      EXPECT_EQ((*one)[0].parts, (*other)[0].parts) << text;
    }
  }
}

TEST(ThreadMaps, AReferenceOfNoThreadIsAnError) {
  std::vector<Reference> references =
      random_references({.processors = 2, .references = 10, .bytes = 64, .writes = 0.3}, 1);
  references[5].processor = 9;
  TraceByPlace by_place(source_of(2, references), ThreadMap(2), MemoryOf::kNode);
  const auto batch = by_place.next();
  ASSERT_FALSE(batch);
  EXPECT_THAT(batch.error().message, HasSubstr("by processor 9"));
}

}  // namespace
}  // namespace multigrain::trace
