// Imports of text: what the formats say, and a sentence for each bad line.
#include "trace/import/import.h"

#include <gmock/gmock.h>

#include "trace_files.h"

namespace multigrain::trace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Import : public testing::Test {
 protected:
  using Open = Result<std::unique_ptr<ImportSource>> (*)(const std::string&, ImportOptions);
  Whole read(Open open, const std::string& text, ImportOptions options = {}) {
    spill(directory_ / "text", text);
    auto source = open(directory_ / "text", options);
    if (!source) return {.header = {}, .references = {}, .events = {}, .error = source.error().message};
    Whole whole = read_all(**source);
    if (whole.error.empty()) {
      EXPECT_EQ((*source)->bytes_read(), text.size());
    }
    EXPECT_EQ((*source)->bytes_total(), text.size());
    return whole;
  }
  Whole csv(const std::string& text, ImportOptions options = {}) { return read(open_csv, text, options); }
  Whole lackey(const std::string& text, ImportOptions options = {}) { return read(open_lackey, text, options); }
  Whole drmemtrace(const std::string& text, ImportOptions options = {}) { return read(open_drmemtrace, text, options); }
  Whole perf(const std::string& text, ImportOptions options = {}) { return read(open_perf, text, options); }

  Directory directory_;
};

// How a trace of ours begins.
const std::string kMgt("MGTRACE\x1a\0\0\0\x01", 12);

TEST_F(Import, LackeyLoadsStoresAndModifies) {
  const Whole trace = lackey(
      "==12== Lackey, an example Valgrind tool\n"
      "I  04001090,3\n"
      "I  04001093,5\n"
      " S 1ffeffe7e8,8\n"
      "I  04001d60,4\n"
      " L 0421c7cc,4\r\n"
      " M 0421c7d0,300\n"
      "\n"
      "I  04001093,5\n"
      " L 7,1\n"
      "==12== \n"
      "==12== Exit code:       0\n");
  EXPECT_EQ(trace.error, "");
  ASSERT_EQ(trace.references.size(), 7u);
  EXPECT_EQ(trace.header.processors, 1u);
  EXPECT_TRUE(same(trace.references[0],
                   {.address = 0x1ffeffe7e8, .site = 1, .processor = 0, .access = Access::kWrite, .size = 8}));
  EXPECT_TRUE(
      same(trace.references[1], {.address = 0x421c7cc, .site = 2, .processor = 0, .access = Access::kRead, .size = 4}));
  // A long access is several references; a modify is a read and a write.
  EXPECT_TRUE(same(trace.references[3],
                   {.address = 0x421c7d0 + 255, .site = 2, .processor = 0, .access = Access::kRead, .size = 45}));
  EXPECT_TRUE(same(trace.references[4],
                   {.address = 0x421c7d0, .site = 2, .processor = 0, .access = Access::kWrite, .size = 255}));
  EXPECT_EQ(trace.references[6].site, 1u);
  EXPECT_EQ(trace.header.sites.at(1).function, "0x4001093");
  ASSERT_EQ(trace.events.size(), 1u);
  EXPECT_EQ(trace.events[0].kind, EventKind::kPrivate);
  EXPECT_EQ(trace.events[0].value, 4u);
  EXPECT_TRUE(lackey("I  10,1\n L 20,4\n", {.count_instructions = false}).events.empty());
}

TEST_F(Import, LackeyNamesTheBadLine) {
  for (const std::string bad : {"hello", " X 1234,4", " L 1234", " L xyz,4", " L 1234,4 more", "I 04001090,3",
                                " L 1,-1", " L 123456789abcdef01,4", " L ffffffffffffffff,2", " L 10,0", "S 1234,4"}) {
    const Whole trace = lackey(" L 10,4\n S 18,4\n" + bad + "\n L 20,4\n");
    EXPECT_THAT(trace.error, HasSubstr("text, line 3: ")) << bad;
    EXPECT_EQ(trace.references.size(), 2u) << bad;
  }
  EXPECT_THAT(lackey("").error, HasSubstr("without a single reference"));
  EXPECT_THAT(lackey("==1== nothing\n").error, HasSubstr("without a single reference"));
  EXPECT_THAT(lackey(std::string(1000000, 'x')).error, HasSubstr("line 1"));
  EXPECT_THAT(lackey(" L 10,4\n" + std::string(1000000, 'x')).error,
              HasSubstr("line 2: it has more than 65536 bytes (the line begins at byte 8)"));
}

