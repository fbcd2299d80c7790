// Records small programs (programs/*.c) whose references and whose order are known, with both recorders.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "trace/format/trace_file.h"
#include "trace/format/trace_writer.h"
#include "trace/record/recorder.h"
#include "trace/record/single_step.h"

namespace multigrain::trace {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

const std::string kPrograms = MULTIGRAIN_TRACED_PROGRAMS;
const std::string kMgtrace = MULTIGRAIN_MGTRACE;

// A folder that goes with the test.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "multigrain-record-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  [[nodiscard]] std::string path() const { return path_.string(); }
  [[nodiscard]] size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  fs::path path_;
};

struct Whole {
  TraceHeader header;
  std::vector<Reference> references;
  std::vector<Event> events;

  // The block that the first allocation of this name made: address, and bytes.
  [[nodiscard]] std::pair<uint64_t, uint64_t> allocation(const std::string& name) const {
    for (const Event& event : events) {
      if (event.kind == EventKind::kAllocate && header.names[event.name] == name) return {event.address, event.value};
    }
    ADD_FAILURE() << "no allocation is called " << name;
    return {0, 0};
  }
  // The positions of references to an allocation, in order.
  [[nodiscard]] std::vector<size_t> references_to(const std::string& name) const {
    const auto [begin, bytes] = allocation(name);
    std::vector<size_t> found;
    for (size_t i = 0; i < references.size(); ++i) {
      if (references[i].address - begin < bytes) found.push_back(i);
    }
    return found;
  }
  [[nodiscard]] uint64_t private_references() const {
    uint64_t sum = 0;
    for (const Event& event : events) sum += event.kind == EventKind::kPrivate ? event.value : 0;
    return sum;
  }
};

Whole read_all(TraceSource& source) {
  Whole whole;
  for (;;) {
    auto batch = source.next();
    if (!batch) {
      ADD_FAILURE() << batch.error().message;
      break;
    }
    if (batch->references.empty() && batch->events.empty()) break;
    EXPECT_EQ(batch->first, whole.references.size());
    EXPECT_LE(batch->references.size(), TraceSource::kBatch);
    for (const Event& event : batch->events) {
      EXPECT_LE(batch->first, event.position);
      EXPECT_LE(event.position, batch->first + batch->references.size());
    }
    whole.references.insert(whole.references.end(), batch->references.begin(), batch->references.end());
    whole.events.insert(whole.events.end(), batch->events.begin(), batch->events.end());
  }
  whole.header = source.header();
  return whole;
}

// Records a program that the pass compiled; its output is that of the test.
Whole record(const std::string& program, const std::vector<std::string>& arguments = {}, RunResult* run = nullptr,
             RecordOptions options = {}) {
  const Folder folder;
  options.command = {kPrograms + "/" + program + ".traced"};
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  options.scratch_directory = folder.path();
  auto recording = record_program(options);
  if (!recording) {
    ADD_FAILURE() << recording.error().message;
    return {};
  }
  EXPECT_EQ(folder.files(), 0u);
  if (run != nullptr) *run = recording->run;
  return read_all(*recording->trace);
}

