// The trace format: what is written is read, whole or in parts.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "support/effort.h"
#include "trace/format/layout.h"
#include "trace_files.h"
#include "trace_kernels.h"

namespace multigrain::trace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(TraceFormat, ThousandsOfRandomTracesComeBackAsTheyWere) {
  const Directory directory;
  for (uint64_t seed = 0; seed < effort(3000u, 300u); ++seed) {
    SCOPED_TRACE(seed);
    const Whole trace = random_trace(seed, seed % 50 == 0 ? 20000 : 600);
    const uint32_t block = std::vector<uint32_t>{1, 7, 100, 5000, 1u << 18}[seed % 5];
    if (block == 1 && trace.references.size() > 1000) continue;
    write_file(directory / "t", trace, {.overwrite = true, .level = 1, .block_references = block});
    expect_same(trace, read_file(directory / "t", {.threads = seed % 16 == 0 ? 2u : 0u}));
    if (HasFailure()) return;
  }
  EXPECT_THAT(directory.names(), ElementsAre("t"));
}

TEST(TraceFormat, KernelsComeBackAndTakeLessThanAByteAReference) {
  const Directory directory;
  for (const bench::Kernel& kernel : bench::kernels()) {
    SCOPED_TRACE(kernel.name);
    Whole trace;
    trace.header = bench::kernel_header(8);
    bench::KernelTrace run(8, 16, 1, [&](std::span<const Reference> some) {
      trace.references.insert(trace.references.end(), some.begin(), some.end());
    });
    kernel.run(run);
    write_file(directory / "t", trace, {.overwrite = true});
    expect_same(trace, read_file(directory / "t"));
    // Chains of a hash table in random order hold more than a byte of news in a reference: the table is larger than
    // what a block sees of it twice.
    const double limit = std::string(kernel.name) == "pointer chasing" ? 1.2 : 1.0;
    EXPECT_LT(static_cast<double>(slurp(directory / "t").size()), limit * static_cast<double>(trace.references.size()));
  }
}

// A recorder knows a line of the source, not which of its accesses it sees; and processors that take turns.
TEST(TraceFormat, LinesWithSeveralAccessesTakeLittleRoom) {
  const Directory directory;
  for (const bench::Kernel& kernel : bench::kernels()) {
    const std::string name = kernel.name;
    if (name != "SOR by columns" && name != "matrix multiply") continue;
    SCOPED_TRACE(name);
    Whole trace;
    trace.header = bench::kernel_header(8);
    bench::KernelTrace run(8, 1, 1, [&](std::span<const Reference> some) {
      trace.references.insert(trace.references.end(), some.begin(), some.end());
    });
    kernel.run(run);
    for (Reference& reference : trace.references) reference.site = 1;
    write_file(directory / "t", trace, {.overwrite = true});
    expect_same(trace, read_file(directory / "t"));
    // The order of the processors is random, and 3 bits of that are news; there is little else.
    EXPECT_LT(static_cast<double>(slurp(directory / "t").size()), 0.6 * static_cast<double>(trace.references.size()));
  }
}

TEST(TraceFormat, BlocksCanBeReadInParallelAndSkipped) {
  const Directory directory;
  const Whole trace = random_trace(12, 20000);
  ASSERT_GT(trace.references.size(), 5000u);
  write_file(directory / "t", trace, {.block_references = 700});
  auto file = TraceFile::open(directory / "t");
  ASSERT_TRUE(file);
  const size_t blocks = (*file)->blocks().size();
  ASSERT_EQ(blocks, (trace.references.size() + 699) / 700);
  constexpr size_t kReaders = 4;
  std::vector<Whole> parts(kReaders);
  std::vector<std::thread> readers;
  for (size_t i = 0; i < kReaders; ++i) {
    readers.emplace_back([&, i] {
      auto part = TraceFile::open(directory / "t", {.threads = static_cast<unsigned>(i % 3),
                                                    .first_block = blocks * i / kReaders,
                                                    .end_block = blocks * (i + 1) / kReaders});
      ASSERT_TRUE(part);
      parts[i] = read_all(**part, blocks * i / kReaders * 700);
    });
  }
  for (std::thread& reader : readers) reader.join();
  Whole together;
  together.header = trace.header;
  for (const Whole& part : parts) {
    EXPECT_EQ(part.error, "");
    together.references.insert(together.references.end(), part.references.begin(), part.references.end());
    together.events.insert(together.events.end(), part.events.begin(), part.events.end());
  }
  expect_same(trace, together);
}

TEST(TraceFormat, AReaderThatStopsEarlyEndsItsThreads) {
  const Directory directory;
  write_file(directory / "t", random_trace(12, 20000), {.block_references = 300});
  auto file = TraceFile::open(directory / "t", {.threads = 3});
  ASSERT_TRUE(file);
  ASSERT_TRUE((*file)->next());
}