TEST_F(Import, LackeyThatIsCutOffIsRefused) {
  const std::string head = "==7== Lackey, an example Valgrind tool\n",
                    references = "I  4010,3\n L 1234,4\n S 1238,16\n";
  const std::string whole = head + references;
  EXPECT_EQ(lackey(whole + "==7== \n==7== Exit code:       0\n").error, "");
  // Wherever it is cut behind its first reference, it is an error, and what came before is good.
  for (size_t length = head.size() + 11; length <= whole.size(); ++length) {
    const Whole trace = lackey(whole.substr(0, length));
    EXPECT_THAT(trace.error, HasSubstr("cut off")) << length;
    EXPECT_THAT(trace.error, testing::ContainsRegex("text, line [34]: .*\\(the line begins at byte [0-9]+\\)"))
        << length;
    EXPECT_LE(trace.references.size(), 2u) << length;
  }
  // With -q Valgrind writes nothing of its own before the references.
  EXPECT_EQ(lackey(references).error, "");
  EXPECT_THAT(lackey(" L 1234,4\n L 1234,1").error,
              HasSubstr("text, line 2: ' L 1234,1' has no end: the text is cut off"));
}

// Other files than text: nothing of them gets to a terminal as it is, and the place is named.
TEST_F(Import, ForeignFilesAreRefused) {
  std::string bytes("\x1f\x8b\x08\0\x1b[31m\xff", 10);
  EXPECT_THAT(csv(bytes + ",a\n").error, HasSubstr("text, line 1: '????"));
  const std::string elf(
      "\x7f"
      "ELF\x02\x01\x01\0\0\n\0\0\n",
      13);
  const std::string others[] = {bytes + "\n", elf, "I  10,1\n L 20,4\n", "{\"a\": 1}\n", "access,address\nr,8\n", kMgt};
  for (const Open open : {open_csv, open_lackey, open_drmemtrace, open_perf}) {
    unsigned refused = 0;
    for (const std::string& other : others) {
      const Whole trace = read(open, other, {});
      if (trace.error.empty()) continue;
      ++refused;
      EXPECT_THAT(trace.error, HasSubstr("text, line ")) << other;
      EXPECT_THAT(trace.error, testing::ContainsRegex("byte [0-9]+\\)$")) << other;
      for (const char c : trace.error) EXPECT_TRUE(c >= ' ' && c <= '~') << trace.error;
    }
    // Each reads its own at most.
    EXPECT_GE(refused, std::size(others) - 1);
  }
}

TEST_F(Import, CsvReferencesAndEvents) {
  const Whole trace =
      csv("# made by hand\n"
          "time,processor,access,address,size,site,name\n"
          "1, 0, start,,,,\n"
          "2,1,allocate,0x1000,64,\"a.c:5:main(int, char)\",\"the \"\"array\"\"\"\n"
          "2,1,w,0x1000,,a.c:7,\n"
          "3,3,read,4104,4,loop,\n"
          "3,3,private,,100,,\n"
          "9,0,acquire,64,,,\n"
          "9,0,R,0x1008,512,a.c:7,\n");
  EXPECT_EQ(trace.error, "");
  EXPECT_EQ(trace.header.processors, 4u);
  ASSERT_EQ(trace.references.size(), 5u);
  EXPECT_TRUE(
      same(trace.references[0], {.address = 0x1000, .site = 2, .processor = 1, .access = Access::kWrite, .size = 8}));
  EXPECT_TRUE(
      same(trace.references[1], {.address = 0x1008, .site = 3, .processor = 3, .access = Access::kRead, .size = 4}));
  EXPECT_TRUE(same(trace.references[4],
                   {.address = 0x1008 + 510, .site = 2, .processor = 0, .access = Access::kRead, .size = 2}));
  ASSERT_EQ(trace.events.size(), 4u);
  EXPECT_EQ(trace.events[0].kind, EventKind::kStart);
  const Event& allocation = trace.events[1];
  EXPECT_EQ(allocation.address, 0x1000u);
  EXPECT_EQ(allocation.value, 64u);
  EXPECT_EQ(trace.header.names.at(allocation.name), "the \"array\"");
  EXPECT_EQ(trace.header.sites.at(allocation.site).file, "a.c");
  EXPECT_EQ(trace.header.sites.at(allocation.site).line, 5u);
  EXPECT_EQ(trace.header.sites.at(allocation.site).function, "main(int, char)");
  EXPECT_EQ(trace.header.sites.at(3).function, "loop");
  EXPECT_EQ(trace.events[2].position, 2u);
  EXPECT_EQ(trace.events[2].value, 100u);
  EXPECT_EQ(trace.events[3].kind, EventKind::kAcquire);
}