// Runs a shell command; its exit status, and what it printed on both outputs.
std::pair<int, std::string> shell(const std::string& command) {
  FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
  std::string output;
  std::array<char, 4096> buffer;
  while (const size_t got = fread(buffer.data(), 1, buffer.size(), pipe)) output.append(buffer.data(), got);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

TEST(RecordTest, ExactlyTheReferencesOfTheProgram) {
  RunResult run;
  const Whole trace = record("exact", {}, &run);
  EXPECT_EQ(run.exit_status, 0);
  EXPECT_EQ(trace.header.processors, 1u);

  // block: 100 writes at line 9, 100 reads at line 14, 8 words read by the copy at line 19.
  const auto [block, bytes] = trace.allocation("block");
  EXPECT_EQ(bytes, 400u);
  const std::vector<size_t> to_block = trace.references_to("block");
  ASSERT_EQ(to_block.size(), 208u);
  for (size_t i = 0; i < to_block.size(); ++i) {
    const Reference& made = trace.references[to_block[i]];
    const Site& site = trace.header.sites[made.site];
    EXPECT_EQ(fs::path(site.file).filename(), "exact.c");
    if (i < 100) {
      EXPECT_EQ(made.access, Access::kWrite);
      EXPECT_EQ(site.line, 9u);
      EXPECT_EQ(site.function, "fill");
    } else {
      EXPECT_EQ(made.access, Access::kRead);
      EXPECT_EQ(site.line, i < 200 ? 14u : 19u);
      EXPECT_EQ(site.function, i < 200 ? "sum" : "copy");
    }
    EXPECT_EQ(made.size, i < 200 ? 4 : 8);
    EXPECT_EQ(made.address, block + (i < 200 ? i % 100 * 4 : (i - 200) * 8)) << i;
  }
  // other: 8 words written by the copy, one character read.
  EXPECT_EQ(trace.allocation("other").second, 64u);
  EXPECT_EQ(trace.references_to("other").size(), 9u);
  // counter: a global, read and written by the atomic addition at line 34.
  const std::vector<size_t> to_counter = trace.references_to("counter");
  ASSERT_EQ(to_counter.size(), 2u);
  EXPECT_EQ(trace.references[to_counter[0]].access, Access::kRead);
  EXPECT_EQ(trace.references[to_counter[1]].access, Access::kWrite);
  EXPECT_EQ(trace.header.sites[trace.references[to_counter[1]].site].line, 34u);
  // ticker: its reads follow the thread's own writes, so they are no busy waiting.
  EXPECT_EQ(trace.references_to("ticker").size(), 20u);
  // Nothing else, and the array on the stack as private references.
  EXPECT_EQ(trace.references.size(), 208u + 9u + 2u + 20u);
  EXPECT_GE(trace.private_references(), 200u);
  EXPECT_LT(trace.private_references(), 220u);
}

TEST(RecordTest, AllocationsHaveSitesAndEnds) {
  const Whole trace = record("exact");
  const auto [block, bytes] = trace.allocation("block");
  bool allocated = false;
  bool freed = false;
  for (const Event& event : trace.events) {
    if (event.address != block) continue;
    if (event.kind == EventKind::kAllocate && trace.header.names[event.name] == "block") {
      EXPECT_EQ(trace.header.sites[event.site].line, 26u);
      allocated = true;
    }
    if (event.kind == EventKind::kFree) {
      EXPECT_TRUE(allocated);
      EXPECT_EQ(event.position, trace.references.size());
      freed = true;
    }
  }
  EXPECT_TRUE(allocated);
  EXPECT_TRUE(freed);
}

// The block of a realloc that failed is still there, so that what refers to it afterwards has a name.
TEST(RecordTest, AReallocThatFailsEndsNothing) {
  RunResult run;
  const Whole trace = record("realloc", {}, &run);
  EXPECT_EQ(run.exit_status, 0);
  const auto [block, bytes] = trace.allocation("block");
  EXPECT_EQ(bytes, 64u);
  const std::vector<size_t> to_block = trace.references_to("block");
  ASSERT_EQ(to_block.size(), 2u);
  std::vector<uint64_t> ends;
  for (const Event& event : trace.events)
    if (event.kind == EventKind::kFree && event.address == block) ends.push_back(event.position);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_GT(ends[0], to_block[1]);
  // The one that succeeded gave the data a new block, at another address or at the old one, with an end of its own.
  EXPECT_EQ(trace.allocation("grown").second, uint64_t{1} << 20);
  uint64_t begun = 0, ended = 0;
  for (const Event& event : trace.events) {
    begun += event.kind == EventKind::kAllocate;
    ended += event.kind == EventKind::kFree;
  }
  EXPECT_GE(begun, 2u);
  EXPECT_EQ(ended, 2u);
}

constexpr unsigned kThreads = 4;
constexpr unsigned kRounds = 50;
constexpr unsigned kPhases = 10;

TEST(RecordTest, OrderRespectsSynchronisation) {
  const Whole trace = record("order");
  ASSERT_EQ(trace.header.processors, kThreads + 1);

  // A lock: critical sections in the order in which they were run, which the array's indices tell.
  const auto [log, log_bytes] = trace.allocation("*log_of_lock");
  uint64_t expected = log;
  for (const size_t i : trace.references_to("*log_of_lock")) {
    EXPECT_EQ(trace.references[i].access, Access::kWrite);
    EXPECT_EQ(trace.references[i].address, expected);
    expected += 4;
  }
  EXPECT_EQ(expected, log + 4 * kThreads * kRounds);

  // A barrier: all of a phase's writes, then all of its reads, before the next phase's.
  std::vector<std::array<unsigned, 2>> seen(kPhases);
  const auto [slots, slots_bytes] = trace.allocation("*slots");
  for (const size_t i : trace.references_to("*slots")) {
    const Reference& made = trace.references[i];
    const size_t phase = (made.address - slots) / (4 * kThreads);
    ASSERT_LT(phase, kPhases);
    ++seen[phase][made.access == Access::kWrite];
    if (made.access == Access::kRead) {
      EXPECT_EQ(seen[phase][1], kThreads);
    } else if (phase >= 2) {
      EXPECT_EQ(seen[phase - 2][0], kThreads * kThreads);
    }
  }
  for (const auto& [reads, writes] : seen) {
    EXPECT_EQ(writes, kThreads);
    EXPECT_EQ(reads, kThreads * kThreads);
  }

  // What is written before an atomic or volatile flag, or a semaphore, and read after it.
  for (const char* name : {"*by_atomic", "*by_volatile", "*by_semaphore"}) {
    const std::vector<size_t> made = trace.references_to(name);
    ASSERT_EQ(made.size(), kThreads) << name;
    EXPECT_EQ(trace.references[made[0]].access, Access::kWrite) << name;
    for (size_t i = 1; i < made.size(); ++i) EXPECT_EQ(trace.references[made[i]].access, Access::kRead) << name;
  }

  // A condition hands its array from thread to thread; main reads last.
  std::vector<ProcessorId> order;
  for (const size_t i : trace.references_to("*by_condition")) {
    if (order.empty() || order.back() != trace.references[i].processor) order.push_back(trace.references[i].processor);
  }
  EXPECT_EQ(order, (std::vector<ProcessorId>{1, 2, 3, 4, 0}));

  // Joins: main reads each thread's result after that thread's end; a thread starts after main's last allocation.
  std::map<ProcessorId, uint64_t> ends;
  uint64_t last_allocation = 0;
  std::map<ProcessorId, uint64_t> starts;
  for (const Event& event : trace.events) {
    if (event.kind == EventKind::kEnd) ends[event.processor] = event.position;
    if (event.kind == EventKind::kStart) starts[event.processor] = event.position;
    if (event.kind == EventKind::kAllocate && trace.header.names[event.name] == "*by_join") {
      last_allocation = event.position;
    }
  }
  ASSERT_EQ(starts.size(), kThreads + 1);
  const auto [results, results_bytes] = trace.allocation("*by_join");
  unsigned joins = 0;
  for (const size_t i : trace.references_to("*by_join")) {
    const Reference& made = trace.references[i];
    if (made.processor != 0) {
      EXPECT_GE(i, starts[made.processor]);
      EXPECT_LT(i, ends[made.processor]);
      continue;
    }
    EXPECT_GE(i, ends[static_cast<ProcessorId>(1 + (made.address - results) / 4)]);
    ++joins;
  }
  EXPECT_EQ(joins, kThreads);
  for (ProcessorId processor = 1; processor <= kThreads; ++processor) EXPECT_GE(starts[processor], last_allocation);
}

// What several threads use on a stack is memory like any other: main's counters are in its frame.
TEST(RecordTest, StacksAreSharedWhereOtherThreadsUseThem) {
  RunResult run;
  const Whole trace = record("stack", {}, &run);
  EXPECT_EQ(run.exit_status, 0);
  // A thread reads and writes its counter 1,000 times; main reads all four, and each thread's result.
  std::map<ProcessorId, unsigned> made;
  std::set<uint64_t> counters;
  for (const size_t i : trace.references_to("stack of processor 0")) {
    const Reference& reference = trace.references[i];
    ++made[reference.processor];
    if (reference.access != Access::kWrite) continue;
    const Site& site = trace.header.sites[reference.site];
    EXPECT_EQ(site.function, "count, on counter.hits (long)");
    EXPECT_EQ(site.line, 9u);
    counters.insert(reference.address);
  }
  for (ProcessorId processor = 1; processor <= 4; ++processor) EXPECT_EQ(made[processor], 2000u) << processor;
  EXPECT_GE(made[0], 4u);
  EXPECT_EQ(counters.size(), 4u);
  EXPECT_EQ(*counters.rbegin() - *counters.begin(), 24u);
  // The counters in the threads' own frames are nobody else's.
  for (const Reference& reference : trace.references) {
    if (reference.processor != 0) {
      EXPECT_TRUE(counters.contains(reference.address));
    }
  }
  EXPECT_GE(trace.private_references(), 8000u);
}

// Threads have processors of their own if one does not come after another, whichever the host ran first.
TEST(RecordTest, ShortThreadsAreNotOneAfterAnotherByChance) {
  for (int i = 0; i < 20; ++i) EXPECT_EQ(record("stack").header.processors, 5u);
}

TEST(RecordTest, ThreadsOfC11AreOrdered) {
  RunResult run;
  const Whole trace = record("c11", {}, &run);
  EXPECT_EQ(run.exit_status, 0);
  ASSERT_EQ(trace.header.processors, 5u);
  // Main writes the input before the threads are there.
  const std::vector<size_t> input = trace.references_to("*input");
  ASSERT_EQ(input.size(), 250u);
  for (size_t i = 0; i < input.size(); ++i) EXPECT_EQ(trace.references[input[i]].processor == 0, i < 50) << i;
  // Critical sections come in the order in which they were run, which the array's indices tell.
  uint64_t expected = trace.allocation("*log_of_lock").first;
  for (const size_t i : trace.references_to("*log_of_lock")) {
    EXPECT_EQ(trace.references[i].access, Access::kWrite);
    EXPECT_EQ(trace.references[i].address, expected);
    expected += 4;
  }
  unsigned acquires = 0;
  for (const Event& event : trace.events) acquires += event.kind == EventKind::kAcquire;
  EXPECT_GE(acquires, 200u);
}

TEST(RecordTest, VectorInstructionsWithAMaskAreRecorded) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "this processor has no AVX2";
  RunResult run;
  const Whole trace = record("masked", {}, &run);
  EXPECT_EQ(run.exit_status, 0);
  const struct {
    const char* name;
    Access access;
    bool backwards;
  } arrays[] = {
      {"*stored", Access::kWrite, false}, {"*loaded", Access::kRead, false}, {"*gathered", Access::kRead, true}};
  for (const auto& array : arrays) {
    SCOPED_TRACE(array.name);
    const uint64_t begin = trace.allocation(array.name).first;
    const std::vector<size_t> made = trace.references_to(array.name);
    ASSERT_EQ(made.size(), 512u);
    for (size_t i = 0; i < made.size(); ++i) {
      const Reference& reference = trace.references[made[i]];
      EXPECT_EQ(reference.access, array.access);
      EXPECT_EQ(reference.size, 4);
      EXPECT_EQ(reference.address, begin + 4 * (array.backwards ? 1022 - 2 * i : 2 * i + 1));
    }
  }
}

