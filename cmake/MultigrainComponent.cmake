# Targets of one shape: components (static libraries of src/, hidden symbols, joined into libmultigrain.so) and tests.

add_library(multigrain_options INTERFACE)
target_compile_options(multigrain_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Woverloaded-virtual>
  $<$<BOOL:${MULTIGRAIN_WERROR}>:-Werror>)
# The stack of a thread that faults must be walkable by profilers.
target_compile_options(multigrain_options INTERFACE -fno-omit-frame-pointer)
if(MULTIGRAIN_SANITIZE STREQUAL "address")
  target_compile_options(multigrain_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined)
  target_link_options(multigrain_options INTERFACE -fsanitize=address,undefined)
elseif(MULTIGRAIN_SANITIZE STREQUAL "thread")
  target_compile_options(multigrain_options INTERFACE -fsanitize=thread)
  target_link_options(multigrain_options INTERFACE -fsanitize=thread)
elseif(MULTIGRAIN_SANITIZE)
  message(FATAL_ERROR "MULTIGRAIN_SANITIZE is '${MULTIGRAIN_SANITIZE}'; it must be address, thread or empty")
endif()

# What replaces the optimisation of the presets with sanitizers.
set(MULTIGRAIN_OPTIMISED $<$<CONFIG:RelWithDebInfo>:-O2>)

