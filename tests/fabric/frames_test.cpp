// These test frames as they come over a stream: whole, cut anywhere, and damaged; and the wire-up that is made of them.
#include "fabric/wireup/frames.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "fabric/wireup/launcher_wireup.h"

namespace multigrain {
namespace {

using Bytes = std::vector<std::byte>;
using testing::HasSubstr;

Bytes pattern(size_t size, unsigned seed) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 13 + seed);
  return bytes;
}

TEST(FrameParser, PutsFramesTogetherHoweverTheyWereCut) {
  const size_t sizes[] = {0, 1, 7, 8, 9, 4096, kMaxFramePayload};
  Bytes stream;
  for (const size_t size : sizes) append_frame(stream, static_cast<uint8_t>(size % 251), pattern(size, 1));
  std::mt19937 random(1);
  for (const size_t longest : {size_t{1}, size_t{5}, size_t{9000}, stream.size()}) {
    FrameParser parser;
    std::vector<Frame> frames;
    for (size_t at = 0; at < stream.size();) {
      const size_t piece = std::min(1 + random() % longest, stream.size() - at);
      parser.feed(std::span(stream).subspan(at, piece));
      at += piece;
      while (true) {
        auto frame = parser.next();
        ASSERT_TRUE(frame);
        if (!*frame) break;
        frames.push_back(std::move(**frame));
      }
    }
    ASSERT_EQ(frames.size(), std::size(sizes));
    for (size_t i = 0; i < frames.size(); ++i) {
      EXPECT_EQ(frames[i].type, sizes[i] % 251);
      EXPECT_EQ(frames[i].payload, pattern(sizes[i], 1));
    }
  }
}

TEST(FrameParser, RefusesWhatIsNoFrame) {
  Bytes good;
  append_frame(good, 3, pattern(20, 2));
  for (const size_t damaged : {0, 1, 2}) {
    Bytes bad = good;
    bad[damaged] ^= std::byte{0x40};
    FrameParser parser;
    parser.feed(bad);
    EXPECT_FALSE(parser.next()) << damaged;
    EXPECT_FALSE(parser.next()) << "it does not recover";
  }
}

TEST(FrameParser, RefusesALengthBeyondTheLimitBeforeThePayloadComes) {
  Bytes header;
  append_frame(header, 3, {});
  const uint32_t length = kMaxFramePayload + 1;
  for (unsigned i = 0; i < 4; ++i) header[4 + i] = static_cast<std::byte>(length >> (8 * i));
  FrameParser parser;
  parser.feed(header);
  const auto frame = parser.next();
  ASSERT_FALSE(frame);
  EXPECT_THAT(frame.error().message, HasSubstr("262145 bytes"));
}

TEST(FrameParser, RandomBytesNeverPassForMoreThanTheyAre) {
  std::mt19937 random(7);
  for (int attempt = 0; attempt < 2000; ++attempt) {
    Bytes bytes;
    append_frame(bytes, 5, pattern(random() % 100, 3));
    append_frame(bytes, 6, pattern(random() % 100, 4));
    for (int flips = 0; flips < 3; ++flips)
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1 + random() % 255);
    FrameParser parser;
    parser.feed(bytes);
    size_t total = 0;
    while (true) {
      const auto frame = parser.next();
      if (!frame || !*frame) break;
      total += kFrameHeader + (*frame)->payload.size();
    }
    ASSERT_LE(total, bytes.size());
  }
}

TEST(Fields, ComeBackAsTheyWent) {
  FieldWriter writer;
  const Bytes blob = pattern(300, 5);
  writer.number(0).number(~uint64_t{0}).text("").text("h\xc3\xa4 \n").blob(blob).number(7);
  FieldReader reader(writer.payload());
  EXPECT_EQ(reader.number(), 0u);
  EXPECT_EQ(reader.number(), ~uint64_t{0});
  EXPECT_EQ(reader.text(), "");
  EXPECT_EQ(reader.text(), "h\xc3\xa4 \n");
  const auto read = reader.blob();
  EXPECT_EQ(Bytes(read.begin(), read.end()), blob);
  EXPECT_FALSE(reader.complete());
  EXPECT_EQ(reader.number(7), 7u);
  EXPECT_TRUE(reader.complete());
}

TEST(Fields, ThatAreMissingOrTooLongAreNotComplete) {
  FieldWriter writer;
  writer.number(1).text("abcdef");
  for (size_t length = 0; length < writer.payload().size(); ++length) {
    FieldReader cut(writer.payload().first(length));
    cut.number();
    cut.text();
    EXPECT_FALSE(cut.complete()) << length;
  }
  FieldWriter eight;
  eight.number(8);
  FieldReader large(eight.payload());
  EXPECT_EQ(large.number(7), 0u);
  EXPECT_FALSE(large.complete());
  const Bytes beyond = [] {
    FieldWriter length_only;
    length_only.number(~uint64_t{0});
    return Bytes(length_only.payload().begin(), length_only.payload().end());
  }();
  FieldReader long_blob(beyond);
  EXPECT_TRUE(long_blob.blob().empty());
  EXPECT_FALSE(long_blob.complete());
}

struct SocketPair {
  SocketPair() {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) std::abort();
  }
  int ends[2];
};