// Which thread gets a lock first is decided while the program runs, and must not be by whom the machine lets run: behind a
// barrier the others have to be waited for before they have run again.
TEST(RecordTest, ThreadsThatLeaveABarrierKeepPace) {
  RunResult run;
  const Whole trace = record("pace", {}, &run);
  EXPECT_EQ(run.exit_status, 0) << "1: a thread has had two turns before another had its first";
  EXPECT_EQ(trace.header.processors, 5u);
}

TEST(RecordTest, OpenMpIsOrdered) {
  for (int round = 0; round < 10; ++round) {
    RunResult run;
    const Whole trace = record("openmp", {}, &run);
    EXPECT_EQ(run.exit_status, 0);
    ASSERT_GE(trace.header.processors, kThreads);
    // A region begins after what the thread before it has written.
    bool has_read = false;
    for (const size_t i : trace.references_to("*by_region")) {
      has_read |= trace.references[i].access == Access::kRead;
      EXPECT_EQ(trace.references[i].access == Access::kRead, has_read);
    }
    EXPECT_TRUE(has_read);
    // A barrier: all of a phase's writes, then all of its reads, before the next phase's.
    std::vector<std::array<unsigned, 2>> seen(kPhases);
    const uint64_t slots = trace.allocation("*slots").first;
    for (const size_t i : trace.references_to("*slots")) {
      const Reference& made = trace.references[i];
      const size_t phase = (made.address - slots) / (4 * kThreads);
      ASSERT_LT(phase, kPhases);
      ++seen[phase][made.access == Access::kWrite];
      if (made.access == Access::kRead) {
        EXPECT_EQ(seen[phase][1], kThreads);
      } else if (phase >= 1) {
        EXPECT_EQ(seen[phase - 1][0], kThreads * kThreads);
      }
    }
    for (const auto& [reads, writes] : seen) {
      EXPECT_EQ(writes, kThreads);
      EXPECT_EQ(reads, kThreads * kThreads);
    }
    // A critical section.
    uint64_t expected = trace.allocation("*log_of_lock").first;
    for (const size_t i : trace.references_to("*log_of_lock")) {
      EXPECT_EQ(trace.references[i].address, expected);
      expected += 4;
    }
    // Tasks end before the thread that waits for them goes on.
    unsigned writes = 0;
    for (const size_t i : trace.references_to("*by_task")) {
      writes += trace.references[i].access == Access::kWrite;
      if (trace.references[i].access == Access::kRead) {
        EXPECT_EQ(writes, 40u);
      }
    }
    EXPECT_EQ(writes, 40u);
  }
}