TEST(TraceFormat, TheHeaderGrowsAndCanBeCorrected) {
  const Directory directory;
  auto created = TraceWriter::create(directory / "t", {});
  ASSERT_TRUE(created);
  TraceWriter& writer = **created;
  writer.set_processors(1);
  const SiteId first = writer.add_site({});
  const Reference one{.address = 8, .site = first, .processor = 0, .access = Access::kRead, .size = 8};
  ASSERT_TRUE(writer.append(std::span(&one, 1)));
  ASSERT_TRUE(writer.flush());
  writer.set_processors(2);
  writer.set_site(first, {.file = "a.c", .function = "main", .line = 3});
  const SiteId second = writer.add_site({.file = "b.c", .function = "", .line = 4});
  const uint32_t name = writer.add_name("array");
  const Reference two{.address = 16, .site = second, .processor = 1, .access = Access::kWrite, .size = 4};
  ASSERT_TRUE(writer.append(std::span(&two, 1)));
  ASSERT_TRUE(writer.append(Event{.position = 2,
                                  .address = 16,
                                  .value = 64,
                                  .name = name,
                                  .site = second,
                                  .processor = 1,
                                  .kind = EventKind::kAllocate}));
  writer.set_dilation(3);
  ASSERT_TRUE(writer.finish());
  EXPECT_FALSE(writer.append(std::span(&two, 1)));
  const Whole read = read_file(directory / "t");
  EXPECT_EQ(read.error, "");
  EXPECT_EQ(read.header.processors, 2u);
  EXPECT_EQ(read.header.dilation, 3);
  ASSERT_EQ(read.header.sites.size(), 3u);
  EXPECT_EQ(read.header.sites[first].function, "main");
  EXPECT_EQ(read.header.sites[second].line, 4u);
  EXPECT_EQ(read.header.names.at(name), "array");
  EXPECT_EQ(read.references.size(), 2u);
  EXPECT_EQ(read.events.size(), 1u);
}

TEST(TraceFormat, CallersAndSamplingComeBack) {
  const Directory directory;
  TraceHeader header = some_header(2, 3, 2);
  header.sites[2].caller = 1;
  header.sampling = {.burst = 100, .interval = 5000, .scale = 48.5};
  auto writer = TraceWriter::create(directory / "t", header);
  ASSERT_TRUE(writer);
  ASSERT_TRUE((*writer)->finish());
  const Whole read = read_file(directory / "t");
  EXPECT_EQ(read.error, "");
  EXPECT_EQ(read.header.sites[2].caller, 1u);
  EXPECT_EQ(read.header.sampling, header.sampling);
  header.sites[1].caller = 2;
  const auto refused = TraceWriter::create(directory / "u", header);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("site 1 has site 2 for its caller"));
}

// Files of version 1 have neither.
TEST(TraceFormat, AHeaderOfVersion1IsRead) {
  Bytes bytes;
  put_varint(bytes, 3);  // processors
  put(bytes, 0.0);
  for (const char* const text : {"program", "recorder"}) put_string(bytes, text);
  put_varint(bytes, 2);  // sites
  for (const uint64_t id : {0, 1}) {
    put_varint(bytes, id);
    for (const char* const text : {"a.c", "main"}) put_string(bytes, text);
    put_varint(bytes, 7);
  }
  put_varint(bytes, 0);
  put_varint(bytes, 1);  // names
  put_string(bytes, "");
  TraceHeader header;
  ASSERT_TRUE(unpack_header(bytes, 1, header));
  EXPECT_EQ(header.processors, 3u);
  ASSERT_EQ(header.sites.size(), 2u);
  EXPECT_EQ(header.sites[1].line, 7u);
  EXPECT_FALSE(header.sampling.is_on());
  TraceHeader other;
  EXPECT_FALSE(unpack_header(bytes, 2, other));
}

