# Headers that are compiled once for many sources: a complete build spends about half of its time on reading GoogleTest,
# LLVM and the standard library again and again. Sources include what they use all the same, and are compiled without by
# whoever has ccache, which finds less of what it knows with precompiled headers.
#
# MULTIGRAIN_PRECOMPILED_HEADERS: on if no compiler launcher is set.

if(CMAKE_CXX_COMPILER_LAUNCHER)
  set(default OFF)
else()
  set(default ON)
endif()
option(MULTIGRAIN_PRECOMPILED_HEADERS "Compile common headers once (off by default with a compiler launcher)" ${default})
if(NOT MULTIGRAIN_PRECOMPILED_HEADERS)
  return()
endif()

# share_headers(FIRST HEADERS header ... TARGETS target ...): the headers are compiled with FIRST's options, and used by
# FIRST and by all TARGETS, which have to be compiled with the same options; the compiler warns where they are not.
function(share_headers FIRST)
  cmake_parse_arguments(ARG "" "" "HEADERS;TARGETS" ${ARGN})
  set(headers)
  foreach(header ${ARG_HEADERS})
    list(APPEND headers "$<$<COMPILE_LANGUAGE:CXX>:${header}>")
  endforeach()
  target_precompile_headers(${FIRST} PRIVATE ${headers})
  foreach(target ${ARG_TARGETS})
    if(NOT target STREQUAL FIRST)
      target_precompile_headers(${target} REUSE_FROM ${FIRST})
    endif()
  endforeach()
endfunction()

set(standard_headers <algorithm> <array> <atomic> <bit> <cerrno> <chrono> <cstdint> <cstdio> <cstdlib> <cstring> <functional>
  <map> <memory> <mutex> <optional> <span> <string> <string_view> <unordered_map> <utility> <vector>)

# Components: static libraries, compiled as position-independent code.
get_property(components GLOBAL PROPERTY MULTIGRAIN_COMPONENTS)
# Compiled with options of its own.
list(REMOVE_ITEM components multigrain_checks)
add_library(multigrain_component_headers STATIC ${PROJECT_SOURCE_DIR}/cmake/precompiled_headers.cpp)
target_link_libraries(multigrain_component_headers PRIVATE multigrain_options fmt::fmt tl::expected Threads::Threads)
share_headers(multigrain_component_headers HEADERS ${standard_headers} <fmt/format.h> <tl/expected.hpp> TARGETS ${components})

# The commands with subcommands are one translation unit each: a header that declares CLI::App defines so much, validators
# with static storage among it, that a source without a line of its own takes five seconds with it (GCC 12, -O2).
foreach(command mgtrace mgbench)
  if(TARGET ${command})
    set_target_properties(${command} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  endif()
endforeach()

# GoogleTest programs: executables, and for each set of options headers of their own.
get_property(programs GLOBAL PROPERTY MULTIGRAIN_TEST_PROGRAMS)
if(programs)
  add_executable(multigrain_test_headers ${PROJECT_SOURCE_DIR}/cmake/precompiled_headers.cpp)
  # Without fmt: its macros would have to be defined for every test.
  target_link_libraries(multigrain_test_headers PRIVATE multigrain_options GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_options(multigrain_test_headers PRIVATE ${MULTIGRAIN_TEST_OPTIONS})
  share_headers(multigrain_test_headers HEADERS ${standard_headers} <random> <thread> <gtest/gtest.h>
    <gmock/gmock.h> TARGETS ${programs})
endif()

# The compiler's plugin.
if(TARGET multigrain-checks-pass)
  share_headers(multigrain-checks-pass HEADERS <llvm/ADT/DenseSet.h> <llvm/Analysis/LoopInfo.h>
    <llvm/Analysis/ScalarEvolution.h> <llvm/Analysis/ScalarEvolutionExpressions.h> <llvm/IR/Dominators.h> <llvm/IR/IRBuilder.h>
    <llvm/IR/InstIterator.h> <llvm/IR/IntrinsicInst.h> <llvm/IR/Module.h> <llvm/IR/PassManager.h>)
endif()