# multigrain_component(NAME [COMPUTES] SOURCES a.cpp ... [USES other components and libraries])
# COMPUTES: its tests have it compute for long, so it is optimised with a sanitizer, too. The other components are not, which
# CMakePresets.json says: they compile in a third of the time.
function(multigrain_component NAME)
  cmake_parse_arguments(ARG "COMPUTES" "" "SOURCES;USES" ${ARGN})
  add_library(multigrain_${NAME} STATIC ${ARG_SOURCES})
  target_include_directories(multigrain_${NAME} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(multigrain_${NAME} PUBLIC multigrain_options ${ARG_USES})
  if(ARG_COMPUTES AND MULTIGRAIN_SANITIZE)
    target_compile_options(multigrain_${NAME} PRIVATE ${MULTIGRAIN_OPTIMISED})
  else()
    set_property(GLOBAL APPEND PROPERTY MULTIGRAIN_COMPONENTS multigrain_${NAME})  # one set of options, one set of headers
  endif()
endfunction()

# multigrain_module(NAME SOURCES a.cpp ... [USES components and libraries]): multigrain-NAME.so, which src/fabric/module.h loads
# when a run needs it, with a library that most runs do without.
function(multigrain_module NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES" ${ARGN})
  add_library(multigrain_module_${NAME} MODULE ${ARG_SOURCES})
  set_target_properties(multigrain_module_${NAME} PROPERTIES PREFIX "" OUTPUT_NAME multigrain-${NAME}
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib/multigrain)
  target_link_libraries(multigrain_module_${NAME} PRIVATE multigrain_options ${ARG_USES})
  target_link_options(multigrain_module_${NAME} PRIVATE LINKER:--exclude-libs,ALL)
  install(TARGETS multigrain_module_${NAME} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/multigrain)
endfunction()

# What the tests with a label need: ./test builds no more than that with the sanitizers.
foreach(label unit sync tsan program long)
  add_custom_target(tests_${label})
endforeach()

# How the programs of tests are compiled, after the options of the build type. Optimising GoogleTest's assertions is most
# of the work: without, a test compiles in half the time (mgrun_test.cpp: 21 s at -O2 -g, 9 s at -O1 -g1; with ASan 29 s
# and 7 s). What is tested is in the components, which are optimised as always, and of the debug information a failure needs
# no more than the line numbers.
if(MULTIGRAIN_SANITIZE)
  set(MULTIGRAIN_TEST_OPTIONS $<$<CONFIG:RelWithDebInfo>:-O0> $<$<CONFIG:RelWithDebInfo>:-g1>)
else()
  set(MULTIGRAIN_TEST_OPTIONS $<$<CONFIG:RelWithDebInfo>:-O1> $<$<CONFIG:RelWithDebInfo>:-g1>)
endif()

include(GoogleTest)

# multigrain_test(NAME SOURCES a_test.cpp ... [USES components] [LABELS l ...] [TIMEOUT seconds] [COMPUTES] [OWN_OPTIONS]
#                 [SANITIZED filter | UNSANITIZED] [THREADS filter] [FULL filter] [ENVIRONMENT NAME=value ...]
#                 [PROPERTIES name value ...]): one GoogleTest program. ctest runs each of its cases as a test of its own, NAME.Suite.Case, and with a sanitizer all of them as
# one test, NAME, because a sanitizer's start takes longer than most cases.
# Labels that ./test goes by: unit (the default; one component, also run under ASan), tsan (also run under TSan), long and full
# (left out of ./test), program, workload and install. What has the label unit or sync and is run whole with the address
# sanitizer gets the label sanitized without it: ./test has the stage asan run it, and the stage release neither builds it
# nor runs it.
# COMPUTES: the test's own code computes for long, so it is optimised like a component. OWN_OPTIONS: it is compiled with options of
# its own, so no precompiled header fits. SANITIZED: with a sanitizer, only what this --gtest_filter lets through is run.
# UNSANITIZED: there is no such test with a sanitizer. THREADS: with the thread sanitizer, only what this filter lets through.
# FULL: what this --gtest_filter lets through has the label full; the rest does not.
# TIMEOUT: only for a test that hangs. It has to be enough where thirty other programs use the cores.
function(multigrain_test NAME)
  cmake_parse_arguments(ARG "COMPUTES;OWN_OPTIONS;UNSANITIZED" "TIMEOUT;SANITIZED;THREADS;FULL" "SOURCES;USES;LABELS;ENVIRONMENT;PROPERTIES" ${ARGN})
  if(MULTIGRAIN_SANITIZE AND ARG_UNSANITIZED)
    return()
  endif()
  add_executable(${NAME} ${ARG_SOURCES})
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin/tests)
  target_include_directories(${NAME} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${NAME} PRIVATE multigrain_options ${ARG_USES} GTest::gtest GTest::gmock GTest::gtest_main)
  if(ARG_COMPUTES)
    target_compile_options(${NAME} PRIVATE ${MULTIGRAIN_OPTIMISED})
  else()
    target_compile_options(${NAME} PRIVATE ${MULTIGRAIN_TEST_OPTIONS})
    if(NOT ARG_OWN_OPTIONS)
      set_property(GLOBAL APPEND PROPERTY MULTIGRAIN_TEST_PROGRAMS ${NAME})
    endif()
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  foreach(label ${ARG_LABELS})
    add_dependencies(tests_${label} ${NAME})
  endforeach()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 1200)
  endif()
  set(properties TIMEOUT ${ARG_TIMEOUT} ${ARG_PROPERTIES})
  if(MULTIGRAIN_SANITIZE)
    # Brief: what failed is not to be looked for among hundreds of lines about what did not.
    set(filter)
    if(ARG_THREADS AND MULTIGRAIN_SANITIZE STREQUAL "thread")
      set(filter --gtest_filter=${ARG_THREADS})
    elseif(ARG_SANITIZED)
      set(filter --gtest_filter=${ARG_SANITIZED})
    endif()
    add_test(NAME ${NAME} COMMAND ${NAME} --gtest_brief=1 ${filter})
    set_tests_properties(${NAME} PROPERTIES LABELS "${ARG_LABELS}" ENVIRONMENT "${ARG_ENVIRONMENT}" ${properties})
    return()
  endif()
  if(NOT ARG_UNSANITIZED AND NOT ARG_SANITIZED AND ARG_LABELS MATCHES "unit|sync")
    list(APPEND ARG_LABELS sanitized)
    set_property(GLOBAL APPEND PROPERTY MULTIGRAIN_SANITIZED_TESTS ${NAME})
  endif()
  set(without "-*DISABLED_*")
  if(ARG_FULL)
    string(APPEND without ":${ARG_FULL}")
  endif()
  discover_cases(${NAME} ${NAME}_cases "${without}" "${ARG_LABELS}" "${ARG_ENVIRONMENT}" ${properties})
  if(ARG_FULL)
    discover_cases(${NAME} ${NAME}_full_cases "${ARG_FULL}:-*DISABLED_*" "${ARG_LABELS};full" "${ARG_ENVIRONMENT}" ${properties})
  endif()