TEST_F(Import, CsvNamesTheBadLine) {
  const std::string head = "processor,access,address,size,time\n0,r,8,8,5\n";
  const std::pair<const char*, const char*> cases[] = {{"0,r,8,8", "it has 4 fields"},
                                                       {"0,r,8,8,6,7", "it has 6 fields"},
                                                       {"0,x,8,8,6", "the access 'x'"},
                                                       {"0,r,,8,6", "needs an address"},
                                                       {"0,allocate,,8,6", "needs an address"},
                                                       {"0,r,8z,8,6", "the address '8z'"},
                                                       {"-1,r,8,8,6", "the processor '-1'"},
                                                       {"70000,r,8,8,6", "no processor 70000"},
                                                       {"0,r,8,0,6", "0 bytes"},
                                                       {"0,r,8,8,4", "time runs backwards, from 5 to 4"},
                                                       {"0,r,\"8,8,4", "has no end"},
                                                       {"0,r,0xffffffffffffffff,8,6", "beyond memory"},
                                                       {"0,r,8,70000,6", "70000 bytes"},
                                                       {"0,r,18446744073709551616,8,6", "not a whole number"}};
  for (const auto& [line, sentence] : cases) {
    const Whole trace = csv(head + line + "\n0,r,16,8,9\n");
    EXPECT_THAT(trace.error, HasSubstr(sentence)) << line;
    EXPECT_THAT(trace.error, HasSubstr("text, line 3: ")) << line;
    EXPECT_EQ(trace.references.size(), 1u) << line;
  }
  EXPECT_THAT(csv(head + "2,r,8,8,6\n", {.processors = 2}).error, HasSubstr("no processor 2; they are 0 to 1"));
  EXPECT_THAT(csv("access,adress\n").error, HasSubstr("'adress' is no column"));
  EXPECT_THAT(csv("access,address,access\n").error, HasSubstr("twice"));
  EXPECT_THAT(csv("access,size\n").error, HasSubstr("must name the columns access and address"));
  EXPECT_THAT(csv("").error, HasSubstr("no line that names the columns"));
  // Of a number that is cut off, a number is left.
  EXPECT_THAT(
      csv("access,address\nr,4096\nr,40").error,
      HasSubstr(
          "text, line 3: 'r,40' has no newline at its end: the text is cut off, or lacks it (the line begins at byte 22)"));
  EXPECT_FALSE(open_csv(directory_ / "nothing"));
  EXPECT_FALSE(open_csv(directory_ / "."));
}

const std::string kView =
    "Hello from the program.\n"
    "Output format:\n"
    "<--record#-> <--instr#->: <---tid---> <record details>\n"
    "------------------------------------------------------------\n"
    "           1           0:     3264604 <marker: version 5>\n"
    "           2           0:     3264604 <marker: tid 3264604 on core 3>\n"
    "           3           1:     3264604 ifetch       8 byte(s) @ 0x0000000000401012 48 8d 34 25 00 20 40 lea    0x00402000 -> %rsi\n"
    "           3           1:     3264604                                             00\n"
    "           4           1:     3264604 write        8 byte(s) @ 0x00007ffdaaf6f8e8 by PC 0x0000000000401012\n"
    "------------------------------------------------------------\n"
    "           5           1:     3264605 <marker: timestamp 13312570674112282>\n"
    "           6           2:     3264605 ifetch       3 byte(s) @ 0x0000000000401020 non-branch\n"
    "           7           2:     3264605 read         4 byte(s) @ 0x00007ffdaaf6f8ec by PC 0x0000000000401020\n"
    "           8           2:     3264605 pref-r-L1    1 byte(s) @ 0x00007ffdaaf6f900 by PC 0x0000000000401020\n";
