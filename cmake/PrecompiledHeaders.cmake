# What makes a complete build short: headers that are compiled once for many sources, and sources that are compiled together.
# Such a build would spend half of its time on reading GoogleTest, LLVM and the standard library again and again. Sources
# include what they use all the same, and are compiled one by one without precompiled headers by whoever has ccache, which
# finds less of what it knows otherwise.
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
# A compiler launcher that keeps results has to see which precompiled header a source was compiled with, and the same one twice.
if(CMAKE_CXX_COMPILER_LAUNCHER)
  target_compile_options(multigrain_options INTERFACE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>"
    "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
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

# compile_together(SOURCES target ...): up to so many sources of each target at a time (0: all). File-local names of these
# sources differ, which this finds out.
function(compile_together SOURCES)
  foreach(target ${ARGN})
    if(TARGET ${target})
      set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${SOURCES})
      # GCC warns of members that have a type of an unnamed namespace wherever it takes the source for a header.
      target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:$<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>>)
    endif()
  endforeach()
endfunction()
# compile_alone(TARGET source ...): these sources of a target whose others are compiled together have names in common with them.
function(compile_alone TARGET)
  if(TARGET ${TARGET})
    get_target_property(folder ${TARGET} SOURCE_DIR)
    list(TRANSFORM ARGN PREPEND ${folder}/)
    set_source_files_properties(${ARGN} TARGET_DIRECTORY ${TARGET} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

# mgtrace, mgbench: a header that declares CLI::App defines so much, validators with static storage among it, that an
# empty source takes seven seconds with it (GCC 12, -O2). The others: templates of LLVM, JSON and fmt, and their own headers.
compile_together(0 mgtrace mgbench)
compile_together(15 multigrain-checks-pass)
compile_together(0 multigrain-threads-pass)
compile_together(0 multigrain-count-pass)
compile_together(6 multigrain_trace_analysis)
compile_together(10 multigrain_launch)

# Components: the bodies of headers and templates of the standard library are compiled once for many sources. Not those that
# replace functions of the C library, that compiled checks call at every access, or of which tests are linked with single
# ones.
compile_together(7 multigrain_module_ucx)
compile_together(8 multigrain_base multigrain_fabric multigrain_sync multigrain_shasta multigrain_memory
  multigrain_heap multigrain_hlrc multigrain_mgs multigrain_races multigrain_report multigrain_trace_model multigrain_trace_format
  multigrain_trace_import multigrain_trace_record)
compile_together(10 multigrain_guest)
compile_alone(multigrain_guest entry.cpp gates.cpp)
compile_together(0 multigrain_guest_nodes multigrain_threads)
compile_alone(multigrain_guest_nodes kept_files.cpp local_files.cpp)
compile_alone(multigrain_threads posix_objects.cpp)
compile_alone(multigrain_memory line_table.cpp)
compile_alone(multigrain_sync deferred_release.cpp network_lock.cpp)
compile_alone(multigrain_trace_record run_recording.cpp single_step.cpp)
compile_together(0 multigrain_checks)
compile_alone(multigrain_checks entries.cpp line_rights.cpp reserved_table.cpp trampolines.cpp verify.cpp
  wide_functions.cpp)
compile_together(0 multigrain_runtime)
compile_alone(multigrain_runtime bootstrap.cpp compiled_checks.cpp crash_record.cpp environment.cpp external_launch.cpp
  fault_entry.cpp interpreter.cpp lock_mistakes.cpp node_card.cpp ranges.cpp stacks.cpp)

# nanobind is made to be compiled so, too (its nb_combined.cpp).
compile_together(0 nanobind-static)

# Drivers and their worlds, which tests/coherence compiles several times: with stops, and with deliberate faults.
compile_together(0 multigrain_hlrc_world multigrain_hlrc_mutants hlrc_driver_explorer_test
  multigrain_mgs_world multigrain_mgs_mutants mgs_driver_explorer_test explore_mgs
  multigrain_sc_world multigrain_sc_mutants sc_driver_explorer_test
  multigrain_dszoom_world multigrain_dszoom_mutants dszoom_driver_explorer_test
  multigrain_shasta_world multigrain_shasta_mutants shasta_driver_explorer_test)

# Tests of several sources, and the model of futexes, which is compiled twice.
compile_together(0 base_test trace_model_test trace_analysis_test futex_explorer_test multigrain_futex_mutants)

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
