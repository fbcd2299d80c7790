// Damaged trace files: found, named by block and byte, and good up to there. Never silently another trace, never a
// crash.
#include <gmock/gmock.h>

#include <algorithm>

#include "trace/format/block_codec.h"
#include "trace/format/layout.h"
#include "trace_files.h"

namespace multigrain::trace {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

// A small trace of several blocks.
Whole small_trace() {
  for (uint64_t seed = 0;; ++seed) {
    Whole trace = random_trace(seed, 400);
    if (trace.references.size() < 60 || trace.header.processors > 10 || trace.events.empty()) continue;
    trace.references.resize(60);
    std::erase_if(trace.events, [](const Event& event) { return event.position > 60; });
    return trace;
  }
}

TEST(DamagedTrace, EveryChangeOfAByteIsDetected) {
  const Directory directory;
  const Whole trace = small_trace();
  write_file(directory / "t", trace, {.block_references = 20});
  const std::string good = slurp(directory / "t");
  ASSERT_LT(good.size(), 4000u);
  std::mt19937_64 random(1);
  for (size_t i = 0; i < good.size(); ++i) {
    SCOPED_TRACE(i);
    for (const unsigned flip : {1u << random() % 8, 0xffu, static_cast<unsigned>(1 + random() % 255)}) {
      std::string bad = good;
      bad[i] = static_cast<char>(static_cast<unsigned char>(bad[i]) ^ flip);
      spill(directory / "bad", bad);
      const Whole read = read_file(directory / "bad");
      ASSERT_NE(read.error, "");
      ASSERT_THAT(read.error, HasSubstr("bad"));
      ASSERT_TRUE(begins_with(trace, read));
      const Whole ahead = read_file(directory / "bad", {.threads = 1});
      ASSERT_EQ(ahead.error, read.error);
      ASSERT_EQ(ahead.references.size(), read.references.size());
    }
  }
}

TEST(DamagedTrace, WhatPrecedesADamagedBlockIsRead) {
  const Directory directory;
  const Whole trace = small_trace();
  write_file(directory / "t", trace, {.block_references = 20});
  auto file = TraceFile::open(directory / "t");
  ASSERT_TRUE(file);
  const std::vector<BlockInfo> blocks = (*file)->blocks();
  ASSERT_EQ(blocks.size(), 3u);
  const std::string good = slurp(directory / "t");
  for (size_t block = 0; block < blocks.size(); ++block) {
    std::string bad = good;
    bad[blocks[block].offset + 60] ^= 4;
    spill(directory / "bad", bad);
    const Whole read = read_file(directory / "bad");
    EXPECT_EQ(read.references.size(), 20 * block);
    EXPECT_EQ(read.error, fmt::format("{}: block {} at byte {} is damaged: its checksum is another than its contents'; "
                                      "the {} references before it are good",
                                      directory / "bad", blocks[block].number, blocks[block].offset, 20 * block));
    // Blocks that are not damaged can be read past it.
    auto others = TraceFile::open(directory / "bad", {.first_block = block + 1});
    ASSERT_TRUE(others);
    const Whole rest = read_all(**others, 20 * (block + 1));
    EXPECT_EQ(rest.error, "");
    EXPECT_EQ(rest.references.size(), 20 * (2 - block));
    // A reader that asked only for what is there gets no error.
    auto partial = TraceFile::open(directory / "bad", {.allow_partial = true});
    ASSERT_TRUE(partial);
    EXPECT_EQ(read_all(**partial).references.size(), 20 * block);
    EXPECT_THAT((*partial)->damage(), HasSubstr(fmt::format("block {} at byte", blocks[block].number)));
  }
}

TEST(DamagedTrace, EveryTruncationIsDetected) {
  const Directory directory;
  const Whole trace = small_trace();
  write_file(directory / "t", trace, {.block_references = 20});
  const std::string good = slurp(directory / "t");
  size_t most = 0;
  for (size_t size = 0; size < good.size(); ++size) {
    SCOPED_TRACE(size);
    spill(directory / "bad", good.substr(0, size));
    const Whole read = read_file(directory / "bad");
    ASSERT_NE(read.error, "");
    ASSERT_TRUE(begins_with(trace, read));
    // More of the file is never less of the trace.
    ASSERT_GE(read.references.size(), most);
    most = read.references.size();
    if (size == 0) {
      ASSERT_THAT(read.error, HasSubstr("is empty"));
    } else if (size < kFileHeaderBytes) {
      ASSERT_THAT(read.error, HasSubstr("too short"));
    } else {
      ASSERT_THAT(read.error, AnyOf(HasSubstr("cut off"), HasSubstr("damaged")));
      ASSERT_EQ(read_file(directory / "bad", {.allow_partial = true}).error, "");
    }
  }
  EXPECT_EQ(most, 60u);
  spill(directory / "bad", good + "x");
  EXPECT_NE(read_file(directory / "bad").error, "");
}

// This makes files whose checksums are right and whose contents are wrong, as an attacker or a faulty writer would.
class Forger {
 public:
  explicit Forger(const std::string& good) : bytes_(good) {}
  // Changes the header of the block at `offset`.
  template <typename Change>
  std::string with_block_header(uint64_t offset, Change change) {
    std::string bad = bytes_;
    std::array<uint8_t, kBlockHeaderBytes> bytes;
    std::memcpy(bytes.data(), bad.data() + offset, bytes.size());
    BlockHeader header;
    EXPECT_TRUE(unpack_block_header(bytes, header));
    change(header);
    bytes = pack_block_header(header);
    std::memcpy(bad.data() + offset, bytes.data(), bytes.size());
    return bad;
  }