const std::string kViewEnd =
    "           9           2:     3264605 <thread 3264605 exited>\n"
    "View tool results:\n"
    "              2 : total instructions\n";

TEST_F(Import, DrmemtracesReadsAndWrites) {
  const Whole trace = drmemtrace(kView + kViewEnd);
  EXPECT_EQ(trace.error, "");
  EXPECT_EQ(trace.header.processors, 2u);
  ASSERT_EQ(trace.references.size(), 2u);
  EXPECT_TRUE(same(trace.references[0],
                   {.address = 0x7ffdaaf6f8e8, .site = 1, .processor = 0, .access = Access::kWrite, .size = 8}));
  EXPECT_TRUE(same(trace.references[1],
                   {.address = 0x7ffdaaf6f8ec, .site = 2, .processor = 1, .access = Access::kRead, .size = 4}));
  EXPECT_EQ(trace.header.sites.at(1).function, "0x401012");
  ASSERT_EQ(trace.events.size(), 2u);
  for (unsigned p = 0; p < 2; ++p) {
    EXPECT_EQ(trace.events[p].kind, EventKind::kPrivate);
    EXPECT_EQ(trace.events[p].processor, p);
    EXPECT_EQ(trace.events[p].value, 1u);
  }
  EXPECT_TRUE(drmemtrace(kView + kViewEnd, {.count_instructions = false}).events.empty());
}

TEST_F(Import, DrmemtraceThatIsCutOffOrForeignIsRefused) {
  // Wherever a text is cut, it is an error, and what came before is good.
  const std::string whole = kView + kViewEnd;
  const size_t end = whole.find("View tool results:");
  for (size_t length = 0; length < end; ++length) {
    const Whole trace = drmemtrace(whole.substr(0, length));
    EXPECT_THAT(trace.error, HasSubstr("text, line ")) << length;
    EXPECT_THAT(trace.error, HasSubstr("(the line begins at byte ")) << length;
    EXPECT_LE(trace.references.size(), 2u);
  }
  EXPECT_THAT(drmemtrace(whole.substr(0, end)).error, HasSubstr("ends before 'View tool results:': it is cut off"));
  EXPECT_THAT(drmemtrace("I  10,1\n L 20,4\n").error, HasSubstr("there is no 'Output format:'"));
  for (const std::string bad :
       {"           9           2     3264605 read         4 byte(s) @ 0x10 by PC 0x20",
        "           9           2:     3264605 read         4 byte(s) @ 0x10",
        "           9           2:     3264605 read         4 byte(s) @ 0xzz by PC 0x20",
        "           9           2:     3264605 read         4 byte(s) @ 0x10 by PC 0x20 more",
        "           9           2:     3264605 fetch        4 byte(s) @ 0x10 by PC 0x20",
        "           9           2:     3264605                                  00", "T1 read 4 byte(s)"}) {
    const Whole trace = drmemtrace(kView + bad + "\n" + kViewEnd);
    EXPECT_THAT(trace.error, HasSubstr("text, line 15: '")) << bad;
    EXPECT_THAT(trace.error, HasSubstr("is not a line of drmemtrace's view")) << bad;
    EXPECT_THAT(trace.error, HasSubstr(fmt::format("(the line begins at byte {})", kView.size()))) << bad;
    EXPECT_EQ(trace.references.size(), 2u) << bad;
  }
}