endfunction()

# multigrain_python_test(NAME RUN words [LABELS l ...] [ENVIRONMENT NAME=value ...] [CONFIGURATIONS c ...] [PYTHON path]
#                        [PROPERTIES name value ...]): a test NAME that runs `python -m unittest -v words` in its folder, if
# there is a Python; with a PYTHON of its own, by that one. Tests find the programs by MULTIGRAIN_TEST_BIN.
function(multigrain_python_test NAME)
  cmake_parse_arguments(ARG "" "PYTHON" "RUN;LABELS;ENVIRONMENT;CONFIGURATIONS;PROPERTIES" ${ARGN})
  if(NOT ARG_PYTHON)
    find_package(Python3 3.10 QUIET COMPONENTS Interpreter)
    if(NOT Python3_FOUND)
      return()
    endif()
    set(ARG_PYTHON ${Python3_EXECUTABLE})
  endif()
  add_test(NAME ${NAME} CONFIGURATIONS ${ARG_CONFIGURATIONS} COMMAND ${ARG_PYTHON} -B -m unittest -v ${ARG_RUN}
           WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  set(environment MULTIGRAIN_TEST_BIN=${PROJECT_BINARY_DIR}/bin ${ARG_ENVIRONMENT})
  set_tests_properties(${NAME} PROPERTIES LABELS "${ARG_LABELS}" ENVIRONMENT "${environment}" ${ARG_PROPERTIES})
endfunction()

# discover_cases(NAME LIST FILTER LABELS ENVIRONMENT property value ...): the cases of the program NAME that the filter lets
# through are tests; LIST is a name for them. gtest_discover_tests() cannot hand on a property that is a list, so a file
# that ctest reads after its own sets them. A program that was not built has one test, which fails.
function(discover_cases NAME LIST FILTER LABELS ENVIRONMENT)
  gtest_discover_tests(${NAME} TEST_PREFIX ${NAME}. TEST_LIST ${LIST} NO_PRETTY_TYPES NO_PRETTY_VALUES DISCOVERY_TIMEOUT 600
    EXTRA_ARGS --gtest_brief=1 TEST_FILTER ${FILTER})
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${LIST}.cmake)
  list(JOIN ARGN " " properties)
  file(CONFIGURE OUTPUT ${file} @ONLY CONTENT [=[
if(NOT DEFINED @LIST@)
  set(@LIST@ @NAME@_NOT_BUILT)
endif()
foreach(case IN LISTS @LIST@)
  set_tests_properties("${case}" PROPERTIES LABELS "@LABELS@" ENVIRONMENT "@ENVIRONMENT@" @properties@)
endforeach()
]=])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
endfunction()

# targets_below(VARIABLE DIRECTORY): what `cmake --build` builds of this directory and those below it.
function(targets_below VARIABLE DIRECTORY)
  get_property(targets DIRECTORY ${DIRECTORY} PROPERTY BUILDSYSTEM_TARGETS)
  get_property(directories DIRECTORY ${DIRECTORY} PROPERTY SUBDIRECTORIES)
  set(built)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(left_out ${target} EXCLUDE_FROM_ALL)
    if(NOT left_out AND NOT type STREQUAL "INTERFACE_LIBRARY")
      list(APPEND built ${target})
    endif()
  endforeach()
  foreach(directory IN LISTS directories)
    targets_below(more ${directory})
    list(APPEND built ${more})
  endforeach()
  set(${VARIABLE} ${built} PARENT_SCOPE)
endfunction()

# The target all_but_sanitized: everything but the tests with the label sanitized. To be called when all targets are known.
function(add_all_but_sanitized)
  targets_below(targets ${PROJECT_SOURCE_DIR})
  get_property(tests GLOBAL PROPERTY MULTIGRAIN_SANITIZED_TESTS)
  list(REMOVE_ITEM targets ${tests})
  add_custom_target(all_but_sanitized DEPENDS ${targets})
endfunction()
