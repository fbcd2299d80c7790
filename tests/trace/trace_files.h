// What the tests of trace files share: a directory that disappears, random traces, whole files as bytes.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "trace/format/trace_file.h"
#include "trace/format/trace_writer.h"

namespace multigrain::trace {

class Directory {
 public:
  Directory() {
    std::string name = (std::filesystem::temp_directory_path() / "multigrain-trace-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return fmt::format("{}/{}", path_, name); }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) all.push_back(entry.path().filename());
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  std::string path_;
};

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void spill(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

inline bool same(const Reference& a, const Reference& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}
inline bool same(const Event& a, const Event& b) {
  return a.position == b.position && a.address == b.address && a.value == b.value && a.name == b.name &&
         a.site == b.site && a.processor == b.processor && a.kind == b.kind;
}

struct Whole {
  TraceHeader header;
  std::vector<Reference> references;
  std::vector<Event> events;
  std::string error;  // what ended it
};

// Reads to the end or the first error, and checks the contract of batches.
inline Whole read_all(TraceSource& source, uint64_t first = 0) {
  Whole whole;
  while (true) {
    const auto batch = source.next();
    if (!batch) {
      whole.error = batch.error().message;
      break;
    }
    if (batch->references.empty() && batch->events.empty()) break;
    EXPECT_EQ(batch->first, first + whole.references.size());
    EXPECT_LE(batch->references.size(), TraceSource::kBatch);
    for (const Event& event : batch->events) {
      EXPECT_GE(event.position, batch->first);
      EXPECT_LE(event.position, batch->first + batch->references.size());
      EXPECT_TRUE(whole.events.empty() || whole.events.back().position <= event.position);
      whole.events.push_back(event);
    }
    whole.references.insert(whole.references.end(), batch->references.begin(), batch->references.end());
  }
  whole.header = source.header();
  return whole;
}

inline Whole read_file(const std::string& path, ReadOptions options = {}) {
  auto file = TraceFile::open(path, options);
  if (!file) {
    Whole none;
    none.error = file.error().message;
    return none;
  }
  return read_all(**file);
}

// True if everything in `part` is what `whole` begins with.
inline bool begins_with(const Whole& whole, const Whole& part) {
  if (part.references.size() > whole.references.size() || part.events.size() > whole.events.size()) return false;
  for (size_t i = 0; i < part.references.size(); ++i)
    if (!same(part.references[i], whole.references[i])) return false;
  for (size_t i = 0; i < part.events.size(); ++i)
    if (!same(part.events[i], whole.events[i])) return false;
  return true;
}

inline TraceHeader some_header(unsigned processors, unsigned sites, unsigned names) {
  TraceHeader header;
  header.processors = processors;
  header.program = "program --with \"arguments\"";
  header.recorder = "test";
  header.dilation = 12.5;
  header.sites.resize(1);
  for (unsigned i = 1; i < sites; ++i)
    header.sites.push_back({.file = fmt::format("file{}", i % 3), .function = fmt::format("f{}", i), .line = i});
  header.names = {""};
  for (unsigned i = 1; i < names; ++i) header.names.push_back(fmt::format("name {}", i));
  return header;
}

// A trace with loops, jumps, repeats and noise in random proportions; extreme values included.
inline Whole random_trace(uint64_t seed, size_t most_references) {
  std::mt19937_64 random(seed);
  const auto below = [&random](uint64_t n) { return random() % n; };
  const auto processors = static_cast<unsigned>(below(4) == 0 ? 1 + below(300) : 1 + below(5));
  const auto sites = static_cast<unsigned>(1 + below(below(2) == 0 ? 6 : 60));
  Whole trace;
  trace.header = some_header(processors, sites, 1 + static_cast<unsigned>(below(4)));
  const size_t count = below(most_references + 1);
  const uint64_t noise = below(4) == 0 ? 100 : below(30);  // per cent
  const uint64_t longest_run = 1 + below(below(2) == 0 ? 3 : 400);
  struct Walker {
    std::vector<std::pair<SiteId, uint64_t>> loop;  // site and stride
    std::vector<uint64_t> at;
    size_t next = 0;
  };
  std::vector<Walker> walkers(processors);
  const auto event = [&] {
    trace.events.push_back({.position = trace.references.size(),
                            .address = below(3) == 0 ? 0 : random() >> below(64),
                            .value = below(3) == 0 ? 0 : random() >> below(64),
                            .name = static_cast<uint32_t>(below(trace.header.names.size())),
                            .site = static_cast<SiteId>(below(sites)),
                            .processor = static_cast<ProcessorId>(below(processors)),
                            .kind = static_cast<EventKind>(below(8))});
  };
  const uint64_t events = below(3) == 0 ? 0 : 1 + below(50);
  while (trace.references.size() < count) {
    const auto p = static_cast<ProcessorId>(below(processors));
    Walker& walker = walkers[p];
    for (uint64_t run = 1 + below(longest_run); run > 0 && trace.references.size() < count; --run) {
      if (events != 0 && below(events) == 0) event();
      if (walker.loop.empty() || below(200) == 0) {
        walker = {};
        for (uint64_t n = 1 + below(5); n > 0; --n) {
          walker.loop.emplace_back(static_cast<SiteId>(below(sites)), below(2) == 0 ? 8 : random() >> below(64));
          walker.at.push_back(random() >> below(64));
        }
      }
      if (below(100) < noise) {
        walker.next = below(walker.loop.size());
        walker.at[walker.next] = below(2) == 0 ? random() >> below(64) : walker.at[below(walker.at.size())] + 8;
      }
      const auto& [site, stride] = walker.loop[walker.next];
      trace.references.push_back(
          {.address = walker.at[walker.next],
           .site = site,
           .processor = p,
           .access = (site + (below(100) < noise ? 1 : 0)) % 2 == 0 ? Access::kRead : Access::kWrite,
           .size = static_cast<uint8_t>(below(50) == 0 ? 1 + below(255) : 8)});
      walker.at[walker.next] += stride;
      walker.next = (walker.next + 1) % walker.loop.size();
    }
  }
  if (below(2) == 0) event();
  return trace;
}

inline void write_file(const std::string& path, const Whole& trace, WriteOptions options = {}) {
  TraceInMemory memory(trace.header, trace.references, trace.events);
  auto writer = TraceWriter::create(path, trace.header, options);
  ASSERT_TRUE(writer) << writer.error().message;
  while (true) {
    const auto batch = memory.next();
    ASSERT_TRUE(batch);
    if (batch->references.empty() && batch->events.empty()) break;
    const Status status = (*writer)->append(*batch);
    ASSERT_TRUE(status) << status.error().message;
  }
  ASSERT_EQ((*writer)->references(), trace.references.size());
  ASSERT_EQ((*writer)->events(), trace.events.size());
  const Status status = (*writer)->finish();
  ASSERT_TRUE(status) << status.error().message;
}

inline void expect_same(const Whole& expected, const Whole& read) {
  EXPECT_EQ(read.error, "");
  EXPECT_EQ(read.references.size(), expected.references.size());
  EXPECT_EQ(read.events.size(), expected.events.size());
  EXPECT_TRUE(begins_with(expected, read));
  EXPECT_EQ(read.header.processors, expected.header.processors);
  EXPECT_EQ(read.header.program, expected.header.program);
  EXPECT_EQ(read.header.recorder, expected.header.recorder);
  EXPECT_EQ(read.header.dilation, expected.header.dilation);
  EXPECT_EQ(read.header.names, expected.header.names);
  ASSERT_EQ(read.header.sites.size(), expected.header.sites.size());
  for (size_t i = 0; i < expected.header.sites.size(); ++i) {
    EXPECT_EQ(read.header.sites[i].file, expected.header.sites[i].file);
    EXPECT_EQ(read.header.sites[i].function, expected.header.sites[i].function);
    EXPECT_EQ(read.header.sites[i].line, expected.header.sites[i].line);
  }
}

}  // namespace multigrain::trace