TEST_F(Import, PerfsLoadsAndStores) {
  const Whole trace = perf(
      "# captured on    : Sat Nov 28\n"
      " 1234  3678.072400: cpu/mem-loads,ldlat=30/P:     7f0e8c0008c0 10668100842 |OP LOAD|LVL L3 or L3 hit|SNP None|TLB L1 "
      "or L2 hit|LCK No|BLK  N/A      55d0a1b2c3d4 add\n"
      "          my prog 1230/1235  [011]  3678.072500:          1            l1d-miss:       7f0e8c0008c8 288100144 |OP "
      "STORE|LVL L1 hit|SNP None|TLB Walker hit|LCK No|BLK  N/A|AFF N/A 55d0a1b2c3e0 operator new(unsigned long)\n"
      " 1234  3678.072600: cpu/mem-loads,ldlat=30/P:                0 0000000808 |OP PFETCH|LVL N/A|SNP N/A|TLB N/A|LCK N/A "
      "     55d0a1b2c3d4 worker\n"
      " 1236  3678.072700: cpu/mem-stores/P:     7f0e8c0008c0 5080144 |OP STORE|LVL L1 hit|SNP N/A|TLB L2 miss|LCK Yes      "
      "55d0a1b2c400 [unknown]\n");
  EXPECT_EQ(trace.error, "");
  EXPECT_EQ(trace.header.processors, 3u);
  ASSERT_EQ(trace.references.size(), 3u);
  EXPECT_TRUE(same(trace.references[0],
                   {.address = 0x7f0e8c0008c0, .site = 1, .processor = 0, .access = Access::kRead, .size = 1}));
  EXPECT_TRUE(same(trace.references[1],
                   {.address = 0x7f0e8c0008c8, .site = 2, .processor = 1, .access = Access::kWrite, .size = 1}));
  EXPECT_TRUE(same(trace.references[2],
                   {.address = 0x7f0e8c0008c0, .site = 3, .processor = 2, .access = Access::kWrite, .size = 1}));
  EXPECT_EQ(trace.header.sites.at(1).function, "add");
  EXPECT_EQ(trace.header.sites.at(2).function, "operator new(unsigned long)");
  EXPECT_EQ(trace.header.sites.at(3).function, "0x55d0a1b2c400");
}

TEST_F(Import, PerfNamesTheBadLine) {
  const std::string good =
      "1 3.5: mem-loads: 10 5080142 |OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No 400100 main\n";
  const std::pair<const char*, const char*> cases[] = {
      {"hello", "is not a memory sample"},
      {"1 3.5: mem-loads: 10", "is not a memory sample"},
      {"1 3.5: mem-loads: 10 400100 main", "is not a memory sample"},
      {"1 3.5 mem-loads: 10 5080142 |OP LOAD|LCK No 400100 main", "is not a memory sample"},
      {"main 3.5: mem-loads: 10 5080142 |OP LOAD|LCK No 400100 main", "is not a memory sample"},
      {"1 3.5: mem-loads 10 5080142 |OP LOAD|LCK No 400100 main", "is not a memory sample"},
      {"1 3.5: mem-loads: xyz 5080142 |OP LOAD|LCK No 400100 main", "is not a memory sample"},
      {"1 3.5: mem-loads: 10 5080142 |OP LOAD|LCK No", "is not a memory sample"},
      {"1 3.5: mem-loads: 10 5080142 |OP LOAD|LCK No 57 400100 main", "is not a memory sample"},
      {"1 3.5: mem-loads: 10 5080142 |OP LOAD|LCK No 57 55d0a1b2c3d4 main", "printed by perf script -F tid,time"}};
  for (const auto& [line, sentence] : cases) {
    const Whole trace = perf(good + line + "\n" + good);
    EXPECT_THAT(trace.error, HasSubstr(sentence)) << line;
    EXPECT_THAT(trace.error, HasSubstr("text, line 2: ")) << line;
    EXPECT_THAT(trace.error, HasSubstr(fmt::format("(the line begins at byte {})", good.size()))) << line;
    EXPECT_EQ(trace.references.size(), 1u) << line;
  }
  // perf ends every line: what ends inside of one is cut off.
  for (size_t length = 1; length < good.size(); ++length)
    EXPECT_THAT(perf(good + good.substr(0, length)).error, HasSubstr("has no end: the text is cut off")) << length;
  EXPECT_THAT(perf("# nothing\n").error, HasSubstr("without a single sample"));
}

TEST_F(Import, ManyLinesInManyBatches) {
  std::string text = "access,address,processor\n";
  for (unsigned i = 0; i < 50000; ++i) text += fmt::format("{},{},{}\n", i % 3 == 0 ? "w" : "r", i * 8, i % 5);
  const Whole trace = csv(text);
  EXPECT_EQ(trace.error, "");
  ASSERT_EQ(trace.references.size(), 50000u);
  for (unsigned i = 0; i < 50000; ++i) {
    ASSERT_EQ(trace.references[i].address, i * 8);
    ASSERT_EQ(trace.references[i].processor, i % 5);
  }
}

}  // namespace
}  // namespace multigrain::trace