// Lock events: no two processors hold a lock at once.
TEST(RecordTest, LocksAreHeldByOneProcessor) {
  const Whole trace = record("order");
  std::map<uint64_t, ProcessorId> holders;
  unsigned acquires = 0;
  for (const Event& event : trace.events) {
    if (event.kind == EventKind::kAcquire) {
      EXPECT_TRUE(holders.emplace(event.address, event.processor).second) << event.position;
      ++acquires;
    } else if (event.kind == EventKind::kRelease) {
      const auto holder = holders.find(event.address);
      ASSERT_NE(holder, holders.end());
      EXPECT_EQ(holder->second, event.processor);
      holders.erase(holder);
    }
  }
  EXPECT_TRUE(holders.empty());
  EXPECT_GE(acquires, kThreads * kRounds);
}

TEST(RecordTest, KilledProgramLeavesAPrefix) {
  RunResult run;
  const Whole trace = record("long", {"100000", "kill"}, &run);
  EXPECT_EQ(run.signal, SIGKILL);
  EXPECT_EQ(run.exit_status, 128 + SIGKILL);
  const std::vector<size_t> made = trace.references_to("block");
  ASSERT_EQ(made.size(), 100000u);
  const uint64_t begin = trace.allocation("block").first;
  for (size_t i = 0; i < made.size(); ++i) ASSERT_EQ(trace.references[made[i]].address, begin + 4 * i);
  EXPECT_EQ(trace.events.back().kind, EventKind::kEnd);
}

TEST(RecordTest, FullDiskIsASentenceAndAPrefix) {
  const Folder folder;
  // The records of a million references that have nothing in common do not fit in 4 MiB; the merged trace does.
  const auto [status, output] = shell("bash -c 'ulimit -f 4096; exec " + kMgtrace + " record -o " + folder / "t.mgt" +
                                      " " + kPrograms + "/long.traced 1000000'");
  EXPECT_EQ(status, 1) << output;
  EXPECT_THAT(output, HasSubstr("recording stopped before the program did"));
  EXPECT_THAT(output, HasSubstr("File too large"));
  EXPECT_EQ(folder.files(), 1u);
  auto file = TraceFile::open(folder / "t.mgt");
  ASSERT_TRUE(file) << file.error().message;
  const Whole trace = read_all(**file);
  const std::vector<size_t> made = trace.references_to("block");
  EXPECT_GT(made.size(), 100000u);
  EXPECT_LT(made.size(), 400000u);
  const uint64_t begin = trace.allocation("block").first;
  for (size_t i = 0; i < made.size(); ++i) ASSERT_EQ(trace.references[made[i]].address, begin + 4 * i);
}

