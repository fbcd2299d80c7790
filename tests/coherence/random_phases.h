// This is a random program without data races for the tests of the page protocols' drivers. A Machine reads and writes
// words of pages at a node, releases there, and acquires there if its protocol is lazy.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

namespace multigrain {

// Runs a program in phases. In each phase every word belongs to one processor, which may write it; between phases all
// processors release, and meet at a barrier. Many words of a page belong to different nodes, so pages have several
// writers, and readers that become writers.
template <typename Machine>
void run_phases(Machine& machine, unsigned nodes, unsigned processors, unsigned seed) {
  constexpr unsigned kPages = 6, kWords = 24, kPhases = 40;
  const unsigned total = nodes * processors;
  std::barrier meeting(total);
  std::array<std::array<std::atomic<uint64_t>, kWords>, kPages> expected{};
  std::atomic<uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (unsigned p = 0; p < total; ++p) {
    threads.emplace_back([&, p] {
      const unsigned node = p / processors;
      std::mt19937 random(seed * 1000 + p);
      const auto below = [&random](unsigned limit) { return static_cast<unsigned>(random() % limit); };
      for (unsigned phase = 0; phase < kPhases; ++phase) {
        for (unsigned i = 0; i < 60; ++i) {
          const unsigned page = below(kPages), word = below(kWords);
          const unsigned owner = (page * 7 + word * 3 + phase * 5) % total;
          const uint64_t value = uint64_t{phase + 1} << 32 | p << 16 | i;
          // The words are neighbours in one cache line, and at the far ends of the page.
          const uint64_t index = word % 2 == 0 ? word : machine.words_per_page() - 1 - word;
          if (owner == p) {
            machine.write(node, page, index, value);
            expected[page][word].store(value);
          } else if ((page * 7 + word * 3 + (phase + 1) * 5) % total != owner && below(4) == 0) {
            static_cast<void>(machine.read(node, page, index));
          }
        }
        machine.release(node);
        meeting.arrive_and_wait();
        if constexpr (requires { machine.acquire_all(node); }) machine.acquire_all(node);
        for (unsigned i = 0; i < 60; ++i) {
          const unsigned page = below(kPages), word = below(kWords);
          const uint64_t index = word % 2 == 0 ? word : machine.words_per_page() - 1 - word;
          if (machine.read(node, page, index) != expected[page][word].load()) ++wrong;
        }
        meeting.arrive_and_wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0u) << "seed " << seed;
}

}  // namespace multigrain