TEST(TraceFormat, WhatNoTraceMayHoldIsRefused) {
  const Directory directory;
  const auto attempt = [&](auto&& act) {
    auto writer = TraceWriter::create(directory / "t", some_header(2, 3, 2));
    EXPECT_TRUE(writer);
    const Status status = act(**writer);
    EXPECT_FALSE(status);
    // What was refused once stays refused.
    EXPECT_FALSE((*writer)->finish());
    return status ? "" : status.error().message;
  };
  const Reference good{.address = 8, .site = 1, .processor = 1, .access = Access::kRead, .size = 8};
  const auto reference = [&](auto&& change) {
    return attempt([&](TraceWriter& writer) {
      Reference pair[2] = {good, good};
      change(pair[1]);
      return writer.append(std::span<const Reference>(pair));
    });
  };
  EXPECT_THAT(reference([](Reference& r) { r.processor = 2; }), HasSubstr("reference 1 is of processor 2"));
  EXPECT_THAT(reference([](Reference& r) { r.site = 3; }), HasSubstr("reference 1 is at site 3"));
  EXPECT_THAT(reference([](Reference& r) { r.size = 0; }), HasSubstr("0 bytes"));
  const Event event{
      .position = 0, .address = 0, .value = 0, .name = 0, .site = 0, .processor = 0, .kind = EventKind::kEnd};
  const auto with_event = [&](auto&& change) {
    return attempt([&](TraceWriter& writer) {
      Event changed = event;
      change(changed);
      return writer.append(changed);
    });
  };
  EXPECT_THAT(with_event([](Event& e) { e.position = 1; }), HasSubstr("1 references come before it, but 0 do"));
  EXPECT_THAT(with_event([](Event& e) { e.processor = 2; }), HasSubstr("processor 2"));
  EXPECT_THAT(with_event([](Event& e) { e.name = 2; }), HasSubstr("name 2"));
  EXPECT_THAT(with_event([](Event& e) { e.site = 3; }), HasSubstr("site 3"));
  EXPECT_THAT(attempt([&](TraceWriter& writer) {
                const Reference three[3] = {good, good, good};
                Event events[2] = {event, event};
                events[0].position = 2;
                events[1].position = 1;
                return writer.append({.first = 0, .references = three, .events = events});
              }),
              HasSubstr("goes back"));
  EXPECT_THAT(attempt([&](TraceWriter& writer) {
                return writer.append({.first = 5, .references = std::span(&good, 1), .events = {}});
              }),
              HasSubstr("begins with reference 5"));
  // A writer that fails leaves nothing.
  EXPECT_THAT(directory.names(), ElementsAre());
}

TEST(TraceFormat, NothingIsWrittenOver) {
  const Directory directory;
  spill(directory / "t", "precious");
  const auto refused = TraceWriter::create(directory / "t", {});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("exists"));
  {
    auto writer = TraceWriter::create(directory / "u", {});
    ASSERT_TRUE(writer);
    const auto second = TraceWriter::create(directory / "u", {});
    ASSERT_FALSE(second);
    EXPECT_THAT(second.error().message, HasSubstr("u.partial exists"));
    // Another process makes a file of that name in the meantime.
    spill(directory / "u", "precious too");
    const Status status = (*writer)->finish();
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr("cannot rename"));
  }
  EXPECT_EQ(slurp(directory / "t"), "precious");
  EXPECT_EQ(slurp(directory / "u"), "precious too");
  EXPECT_THAT(directory.names(), ElementsAre("t", "u"));
  write_file(directory / "t", random_trace(1, 100), {.overwrite = true});
  EXPECT_EQ(read_file(directory / "t").error, "");
  EXPECT_FALSE(TraceWriter::create(directory / "x", {}, {.level = 20}));
  EXPECT_FALSE(TraceWriter::create(directory / "x", {}, {.block_references = 0}));
  EXPECT_FALSE(TraceWriter::create(directory / "none/x", {}));
}

TEST(TraceFormat, AKilledWriterLeavesWhatItHadFlushed) {
  const Directory directory;
  const Whole trace = random_trace(12, 20000);
  ASSERT_GT(trace.references.size(), 2500u);
  const pid_t child = fork();
  if (child == 0) {
    auto writer = TraceWriter::create(directory / "t", trace.header, {.block_references = 1000});
    if (writer && (*writer)->append(std::span(trace.references).first(2500))) raise(SIGKILL);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_THAT(directory.names(), ElementsAre("t.partial"));
  Whole read = read_file(directory / "t.partial");
  EXPECT_THAT(read.error, HasSubstr("writer was killed; the 2000 references before it are good"));
  EXPECT_EQ(read.references.size(), 2000u);
  read.events.clear();
  EXPECT_TRUE(begins_with(trace, read));
  EXPECT_EQ(read.header.sites.size(), trace.header.sites.size());
  auto file = TraceFile::open(directory / "t.partial", {.threads = 1, .allow_partial = true});
  ASSERT_TRUE(file);
  EXPECT_EQ(read_all(**file).error, "");
  EXPECT_THAT((*file)->damage(), HasSubstr("writer was killed"));
  // A new writer of the same name says so, and may replace it when asked to.
  EXPECT_FALSE(TraceWriter::create(directory / "t", {}));
  EXPECT_TRUE(TraceWriter::create(directory / "t", {}, {.overwrite = true}));
  EXPECT_THAT(directory.names(), ElementsAre());
}

}  // namespace
}  // namespace multigrain::trace