TEST(RecordTest, LimitStopsTheRecordingButNotTheProgram) {
  const Folder folder;
  const auto [status, output] =
      shell(kMgtrace + " record --limit 50000 -o " + folder / "t.mgt" + " " + kPrograms + "/long.traced 1000000");
  EXPECT_EQ(status, 1) << output;
  EXPECT_THAT(output, HasSubstr("6999993"));  // the program's own last line
  EXPECT_THAT(output, HasSubstr("the limit on references was reached"));
  auto file = TraceFile::open(folder / "t.mgt");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_GE((*file)->references(), 50000u);
  EXPECT_LT((*file)->references(), 100000u);
}

// A loop's references have one record, and the limit may be within it.
TEST(RecordTest, LimitStopsTheRecordingWithinALoop) {
  const Folder folder;
  const auto [status, output] =
      shell(kMgtrace + " record --limit 50000 -o " + folder / "t.mgt" + " " + kPrograms + "/long.traced 1000000 loop");
  EXPECT_EQ(status, 1) << output;
  EXPECT_THAT(output, HasSubstr("the limit on references was reached"));
  auto file = TraceFile::open(folder / "t.mgt");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_NEAR(static_cast<double>((*file)->references()), 50000.0, 1000.0);
}

// What one record says of a whole loop or block is what its references were, one by one. (Vectors, and loops that the compiler has
// unrolled, would make others: the program is compiled without.)
TEST(RecordTest, LoopsHaveTheirReferencesInOrder) {
  const Whole trace = record("loops");
  constexpr uint64_t kSize = 24;
  const uint64_t first = trace.allocation("first").first, second = trace.allocation("second").first;
  const uint64_t nodes = trace.allocation("nodes").first;
  std::vector<std::pair<uint64_t, Access>> expected;
  const auto read = [&](uint64_t block, uint64_t i) { expected.emplace_back(block + 4 * i, Access::kRead); };
  const auto write = [&](uint64_t block, uint64_t i) { expected.emplace_back(block + 4 * i, Access::kWrite); };
  for (uint64_t i = 0; i < kSize; i += 3) write(first, i);
  for (uint64_t i = 0; i < kSize / 4; ++i) write(first, 4 * i);
  for (uint64_t i = 0; i < kSize; ++i) write(second, i);
  for (uint64_t i = 0; i < 8; ++i) read(second, 7 - i), read(first, i), write(first, i);
  for (uint64_t i = 0; i <= 5; ++i) read(second, i);
  const size_t before_nodes = expected.size();
  for (uint64_t i = 0; i < 4; ++i) {
    read(second, i);
    if (i % 2 == 0) read(second, i + 1), read(first, i + 2), write(first, i);
  }
  std::vector<std::pair<uint64_t, Access>> found, found_of_nodes;
  for (const Reference& reference : trace.references) {
    const bool is_of_blocks = reference.address - first < 4 * kSize || reference.address - second < 4 * kSize;
    if (is_of_blocks) found.emplace_back(reference.address, reference.access);
    if (reference.address - nodes >= 48) continue;
    if (reference.access == Access::kRead) found_of_nodes.emplace_back(reference.address, reference.access);
  }
  EXPECT_GT(before_nodes, 60u);
  EXPECT_EQ(found, expected);
  // walk() reads a value and a pointer of each node, in whatever order the compiler has chosen.
  ASSERT_EQ(found_of_nodes.size(), 6u);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ((found_of_nodes[i].first - nodes) / 16, i / 2);
}

// Writes of one integer after another, each a record, or all of them one: what is left of them are the bursts, whole, one in each
// interval, and all events.
TEST(RecordTest, SamplingTakesBurstsToTheReference) {
  constexpr uint64_t kCount = 200000, kBurst = 300, kInterval = 10000;
  RecordOptions options;
  options.bursts = {.burst = kBurst, .interval = kInterval};
  for (const bool loop : {false, true}) {
    const Whole trace = record("long", {std::to_string(kCount), loop ? "loop" : ""}, nullptr, options);
    const uint64_t block = trace.allocation("block").first;
    // The runs of integers that follow each other.
    std::vector<std::pair<uint64_t, uint64_t>> runs;
    for (const size_t i : trace.references_to("block")) {
      if (trace.references[i].access != Access::kWrite) continue;
      const uint64_t written = (trace.references[i].address - block) / 4;
      if (!runs.empty() && runs.back().first + runs.back().second == written) {
        ++runs.back().second;
      } else {
        ASSERT_TRUE(runs.empty() || runs.back().first + runs.back().second < written);
        runs.emplace_back(written, 1);
      }
    }
    ASSERT_GE(runs.size(), kCount / kInterval - 1) << loop;
    ASSERT_LE(runs.size(), kCount / kInterval + 1) << loop;
    std::set<uint64_t> offsets;  // in the interval, by hundreds
    for (size_t i = 1; i + 1 < runs.size(); ++i) {
      EXPECT_EQ(runs[i].second, kBurst) << i;
      EXPECT_GT(runs[i + 1].first - runs[i].first, kBurst);
      EXPECT_LT(runs[i + 1].first - runs[i].first, 2 * kInterval);
      offsets.insert(runs[i].first % kInterval / 100);
    }
    EXPECT_GT(offsets.size(), 8u) << "bursts keep step with the intervals";
    const Sampling& sampling = trace.header.sampling;
    EXPECT_EQ(sampling.burst, kBurst);
    EXPECT_EQ(sampling.interval, kInterval);
    EXPECT_NEAR(sampling.scale * static_cast<double>(trace.references.size()), kCount, 10);
    EXPECT_EQ(std::ranges::count(trace.events, EventKind::kFree, &Event::kind), 1);
  }
}

