# The plugins that mgcc loads into Clang 19. They are not built with sanitizers, and link none of Multigrain's libraries.

# multigrain_pass(NAME [KNOWS_LIBRARIES] SOURCES a.cpp ...): the plugin multigrain-NAME-pass.
# KNOWS_LIBRARIES: it must know which functions belong to the system's libraries: library_functions.cpp (src/instrument/pass)
# is compiled in, with a list of their symbols.
function(multigrain_pass NAME)
  cmake_parse_arguments(ARG "KNOWS_LIBRARIES" "" "SOURCES" ${ARGN})
  set(target multigrain-${NAME}-pass)
  find_program(MULTIGRAIN_LLVM_CONFIG NAMES llvm-config-19 REQUIRED)
  execute_process(COMMAND ${MULTIGRAIN_LLVM_CONFIG} --includedir OUTPUT_VARIABLE includes
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  add_library(${target} MODULE ${ARG_SOURCES})
  if(ARG_KNOWS_LIBRARIES)
    set(checks ${PROJECT_SOURCE_DIR}/src/instrument/pass)
    set(libraries)
    foreach(name libc.so.6 libm.so.6 libstdc++.so.6 libgcc_s.so.1)
      execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${name} OUTPUT_VARIABLE library
                      OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
      list(APPEND libraries ${library})
    endforeach()
    add_custom_command(OUTPUT library_symbols.inc
      COMMAND ${checks}/list_symbols.sh ${CMAKE_NM} ${libraries} > library_symbols.inc
      DEPENDS ${checks}/list_symbols.sh ${libraries} VERBATIM)
    target_sources(${target} PRIVATE ${checks}/library_functions.cpp ${CMAKE_CURRENT_BINARY_DIR}/library_symbols.inc)
  endif()
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${CMAKE_CURRENT_SOURCE_DIR}
    ${CMAKE_CURRENT_BINARY_DIR})
  target_include_directories(${target} SYSTEM PRIVATE ${includes})
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wconversion -Wno-sign-conversion
    $<$<BOOL:${MULTIGRAIN_WERROR}>:-Werror> -fno-rtti -fno-exceptions)
  # An installed mgcc looks for the plugin here.
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/multigrain)
endfunction()
