#include "runtime/private/globals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "globals_library.h"

// These have external linkage, so that the compiler cannot know their values or drop them.
int initialised_global = 7;
int zero_global;
char large_global[100'000];
int* pointer_with_relocation = &initialised_global;
extern const int constant_global;
const int constant_global = 5;
thread_local int per_thread = 3;
static int file_static = 9;
std::string object_with_constructor = "constructed";
int (*function_pointer_global)(const char*) = &std::puts;

namespace multigrain {
namespace {

template <typename T>
bool covered(T& variable) {
  return in_program_globals(reinterpret_cast<uintptr_t>(&variable), sizeof variable);
}

template <typename T>
bool touched_by_a_range(T& variable) {
  const auto begin = reinterpret_cast<uintptr_t>(&variable);
  for (const Range& range : program_globals()) {
    const auto at = reinterpret_cast<uintptr_t>(range.begin);
    if (at < begin + sizeof variable && begin < at + range.length) return true;
  }
  return false;
}

TEST(Globals, TheProgramsVariablesAreCovered) {
  static int function_static = 4;
  file_static += zero_global;
  EXPECT_TRUE(covered(initialised_global));
  EXPECT_TRUE(covered(zero_global));
  EXPECT_TRUE(covered(large_global));
  EXPECT_TRUE(covered(pointer_with_relocation));
  EXPECT_TRUE(covered(file_static));
  EXPECT_TRUE(covered(function_static));
  EXPECT_TRUE(covered(object_with_constructor));
  EXPECT_TRUE(covered(function_pointer_global));
}

TEST(Globals, ThoseOfItsOwnLibrariesAreCovered) {
  EXPECT_EQ(library_global, 11);
  EXPECT_TRUE(covered(library_global));
  EXPECT_EQ(*library_static(), 12);
  EXPECT_TRUE(covered(*library_static()));
}

TEST(Globals, WhatBelongsToOthersIsNot) {
  int local = 0;
  EXPECT_FALSE(touched_by_a_range(local));
  EXPECT_FALSE(touched_by_a_range(per_thread));
  EXPECT_FALSE(touched_by_a_range(constant_global));
  // These are objects of libraries, which the linker places in the executable where it refers to them directly.
  EXPECT_FALSE(touched_by_a_range(std::cout));
  EXPECT_FALSE(touched_by_a_range(std::cerr));
  EXPECT_FALSE(touched_by_a_range(stdout));
  EXPECT_FALSE(touched_by_a_range(environ));
}

// Stores the bytes that are there already, so that a range that is read-only, or not mapped, ends the test. Ranges
// include the gaps between variables, to which a sanitizer would object.
__attribute__((no_sanitize("address"))) void rewrite(const Range& range) {
  for (size_t i = 0; i < range.length; i += 512) {
    volatile std::byte* byte = range.begin + i;
    *byte = *byte;
  }
}

TEST(Globals, RangesAreOrderedAndWritable) {
  uintptr_t end = 0;
  for (const Range& range : program_globals()) {
    EXPECT_GT(range.length, 0u);
    EXPECT_GE(reinterpret_cast<uintptr_t>(range.begin), end);
    end = reinterpret_cast<uintptr_t>(range.begin) + range.length;
    rewrite(range);
  }
  EXPECT_GT(end, 0u);
}

TEST(Globals, PiecesMustLieInside) {
  const auto address = reinterpret_cast<uintptr_t>(&large_global[0]);
  EXPECT_TRUE(in_program_globals(address, 100'000));
  EXPECT_TRUE(in_program_globals(address, 0));
  EXPECT_FALSE(in_program_globals(address, ~uint64_t{0}));
  EXPECT_FALSE(in_program_globals(address, uint64_t{1} << 40));
  EXPECT_FALSE(in_program_globals(0, 8));
  EXPECT_FALSE(in_program_globals(~uint64_t{0} - 3, 8));
}

TEST(Globals, TheBuildIdIsFoundAndStable) {
  EXPECT_GE(executable_build_id().size(), 8u);
  EXPECT_EQ(program_fingerprint(), program_fingerprint());
}

}  // namespace
}  // namespace multigrain