// Threads have their bursts at the same time, so what they do to each other is in them, and counts are about those of the run.
TEST(RecordTest, SamplingKeepsWhatThreadsDoToEachOther) {
  const Folder folder;
  const std::string program = kPrograms + "/sampled.traced 300000";
  const auto all = shell(kMgtrace + " record --json -o " + folder / "all.mgt " + program);
  const auto some = shell(kMgtrace + " record --json --sample 2000/50000 -o " + folder / "some.mgt " + program);
  ASSERT_EQ(all.first, 0) << all.second;
  ASSERT_EQ(some.first, 0) << some.second;
  EXPECT_LT(fs::file_size(folder / "some.mgt") * 2, fs::file_size(folder / "all.mgt"));
  const auto study_of = [&](const std::string& trace) {
    return nlohmann::json::parse(shell(kMgtrace + " sharing --json " + folder / trace).second);
  };
  const nlohmann::json whole = study_of("all.mgt"), sampled = study_of("some.mgt");
  EXPECT_TRUE(whole["trace"]["sampling"].is_null());
  const double scale = sampled["trace"]["sampling"]["scale"].get<double>();
  EXPECT_NEAR(scale, 25, 3);
  EXPECT_NEAR(scale * sampled["trace"]["references"].get<double>(), whole["trace"]["references"].get<double>(), 10);
  const auto useless = [](const nlohmann::json& study) {
    return study["false_sharing"]["attribution"]["moves"]["false"].get<double>();
  };
  EXPECT_GT(useless(whole), 100000);
  EXPECT_NEAR(scale * useless(sampled) / useless(whole), 1, 0.1);
  const auto text = shell(kMgtrace + " sharing " + folder / "some.mgt").second;
  EXPECT_THAT(text, HasSubstr("Sampled: bursts of 2,000 in each 50,000"));
  EXPECT_THAT(text, HasSubstr("sampled.c:11 (add)"));
  EXPECT_THAT(shell(kMgtrace + " info " + folder / "some.mgt").second, HasSubstr("bursts of 2000 in each 50000"));
  // A part of it is a sample as well.
  ASSERT_EQ(shell(kMgtrace + " filter --references 0-1000 -o " + folder / "part.mgt " + folder / "some.mgt").first, 0);
  EXPECT_THAT(shell(kMgtrace + " analyze --machine ace " + folder / "part.mgt").second,
              HasSubstr("Sampled: bursts of"));
}

// Fields have their names and types, and inlined functions their callers.
TEST(RecordTest, SharingNamesFieldsAndInlinedFrames) {
  const Folder folder;
  const auto [status, output] =
      shell("TMPDIR=" + folder.path() + " " + kMgtrace + " sharing -- " + kPrograms + "/fields.traced");
  EXPECT_EQ(status, 0) << output;
  EXPECT_THAT(output, HasSubstr("1  table"));
  EXPECT_THAT(output, HasSubstr("fields.c:19 (count, on pair.second (amount), in left (fields.c:25))"));
  EXPECT_THAT(output, HasSubstr("fields.c:19 (count, on pair.second (amount), in right (fields.c:29))"));
}

// Where a function is not inlined, its references have the calls that led to it: through pointers, behind a longjmp, and from a
// recursion, whose levels do not count.
TEST(RecordTest, ReferencesHaveTheCallsThatLedThere) {
  const Whole trace = record("calls");
  std::map<ProcessorId, std::map<std::string, unsigned>> found;
  for (const size_t i : trace.references_to("counters")) {
    const Reference& made = trace.references[i];
    std::string calls;
    for (SiteId site = made.site; site != 0; site = trace.header.sites[site].caller) {
      const Site& at = trace.header.sites[site];
      calls += (calls.empty() ? "" : " < ") + at.function + ":" + std::to_string(at.line);
    }
    ++found[made.processor][calls];
  }
  using Calls = std::map<std::string, unsigned>;
  EXPECT_EQ(found[0], (Calls{{"add:16 < main:50", 1000u}}));
  EXPECT_EQ(found[1], (Calls{{"add:16 < twice:21 < left:39", 2000u}}));
  EXPECT_EQ(found[2], (Calls{{"add:16 < deep:28 < right:43", 1000u}}));

  const Folder folder;
  const auto [status, output] =
      shell("TMPDIR=" + folder.path() + " " + kMgtrace + " sharing -- " + kPrograms + "/calls.traced");
  EXPECT_EQ(status, 0) << output;
  EXPECT_THAT(output, HasSubstr("wants it: called from twice at calls.c:21, left at calls.c:39\n"));
  EXPECT_THAT(output, HasSubstr("has written: called from deep at calls.c:28, right at calls.c:43\n"));
}