TEST(FrameStream, KeepsWhatCannotBeWrittenYet) {
  const SocketPair pair;
  FrameStream one(pair.ends[0], pair.ends[0]);
  FrameStream other(pair.ends[1], pair.ends[1]);
  constexpr unsigned kFrames = 100;
  for (unsigned i = 0; i < kFrames; ++i) one.send(static_cast<uint8_t>(i), pattern(50'000, i));
  EXPECT_GT(one.queued(), 0u);
  unsigned got = 0;
  while (got < kFrames) {
    ASSERT_TRUE(other.receive());
    while (true) {
      const auto frame = other.next();
      ASSERT_TRUE(frame);
      if (!*frame) break;
      EXPECT_EQ((*frame)->type, got);
      EXPECT_EQ((*frame)->payload, pattern(50'000, got));
      ++got;
    }
    one.flush();
  }
  EXPECT_EQ(one.queued(), 0u);
  other.close();
  one.send(1);
  EXPECT_FALSE(one.receive());
}

// This is a launcher of two nodes, of which the test is one.
class WireupTest : public testing::Test {
 protected:
  WireupTest() : launcher_(pair_.ends[0], pair_.ends[0]) {}

  Result<std::unique_ptr<Wireup>> open() { return open_launcher_wireup(pair_.ends[1]); }
  void welcome(uint64_t version, uint64_t node, uint64_t nodes) {
    launcher_.send(wireup_frame::kWelcome, FieldWriter().number(version).number(node).number(nodes).payload());
  }
  void card(uint64_t round, uint64_t node, const Bytes& bytes) {
    launcher_.send(wireup_frame::kCard, FieldWriter().number(round).number(node).blob(bytes).payload());
  }

  SocketPair pair_;
  FrameStream launcher_;
};

TEST_F(WireupTest, GathersCardsThatComeAheadOfTime) {
  welcome(wireup_frame::kVersion, 1, 2);
  const auto wireup = open();
  ASSERT_TRUE(wireup) << wireup.error().message;
  EXPECT_EQ((*wireup)->self(), NodeId(1));
  EXPECT_EQ((*wireup)->nodes(), 2u);
  card(0, 1, pattern(3, 1));
  card(0, 0, pattern(4, 2));
  card(1, 0, pattern(5, 3));
  const auto first = (*wireup)->exchange(pattern(3, 1), std::chrono::seconds(300));
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_THAT(*first, testing::ElementsAre(pattern(4, 2), pattern(3, 1)));
  card(1, 1, {});
  const auto second = (*wireup)->exchange({}, std::chrono::seconds(300));
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_THAT(*second, testing::ElementsAre(pattern(5, 3), Bytes()));
}

TEST_F(WireupTest, SaysWhoDidNotCome) {
  welcome(wireup_frame::kVersion, 1, 3);
  const auto wireup = open();
  ASSERT_TRUE(wireup);
  card(0, 1, {});
  const auto cards = (*wireup)->exchange({}, std::chrono::seconds(0));
  ASSERT_FALSE(cards);
  EXPECT_THAT(cards.error().message, testing::ContainsRegex("nodes 0, (1, )?2 did not start within 0 s"));
}

TEST_F(WireupTest, SaysThatTheLauncherIsGone) {
  welcome(wireup_frame::kVersion, 0, 2);
  const auto wireup = open();
  ASSERT_TRUE(wireup);
  launcher_.close();
  const auto cards = (*wireup)->exchange({}, std::chrono::seconds(300));
  ASSERT_FALSE(cards);
  EXPECT_THAT(cards.error().message, HasSubstr("mgrun) is gone"));
}

TEST_F(WireupTest, RefusesWhatNoLauncherSends) {
  const auto refused = [this](uint64_t round, uint64_t node) { card(round, node, {}); };
  welcome(wireup_frame::kVersion, 0, 2);
  const auto wireup = open();
  ASSERT_TRUE(wireup);
  refused(5, 1);
  EXPECT_FALSE((*wireup)->exchange({}, std::chrono::seconds(300)));
  refused(0, 2);
  EXPECT_FALSE((*wireup)->exchange({}, std::chrono::seconds(300)));
  refused(0, 1);
  refused(0, 1);
  const auto twice = (*wireup)->exchange({}, std::chrono::seconds(300));
  ASSERT_FALSE(twice);
  EXPECT_THAT(twice.error().message, HasSubstr("came twice"));
  launcher_.send(77);
  EXPECT_FALSE((*wireup)->exchange({}, std::chrono::seconds(300)));
}

TEST_F(WireupTest, RefusesAnotherVersion) {
  welcome(wireup_frame::kVersion + 1, 0, 2);
  const auto wireup = open();
  ASSERT_FALSE(wireup);
  EXPECT_THAT(wireup.error().message, HasSubstr("the mgrun that belongs to it"));
}

TEST_F(WireupTest, RefusesAnImpossibleNode) {
  welcome(wireup_frame::kVersion, 2, 2);
  EXPECT_FALSE(open());
}

TEST(OpenWireup, NamesWhatItCannotUse) {
  for (const char* name : {"", "fd:", "fd:x", "fd:1x", "fd:-1", "magic"}) {
    const auto wireup = open_wireup(name);
    ASSERT_FALSE(wireup);
    EXPECT_THAT(wireup.error().message, HasSubstr("it must be fd:N, pmix or pmi2")) << name;
  }
  const auto closed = open_wireup("fd:999");
  ASSERT_FALSE(closed);
  EXPECT_THAT(closed.error().message, HasSubstr("descriptor 999"));
}

}  // namespace
}  // namespace multigrain