 private:
  std::string bytes_;
};

TEST(DamagedTrace, ANewerVersionIsNamed) {
  const Directory directory;
  write_file(directory / "t", small_trace());
  std::string bad = slurp(directory / "t");
  bad[8] = 7;
  const uint64_t checksum = checksum_of(bad.data(), 16);
  std::memcpy(bad.data() + 16, &checksum, 8);
  spill(directory / "bad", bad);
  EXPECT_THAT(read_file(directory / "bad").error, HasSubstr("format version 7"));
  spill(directory / "bad", std::string(100, 'x'));
  EXPECT_THAT(read_file(directory / "bad").error, HasSubstr("not a Multigrain trace"));
}

TEST(DamagedTrace, PositionsThatGoBackAndWrongCountsAreNamed) {
  const Directory directory;
  const Whole trace = small_trace();
  write_file(directory / "t", trace, {.block_references = 20});
  auto file = TraceFile::open(directory / "t");
  ASSERT_TRUE(file);
  const BlockInfo second = (*file)->blocks()[1];
  Forger forger(slurp(directory / "t"));
  spill(directory / "bad", forger.with_block_header(second.offset, [](BlockHeader& header) { header.first = 10; }));
  EXPECT_THAT(read_file(directory / "bad").error, HasSubstr("not what the index says"));
  // Without the index, the blocks themselves are all there is to go by.
  std::string cut = forger.with_block_header(second.offset, [](BlockHeader& header) { header.first = 10; });
  cut.resize(cut.size() - 1);
  spill(directory / "bad", cut);
  const Whole read = read_file(directory / "bad");
  EXPECT_THAT(read.error, HasSubstr("goes back or leaves a gap: it begins with reference 10 where 20 is next"));
  EXPECT_EQ(read.references.size(), 20u);
  cut = forger.with_block_header(second.offset, [](BlockHeader& header) { header.references = 19; });
  cut.resize(cut.size() - 1);
  spill(directory / "bad", cut);
  EXPECT_THAT(read_file(directory / "bad").error, HasSubstr("block 2 at byte"));
}

TEST(DamagedTrace, AProcessorOutOfRangeIsNamed) {
  const Whole trace = small_trace();
  BlockEncoder encoder;
  Bytes payload;
  encoder.encode(0, trace.references, {}, payload);
  const size_t size = payload.size();
  payload.resize(size + BlockDecoder::kPadding);
  BlockDecoder decoder;
  BlockLimits limits{.first = 0,
                     .references = static_cast<uint32_t>(trace.references.size()),
                     .events = 0,
                     .processors = trace.header.processors,
                     .sites = trace.header.sites.size(),
                     .names = 1};
  EXPECT_EQ(decoder.open({payload.data(), size}, limits), "");
  unsigned highest = 0;
  for (const Reference& reference : trace.references) highest = std::max<unsigned>(highest, reference.processor);
  limits.processors = highest;
  EXPECT_THAT(decoder.open({payload.data(), size}, limits), HasSubstr("processor"));
  limits.processors = trace.header.processors;
  SiteId site = 0;
  for (const Reference& reference : trace.references) site = std::max(site, reference.site);
  limits.sites = site;
  EXPECT_THAT(decoder.open({payload.data(), size}, limits), HasSubstr("site"));
}

// The decoder on payloads that are nearly right, and on noise: errors or any trace, but within memory (the address
// sanitizer watches) and within the block's limits.
TEST(DamagedTrace, TheDecoderStandsAnyBytes) {
  BlockEncoder encoder;
  BlockDecoder decoder;
  size_t survived = 0, refused = 0;
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    static Whole trace;
    static Bytes good;
    if (seed % 50 == 0) {
      trace = random_trace(seed / 50, 700);
      encoder.encode(0, trace.references, trace.events, good);
    }
    Bytes bad = good;
    if (seed % 7 == 0)
      for (uint8_t& byte : bad) byte = static_cast<uint8_t>(random());
    else
      for (uint64_t changes = 1 + random() % 8; changes > 0; --changes)
        bad[random() % bad.size()] = static_cast<uint8_t>(random());
    const size_t size = seed % 5 == 0 ? random() % (bad.size() + 1) : bad.size();
    // The decoder's promise ends with its padding: the sanitizer sees a byte more.
    Bytes exact(size + BlockDecoder::kPadding, static_cast<uint8_t>(random()));
    std::copy(bad.begin(), bad.begin() + static_cast<ptrdiff_t>(size), exact.begin());
    const auto count = static_cast<uint32_t>(trace.references.size());
    const BlockLimits limits{.first = 0,
                             .references = count,
                             .events = static_cast<uint32_t>(trace.events.size()),
                             .processors = trace.header.processors,
                             .sites = trace.header.sites.size(),
                             .names = trace.header.names.size()};
    bool good_so_far = decoder.open({exact.data(), size}, limits).empty();
    std::vector<Reference> out;
    for (uint32_t done = 0; good_so_far && done < count;) {
      const auto now = std::min(count - done, static_cast<uint32_t>(1 + random() % 300));
      out.resize(now + BlockDecoder::kSlack);
      good_so_far = decoder.decode(out.data(), now);
      for (uint32_t i = 0; good_so_far && i < now; ++i) {
        ASSERT_LT(out[i].processor, limits.processors);
        ASSERT_LT(out[i].site, limits.sites);
        ASSERT_LE(static_cast<unsigned>(out[i].access), 1u);
        ASSERT_NE(out[i].size, 0);
      }
      done += now;
    }
    for (const Event& event : decoder.events()) ASSERT_LE(event.position, count);
    ++(good_so_far ? survived : refused);
  }
  // Both happen, or the test tests nothing.
  EXPECT_GT(survived, 100u);
  EXPECT_GT(refused, 1000u);
}