TEST(RecordTest, BadCommandsAreSentences) {
  const Folder folder;
  const std::string record = kMgtrace + " record -o " + folder / "t.mgt ";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "there is no program to record"},
      {"--frobnicate x", "there is no option '--frobnicate'"},
      {"/no/such/program", "cannot run '/no/such/program': No such file or directory"},
      {"--single-step /no/such/program", "cannot run '/no/such/program': No such file or directory"},
      {"/bin/true", "build it with 'mgtrace cc'"},
      {"--sample 5 " + kPrograms + "/exact.traced", "--sample 5: give BURST/INTERVAL"},
      {"--sample 5/5 " + kPrograms + "/exact.traced", "--sample 5/5: give BURST/INTERVAL"},
      {"--sample 1/9x " + kPrograms + "/exact.traced", "--sample 1/9x: give BURST/INTERVAL"},
      {"--sample 1/100000000 " + kPrograms + "/exact.traced",
       "in a burst: bursts of 1 in intervals of 100000000 are too few"},
      {"--single-step --sample 5/10 " + kPrograms + "/exact", "--sample is for programs that 'mgtrace cc' has built"},
      {"--scratch /no/such/folder " + kPrograms + "/exact.traced", "cannot make a file for the recorder's streams"},
  };
  for (const auto& [arguments, sentence] : cases) {
    const auto [status, output] = shell(record + arguments);
    EXPECT_EQ(status, 2) << arguments;
    EXPECT_THAT(output, HasSubstr(sentence)) << arguments;
    EXPECT_EQ(folder.files(), 0u) << arguments;
  }
  const auto [first, written] = shell(record + kPrograms + "/exact.traced");
  EXPECT_EQ(first, 0) << written;
  const auto size = fs::file_size(folder / "t.mgt");
  const auto [second, refused] = shell(record + kPrograms + "/order.traced");
  EXPECT_EQ(second, 2);
  EXPECT_THAT(refused, HasSubstr("exists"));
  EXPECT_EQ(fs::file_size(folder / "t.mgt"), size);
}

TEST(RecordTest, DilationIsAgainstTheBaselineThatIsNamed) {
  const Folder folder;
  const std::string record = kMgtrace + " record --json -f -o " + folder / "t.mgt ";
  const std::string program = kPrograms + "/exact";
  EXPECT_THAT(shell(record + program + ".traced").second, HasSubstr("\"baseline\": \"not measured\""));
  EXPECT_THAT(shell(record + "--baseline " + program + ".traced " + program + ".traced").second,
              HasSubstr("\"baseline\": \"instrumented, with recording off\""));
  EXPECT_THAT(shell(record + "--baseline " + program + " " + program + ".traced").second,
              HasSubstr("\"baseline\": \"without instrumentation\""));
  auto file = TraceFile::open(folder / "t.mgt");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_GT((*file)->header().dilation, 0);
}

// A program is recorded first, and its trace does not stay, unless it is asked for.
TEST(RecordTest, SharingRecordsAProgram) {
  const Folder folder;
  const auto [status, output] = shell("cd " + folder.path() + " && TMPDIR=" + folder.path() + " " + kMgtrace +
                                      " sharing -- " + kPrograms + "/stack.traced");
  EXPECT_EQ(status, 0) << output;
  EXPECT_THAT(output, HasSubstr("1  stack of processor 0"));
  EXPECT_THAT(
      output,
      HasSubstr(
          "stack.c:9 (count, on counter.hits (long)) wants the line that stack.c:9 (count, on counter.hits (long)) "
          "has written"));
  EXPECT_EQ(folder.files(), 0u);
  EXPECT_EQ(shell(kMgtrace + " sharing -o " + folder / "t.mgt" + " " + kPrograms + "/threads.traced").first, 7);
  EXPECT_EQ(folder.files(), 1u);
}

// A program that is recorded may have effects that must not happen twice.
TEST(RecordTest, TheProgramRunsOnce) {
  const Folder folder;
  const std::string log = folder / "log";
  const std::string once = "sh -c 'echo ran >> " + log + "; exec " + kPrograms + "/exact.traced'";
  const auto [status, output] = shell(kMgtrace + " record -o " + folder / "t.mgt " + once);
  EXPECT_EQ(status, 0) << output;
  EXPECT_THAT(output, HasSubstr("dilation: not measured"));
  EXPECT_EQ(fs::file_size(log), 4u);
}

