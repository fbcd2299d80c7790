// These test the ring alone. Both ends are in one thread, so that every position of the wrap and of stale payload
// occurs.
#include "fabric/shm/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "support/effort.h"

namespace multigrain {
namespace {

class RingTest : public ::testing::Test {
 protected:
  RingTest() {
    producer_.bind(bytes(), &head_, kMinRingBytes);
    consumer_.bind(bytes(), &head_, kMinRingBytes, NodeId(5));
  }

  std::byte* bytes() { return reinterpret_cast<std::byte*>(memory_.get()); }

  bool push(uint64_t number, size_t length, std::byte fill) {
    Record record{};
    record.word = Record::make_word(RecordKind::kMessage, length, SegmentId::kWords);
    record.header.word[0] = number;
    std::vector<std::byte> payload(length, fill);
    return producer_.try_push(record, payload);
  }

  struct Line {
    alignas(64) std::byte bytes[64];
  };
  std::unique_ptr<Line[]> memory_ = std::make_unique<Line[]>(kMinRingBytes / sizeof(Line));
  RingHead head_{};
  RingProducer producer_;
  RingConsumer consumer_;
};

TEST_F(RingTest, StartsEmpty) {
  EXPECT_EQ(consumer_.front(), nullptr);
}

TEST_F(RingTest, RandomSizesComeOutWholeAndInOrder) {
  struct Sent {
    uint64_t number;
    size_t length;
    std::byte fill;
  };
  std::mt19937_64 random(7);
  std::deque<Sent> sent;
  uint64_t number = 0;
  uint64_t received = 0;
  size_t full = 0;
  for (int step = 0; step < effort(40'000, 10'000); ++step) {
    if (random() % 2 == 0) {
      // Most payloads are short, some are long, and now and then one is the longest. The fill is never 0, so stale
      // payload looks like a record.
      const uint64_t pick = random() % 100;
      const size_t length = pick < 60 ? random() % 200 : pick < 98 ? random() % 9000 : Fabric::kMaxPayload;
      const auto fill = static_cast<std::byte>(1 + random() % 255);
      if (push(number, length, fill)) {
        sent.push_back({number++, length, fill});
      } else {
        ++full;
        ASSERT_FALSE(sent.empty()) << "an empty ring refused " << length << " bytes";
      }
    } else if (const Record* record = consumer_.front()) {
      ASSERT_FALSE(sent.empty()) << "a record appeared that nobody sent";
      const Sent expected = sent.front();
      sent.pop_front();
      ASSERT_EQ(record->header.word[0], expected.number);
      ASSERT_EQ(consumer_.payload().size(), expected.length);
      ASSERT_EQ(consumer_.slice_segment(), SegmentId::kWords);
      for (std::byte b : consumer_.payload()) ASSERT_EQ(b, expected.fill);
      consumer_.pop();
      ++received;
    } else {
      ASSERT_TRUE(sent.empty()) << "message " << sent.front().number << " was lost";
    }
  }
  EXPECT_GT(received, effort(10'000u, 2'500u));
  EXPECT_GT(full, 0u) << "the test never filled the ring";
}

TEST_F(RingTest, TheLongestRecordFitsAtEveryPositionOfAnEmptyRing) {
  // A producer does not touch more of the ring than it needs, so it must have needed all of it.
  while (push(0, 0, std::byte{})) {
  }
  for (; consumer_.front() != nullptr; consumer_.pop()) {
  }
  for (size_t line = 0; line < kMinRingBytes / kRecordAlign; line += effort(1u, 4u)) {
    ASSERT_TRUE(push(1, Fabric::kMaxPayload, std::byte{0xff})) << "at line " << line;
    ASSERT_NE(consumer_.front(), nullptr);
    consumer_.pop();
    ASSERT_EQ(consumer_.front(), nullptr);
    // This moves on by one line (with a sanitizer some lines) beyond the start of this round, by filling up to there
    // with the shortest records.
    const size_t target = (line + effort(1u, 4u)) * kRecordAlign % kMinRingBytes;
    // One is under way all the time, because a producer that finds the ring empty may go back to its beginning.
    bool is_empty = true;
    while (static_cast<size_t>(producer_.next() - bytes()) != target) {
      ASSERT_TRUE(push(2, 0, std::byte{}));
      if (!std::exchange(is_empty, false)) {
        ASSERT_NE(consumer_.front(), nullptr);
        consumer_.pop();
      }
    }
    if (!is_empty) {
      ASSERT_NE(consumer_.front(), nullptr);
      consumer_.pop();
    }
    ASSERT_EQ(consumer_.front(), nullptr);
  }
}

// What is never touched has no memory. The consumer looks at the word behind the last record, so that counts, too.
TEST_F(RingTest, AProducerThatFindsTheRingEmptyKeepsToTheMemoryThatItNeeds) {
  std::mt19937_64 random(3);
  size_t most = 0;
  for (int step = 0; step < 20'000; ++step) {
    size_t under_way = 0;
    const uint64_t messages = 1 + random() % 4;
    for (uint64_t i = 0; i < messages; ++i) {
      const size_t length = random() % 300;
      ASSERT_TRUE(push(i, length, std::byte{0x55}));
      under_way += record_bytes(length);
      most = std::max(most, static_cast<size_t>(producer_.next() - bytes()) + sizeof(uint64_t));
    }
    for (uint64_t i = 0; i < messages; ++i) {
      const Record* const record = consumer_.front();
      ASSERT_NE(record, nullptr);
      ASSERT_EQ(record->header.word[0], i);
      consumer_.pop();
    }
    ASSERT_EQ(consumer_.front(), nullptr);
    ASSERT_LE(under_way, 4096u);
  }
  // At most what was under way, from a place in the first page on.
  EXPECT_LE(most, 2u * 4096);
  const auto* const words = reinterpret_cast<const uint64_t*>(bytes());
  for (size_t i = 2 * 4096 / sizeof(uint64_t); i < kMinRingBytes / sizeof(uint64_t); ++i) ASSERT_EQ(words[i], 0u) << i;
}

TEST_F(RingTest, DamagedRecordsEndTheRunAndNameTheSender) {
  ASSERT_TRUE(push(1, 100, std::byte{1}));
  auto& word = *reinterpret_cast<uint64_t*>(bytes());
  word = Record::make_word(RecordKind::kMessage, Fabric::kMaxPayload + 1, SegmentId::kFrames);
  EXPECT_DEATH((void)consumer_.front(), "impossible length came from node \\(and its length\\) 5 98305");
  word = Record::make_word(RecordKind::kSkip, 64, SegmentId::kFrames);
  EXPECT_DEATH((void)consumer_.front(), "damaged message came from node 5");
  word = 0x7700000000000000;
  EXPECT_DEATH((void)consumer_.front(), "damaged message came from node 5");
}

}  // namespace
}  // namespace multigrain