TEST(DamagedTrace, HeadersAndIndexesStandAnyBytes) {
  Bytes header, index;
  const TraceHeader some = some_header(3, 20, 4);
  std::vector<SiteId> sites(some.sites.size());
  for (size_t i = 0; i < sites.size(); ++i) sites[i] = static_cast<SiteId>(i);
  pack_header(some, sites, 0, header);
  pack_index({{.offset = 24, .bytes = 100, .kind = BlockKind::kHeader, .first = 0, .references = 0, .events = 0},
              {.offset = 124, .bytes = 900, .kind = BlockKind::kData, .first = 0, .references = 77, .events = 5}},
             index);
  size_t refused = 0;
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    std::mt19937_64 random(seed);
    Bytes bad = seed % 2 == 0 ? header : index;
    for (uint64_t changes = random() % 6; changes > 0; --changes)
      bad[random() % bad.size()] = static_cast<uint8_t>(random());
    if (seed % 3 == 0) bad.resize(random() % bad.size());
    bad.shrink_to_fit();
    if (seed % 2 == 0) {
      TraceHeader read;
      refused += !unpack_header(bad, seed % 4 < 2 ? kVersion : 1, read);
      ASSERT_LE(read.sites.size(), bad.size());
    } else {
      std::vector<IndexEntry> entries;
      refused += !unpack_index(bad, 1024, entries);
      ASSERT_LE(entries.size(), bad.size());
    }
  }
  EXPECT_GT(refused, 5000u);
  TraceHeader read;
  EXPECT_TRUE(unpack_header(header, kVersion, read));
  std::vector<IndexEntry> entries;
  EXPECT_TRUE(unpack_index(index, 1024, entries));
}

}  // namespace
}  // namespace multigrain::trace