// The program's exit status is mgtrace's.
TEST(RecordTest, ExitStatusIsTheProgramsOwn) {
  const Folder folder;
  EXPECT_EQ(shell(kMgtrace + " record -o " + folder / "t.mgt " + kPrograms + "/long.traced 5 kill").first,
            128 + SIGKILL);
}

// Single-steps a program that was not compiled by the pass.
Result<Whole> step_through(const std::string& program, SteppedRun& run) {
  const Folder folder;
  TraceHeader header;
  header.sites.emplace_back();
  header.names.emplace_back();
  auto writer = TraceWriter::create(folder / "t.mgt", header);
  if (!writer) return tl::unexpected(writer.error());
  auto stepped = single_step({kPrograms + "/" + program}, {}, **writer);
  if (!stepped) return tl::unexpected(stepped.error());
  run = std::move(*stepped);
  if (auto status = (*writer)->finish(); !status) return tl::unexpected(status.error());
  auto file = TraceFile::open(folder / "t.mgt");
  if (!file) return tl::unexpected(file.error());
  return read_all(**file);
}

TEST(SingleStepTest, AgreesWithThePass) {
  SteppedRun run;
  auto stepped = step_through("exact", run);
  if (!stepped && stepped.error().message.find("ptrace") != std::string::npos) GTEST_SKIP() << stepped.error().message;
  ASSERT_TRUE(stepped) << stepped.error().message;
  EXPECT_EQ(run.run.exit_status, 0);
  EXPECT_GT(run.instructions, 1000u);
  EXPECT_EQ(run.processors, 1u);

  // Allocations are called after the function, and so told apart by their sizes.
  uint64_t block = 0;
  size_t freed = 0;
  for (const Event& event : stepped->events) {
    if (event.kind == EventKind::kAllocate && event.value == 400) block = event.address;
    if (event.kind == EventKind::kFree && event.address == block) freed = event.position;
  }
  ASSERT_NE(block, 0u);
  // Until the allocator has it back, which then uses it.
  std::vector<Reference> made;
  for (size_t i = 0; i < freed; ++i) {
    if (stepped->references[i].address - block < 400) made.push_back(stepped->references[i]);
  }
  const Whole compiled = record("exact");
  const std::vector<size_t> expected = compiled.references_to("block");
  const uint64_t expected_block = compiled.allocation("block").first;
  // The copy's references have the size that the C library's instructions have: only the loops' are compared one by
  // one.
  ASSERT_GT(made.size(), 200u);
  for (size_t i = 0; i < 200; ++i) {
    const Reference& other = compiled.references[expected[i]];
    ASSERT_EQ(made[i].address - block, other.address - expected_block) << i;
    ASSERT_EQ(made[i].access, other.access) << i;
    ASSERT_EQ(made[i].size, other.size) << i;
    EXPECT_EQ(stepped->header.sites[made[i].site].function, compiled.header.sites[other.site].function) << i;
  }
  uint64_t copied = 0;
  for (size_t i = 200; i < made.size(); ++i) copied += made[i].access == Access::kRead ? made[i].size : 0;
  EXPECT_EQ(copied, 64u);
}

TEST(SingleStepTest, FollowsThreads) {
  SteppedRun run;
  auto stepped = step_through("threads", run);
  if (!stepped && stepped.error().message.find("ptrace") != std::string::npos) GTEST_SKIP() << stepped.error().message;
  ASSERT_TRUE(stepped) << stepped.error().message;
  EXPECT_EQ(run.run.exit_status, 7);
  EXPECT_EQ(run.processors, 3u);
  uint64_t block = 0;
  for (const Event& event : stepped->events) {
    if (event.kind == EventKind::kAllocate && event.value == 800) block = event.address;
  }
  ASSERT_NE(block, 0u);
  // Globals have the names of the symbol table: main writes `block` once, and all read it.
  const auto [variable, bytes] = stepped->allocation("block");
  EXPECT_EQ(bytes, sizeof(int*));
  std::array<unsigned, 3> uses = {};
  for (const Reference& reference : stepped->references)
    if (reference.address == variable) ++uses[reference.processor];
  EXPECT_GE(uses[0], 2u);
  EXPECT_GE(uses[1], 1u);
  EXPECT_GE(uses[2], 1u);
  // Each thread writes its half in order, and main reads all of it afterwards.
  std::array<std::vector<uint64_t>, 3> made;
  for (const Reference& reference : stepped->references) {
    if (reference.address - block >= 800) continue;
    ASSERT_LT(reference.processor, 3u);
    EXPECT_EQ(reference.access, reference.processor == 0 ? Access::kRead : Access::kWrite);
    made[reference.processor].push_back((reference.address - block) / 4);
    if (reference.processor != 0) {
      EXPECT_TRUE(made[0].empty());
    }
  }
  ASSERT_EQ(made[0].size(), 200u);
  ASSERT_EQ(made[1].size(), 100u);
  ASSERT_EQ(made[2].size(), 100u);
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(made[1][i], i);
    EXPECT_EQ(made[2][i], 100 + i);
  }
}

}  // namespace
}  // namespace multigrain::trace
