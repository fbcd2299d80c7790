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

# multigrain_test(NAME SOURCES a_test.cpp ... [USES rooms] [LABELS l ...] [TIMEOUT seconds]): one GoogleTest program.
# Labels that ./test goes by: unit (the default; one room, also run under ASan), tsan (also run under TSan), long (left
# out of ./test), program, workload and install.
function(multigrain_test NAME)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;USES;LABELS" ${ARGN})
  add_executable(${NAME} ${ARG_SOURCES})
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin/tests)
  target_link_libraries(${NAME} PRIVATE multigrain_options ${ARG_USES} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${NAME} COMMAND ${NAME})
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
