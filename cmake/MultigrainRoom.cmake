# Targets of one shape: rooms (static libraries of src/, hidden symbols, joined into libmultigrain.so) and tests.

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

# multigrain_room(NAME SOURCES a.cpp ... [USES other rooms and libraries])
function(multigrain_room NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;USES" ${ARGN})
  add_library(multigrain_${NAME} STATIC ${ARG_SOURCES})
  target_include_directories(multigrain_${NAME} PUBLIC ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(multigrain_${NAME} PUBLIC multigrain_options ${ARG_USES})
endfunction()

# multigrain_module(NAME SOURCES a.cpp ... [USES rooms and libraries]): multigrain-NAME.so, which src/fabric/module.h loads
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
# and 7 s). What is tested is in the rooms, which are optimised as always, and of the debug information a failure needs
# no more than the line numbers.
if(MULTIGRAIN_SANITIZE)
  set(test_options $<$<CONFIG:RelWithDebInfo>:-O0> $<$<CONFIG:RelWithDebInfo>:-g1>)
else()
  set(test_options $<$<CONFIG:RelWithDebInfo>:-O1> $<$<CONFIG:RelWithDebInfo>:-g1>)
endif()

# multigrain_test(NAME SOURCES a_test.cpp ... [USES rooms] [LABELS l ...] [TIMEOUT seconds] [COMPUTES]
#                 [SANITIZED filter]): one GoogleTest program.
# Labels that ./test goes by: unit (the default; one room, also run under ASan), tsan (also run under TSan), long (left
# out of ./test), program, workload and install. COMPUTES: the test's own code computes for long, so it is optimised
# like a room. SANITIZED: with a sanitizer, only what this --gtest_filter lets through is run.
function(multigrain_test NAME)
  cmake_parse_arguments(ARG "COMPUTES" "TIMEOUT;SANITIZED" "SOURCES;USES;LABELS" ${ARGN})
  add_executable(${NAME} ${ARG_SOURCES})
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin/tests)
  target_link_libraries(${NAME} PRIVATE multigrain_options ${ARG_USES} GTest::gtest GTest::gmock GTest::gtest_main)
  if(NOT ARG_COMPUTES)
    target_compile_options(${NAME} PRIVATE ${test_options})
  endif()
  # Brief: what failed is not to be looked for among hundreds of lines about what did not.
  if(MULTIGRAIN_SANITIZE AND ARG_SANITIZED)
    add_test(NAME ${NAME} COMMAND ${NAME} --gtest_brief=1 --gtest_filter=${ARG_SANITIZED})
  else()
    add_test(NAME ${NAME} COMMAND ${NAME} --gtest_brief=1)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  set_tests_properties(${NAME} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
  foreach(label ${ARG_LABELS})
    add_dependencies(tests_${label} ${NAME})
  endforeach()
endfunction()
