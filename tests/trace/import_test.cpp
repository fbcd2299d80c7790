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

  Directory directory_;
};

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
      " L 7,1");
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
  EXPECT_FALSE(open_csv(directory_ / "nothing"));
  EXPECT_FALSE(open_csv(directory_ / "."));
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
