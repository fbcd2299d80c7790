#include "emulation/located_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace multigrain {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string error_of(std::string_view text) {
  const auto read = parse_located_json(text);
  return read ? "accepted" : read.error().message;
}

TEST(LocatedJson, KnowsTheLineOfEachKey) {
  const auto read = parse_located_json("{\n\"a\": 1,\n\n \"b\":\n {\"c\": \"x\", \"d\":\n[1,\n2]}\n, \"e\": null}");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->find("a")->line, 2u);
  EXPECT_EQ(read->find("a")->number, 1);
  const LocatedJson* const b = read->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->line, 4u);
  EXPECT_EQ(b->find("c")->line, 5u);
  EXPECT_EQ(b->find("c")->text, "x");
  EXPECT_EQ(b->find("d")->line, 5u);
  ASSERT_EQ(b->find("d")->elements.size(), 2u);
  EXPECT_EQ(b->find("d")->elements[1].line, 5u);
  EXPECT_EQ(b->find("d")->elements[1].number, 2);
  EXPECT_EQ(read->find("e")->line, 8u);
  EXPECT_EQ(read->find("f"), nullptr);
}

TEST(LocatedJson, KeepsWhatFollowsAnObjectApartFromIt) {
  const auto read = parse_located_json(R"({"a": {"b": [[1, 2], [3]]}, "c": [{"d": true}, {"d": 4}]})");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->find("a")->find("b")->elements[1].elements[0].number, 3);
  EXPECT_EQ(read->find("c")->elements[0].find("d")->kind, LocatedJson::Kind::kBoolean);
  EXPECT_EQ(read->find("c")->elements[1].find("d")->number, 4);
}

TEST(LocatedJson, SaysWhereATextIsNoJson) {
  EXPECT_THAT(error_of(""), StartsWith("line 1: this is no JSON: "));
  EXPECT_THAT(error_of("{\"a\": 1,\n\"b\" 2}"), StartsWith("line 2: this is no JSON: syntax error"));
  EXPECT_THAT(error_of("{\"a\": 1\n}\n x"), StartsWith("line 3: this is no JSON: "));
  EXPECT_THAT(error_of("{\"a\": \"\xff\"}"), StartsWith("line 1: this is no JSON: "));
  EXPECT_THAT(error_of("{\"a\": 1,}"), HasSubstr("no JSON"));
  EXPECT_EQ(error_of("{\"a\": 1,\n\"a\": 2}"), "line 2: 'a' is there twice");
  EXPECT_THAT(error_of("{\"a\": 1e999}"), StartsWith("line 1: "));
  EXPECT_EQ(error_of(std::string(100'000, '[')), "line 1: this is nested too deep");
}

}  // namespace
}  // namespace multigrain
