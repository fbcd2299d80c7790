// This runs the fuzz targets with a fixed seed on right inputs, damaged in a few places, and on noise. (Where Clang is
// the compiler, the fuzzers look for more: ctest -C Long -L long.)
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/effort.h"
#include "targets.h"

namespace multigrain::fuzz {
namespace {

class FuzzTest : public ::testing::TestWithParam<Target> {};

std::vector<std::byte> damaged(std::vector<std::byte> bytes, std::mt19937_64& random) {
  for (uint64_t n = random() % 4; n != 0; --n) {
    switch (bytes.empty() ? 3 : random() % 6) {
      case 0:  // changes a byte
        bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        break;
      case 1:  // changes a bit
        bytes[random() % bytes.size()] ^= static_cast<std::byte>(1u << random() % 8);
        break;
      case 2: {  // stores a number of some width, of a kind that code gets wrong
        const uint64_t odd[] = {0, 1, ~uint64_t{0}, uint64_t{1} << random() % 64, bytes.size(), random()};
        const uint64_t value = odd[random() % std::size(odd)];
        const size_t width = std::min<size_t>(size_t{1} << random() % 4, bytes.size());
        std::memcpy(bytes.data() + random() % (bytes.size() - width + 1), &value, width);
        break;
      }
      case 3:  // appends bytes
        bytes.insert(bytes.end(), random() % 32, static_cast<std::byte>(random()));
        break;
      case 4:  // cuts the end off
        bytes.resize(random() % bytes.size());
        break;
      default: {  // repeats a piece
        const size_t at = random() % bytes.size();
        const std::vector<std::byte> piece(bytes.begin() + static_cast<ptrdiff_t>(at), bytes.end());
        bytes.insert(bytes.end(), piece.begin(), piece.end());
      }
    }
  }
  return bytes;
}

TEST_P(FuzzTest, KeepsItsPromisesWhateverComes) {
  const std::vector<std::byte> good = GetParam().good();
  GetParam().run(good);
  std::mt19937_64 random(20241121);
  for (int i = 0; i < effort(150'000, 30'000); ++i) GetParam().run(damaged(good, random));
  std::vector<std::byte> noise;
  for (int i = 0; i < effort(20'000, 5'000); ++i) {
    noise.resize(random() % 300);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
    GetParam().run(noise);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzTest, ::testing::ValuesIn(kTargets),
                         [](const auto& target) { return target.param.name; });

// The checks above would hold of a decoder that refuses everything.
TEST(Fuzz, StartsFromInputsThatAreRight) {
  const ucx::WireContext context = wire_context();
  auto input = kTargets[0].good();
  ucx::WireMessage message;
  EXPECT_EQ(decode(context, Bytes(input).subspan(4), 4196, message).verdict, ucx::Verdict::kGood);
  EXPECT_EQ(decode(context, Bytes(input).subspan(4), 4197, message).verdict, ucx::Verdict::kBroken);
  input[4] ^= std::byte{1};
  EXPECT_EQ(decode(context, Bytes(input).subspan(4), 4196, message).verdict, ucx::Verdict::kUnauthenticated);
  ucx::WireControl control;
  input = kTargets[1].good();
  EXPECT_EQ(decode(context, Bytes(input).subspan(4), 60, control).verdict, ucx::Verdict::kGood);
  input = kTargets[2].good();
  ucx::WireCoalesced all;
  Bytes rest = Bytes(input).subspan(sizeof all);
  ASSERT_EQ(decode(context, Bytes(input).first(sizeof all), rest.size(), all).verdict, ucx::Verdict::kGood);
  for (unsigned left = 3; left != 0; --left) {
    Bytes payload;
    ASSERT_EQ(next_record(context, all, left, rest, message, payload).verdict, ucx::Verdict::kGood);
    EXPECT_EQ(message.sequence, 3 - left);
    EXPECT_EQ(payload.size(), (3 - left) * 60);
  }
  EXPECT_TRUE(rest.empty());
  std::array<std::byte, 4096> page{};
  EXPECT_TRUE(apply_diff(page.data(), page.size(), kTargets[5].good()));
  EXPECT_EQ(page[1200], std::byte{2});
}

// Each fault that a scattered put may have is tried by itself.
TEST(Fuzz, PiecesAreRefusedForEachOfTheirFaults) {
  const ucx::WireContext context = wire_context();
  using Pieces = ucx::WirePieces;
  using Table = std::vector<ucx::WirePiece>;
  struct Case {
    const char* what;
    void (*damage)(Pieces&, Table&);
    ucx::Verdict verdict;
  };
  const Case cases[] = {
      {"nothing", [](Pieces&, Table&) {}, ucx::Verdict::kGood},
      {"another key", [](Pieces& p, Table&) { p.key ^= 1; }, ucx::Verdict::kUnauthenticated},
      {"this node's name", [](Pieces& p, Table&) { p.from = 1; }, ucx::Verdict::kUnauthenticated},
      {"unknown fields", [](Pieces& p, Table&) { p.zero = 1; }, ucx::Verdict::kBroken},
      {"no pieces", [](Pieces& p, Table&) { p.count = 0; }, ucx::Verdict::kBroken},
      {"a piece too many", [](Pieces& p, Table&) { p.count = 4; }, ucx::Verdict::kBroken},
      {"more pieces than bytes", [](Pieces& p, Table&) { p.count = ~uint32_t{0}; }, ucx::Verdict::kBroken},
      {"an impossible segment", [](Pieces& p, Table&) { p.segment = 2; }, ucx::Verdict::kBroken},
      {"an offset past the end", [](Pieces& p, Table&) { p.offset = ~uint64_t{0} - 50; }, ucx::Verdict::kBroken},
      {"an empty piece", [](Pieces&, Table& t) { t[0] = {0, 0}; }, ucx::Verdict::kBroken},
      {"a piece past the end", [](Pieces&, Table& t) { t[2].offset += 1; }, ucx::Verdict::kBroken},
      {"a piece far past the end", [](Pieces&, Table& t) { t[1].offset = ~uint32_t{0}; }, ucx::Verdict::kBroken},
      {"a piece too long", [](Pieces&, Table& t) { t[0].length += 1; }, ucx::Verdict::kBroken},
      {"a piece too short", [](Pieces&, Table& t) { t[0].length -= 1; }, ucx::Verdict::kBroken},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    Pieces wire{};
    wire.key = 0x3333333333333333;
    wire.from = 2;
    wire.count = 3;
    wire.segment = static_cast<uint8_t>(SegmentId::kWords);
    wire.offset = context.segment_bytes[wire.segment] - 100;
    Table table{{0, 20}, {40, 20}, {80, 20}};  // up to the very end
    one.damage(wire, table);
    std::vector<std::byte> header, data;
    append(header, wire);
    for (const ucx::WirePiece& each : table) append(data, each);
    data.resize(data.size() + 60);
    Pieces read;
    ucx::Checked checked = decode(context, header, data.size(), read);
    if (checked.verdict == ucx::Verdict::kGood) checked = check_pieces(context, read, data);
    EXPECT_EQ(checked.verdict, one.verdict);
    EXPECT_EQ(checked.reason != nullptr, one.verdict != ucx::Verdict::kGood);
  }
}

// Each fault that coalesced messages may have is tried by itself.
TEST(Fuzz, CoalescedMessagesAreRefusedForEachOfTheirFaults) {
  const ucx::WireContext context = wire_context();
  struct Case {
    const char* what;
    void (*damage)(ucx::WireCoalesced&, ucx::WireMessage& second, std::vector<std::byte>& tail);
    ucx::Verdict verdict;
  };
  using Coalesced = ucx::WireCoalesced;
  using Record = ucx::WireMessage;
  using Tail = std::vector<std::byte>;
  const Case cases[] = {
      {"nothing", [](Coalesced&, Record&, Tail&) {}, ucx::Verdict::kGood},
      {"another key", [](Coalesced& t, Record&, Tail&) { t.key ^= 1; }, ucx::Verdict::kUnauthenticated},
      {"this node's name", [](Coalesced& t, Record&, Tail&) { t.from = 1; }, ucx::Verdict::kUnauthenticated},
      {"no records", [](Coalesced& t, Record&, Tail&) { t.count = 0; }, ucx::Verdict::kBroken},
      {"a record too few", [](Coalesced& t, Record&, Tail&) { t.count = 1; }, ucx::Verdict::kBroken},
      {"a record too many", [](Coalesced& t, Record&, Tail&) { t.count = 3; }, ucx::Verdict::kBroken},
      {"unknown fields", [](Coalesced& t, Record&, Tail&) { t.zero = 1; }, ucx::Verdict::kBroken},
      {"something behind it", [](Coalesced&, Record&, Tail& tail) { tail.resize(41); }, ucx::Verdict::kBroken},
      {"too little payload", [](Coalesced&, Record&, Tail& tail) { tail.resize(39); }, ucx::Verdict::kBroken},
      {"too long a payload",
       [](Coalesced&, Record& r, Tail& tail) {
         r.payload_length = ucx::kMaxCoalescedPayload + 1;
         tail.resize(r.payload_length);
       },
       ucx::Verdict::kBroken},
      {"too many bytes", [](Coalesced&, Record&, Tail& tail) { tail.resize(ucx::kMaxCoalescedBytes); },
       ucx::Verdict::kBroken},
      {"another's message", [](Coalesced&, Record& r, Tail&) { r.from = 0; }, ucx::Verdict::kBroken},
      {"a message with another key", [](Coalesced&, Record& r, Tail&) { r.key ^= 1; }, ucx::Verdict::kBroken},
      {"a slice", [](Coalesced&, Record& r, Tail&) { r.slice_length = 200'000; }, ucx::Verdict::kBroken},
      {"a delay", [](Coalesced&, Record& r, Tail&) { r.delay_ns = 1; }, ucx::Verdict::kBroken},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    Coalesced all{.key = 0x3333333333333333, .from = 2, .count = 2, .zero = 0};
    Record first{}, second{};
    first.key = second.key = all.key;
    first.from = second.from = all.from;
    second.payload_length = 40;
    Tail tail(40);
    one.damage(all, second, tail);
    std::vector<std::byte> header, data;
    append(header, all);
    append(data, first);
    append(data, second);
    data.insert(data.end(), tail.begin(), tail.end());
    Coalesced read;
    ucx::Verdict verdict = decode(context, header, data.size(), read).verdict;
    Bytes rest(data);
    for (unsigned left = read.count; verdict == ucx::Verdict::kGood && left != 0; --left) {
      Record record;
      Bytes payload;
      verdict = next_record(context, read, left, rest, record, payload).verdict;
    }
    EXPECT_EQ(verdict, one.verdict);
  }
}

}  // namespace
}  // namespace multigrain::fuzz
