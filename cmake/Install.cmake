# cmake --install: the library, its headers, mgrun, and what find_package(Multigrain) and pkg-config need.
if(NOT TARGET multigrain)
  return()
endif()
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Multigrain)
install(TARGETS multigrain multigrain_openmp EXPORT MultigrainTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/multigrain DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
foreach(tool mgrun mgtop mgcc mgcxx mgbench mgtrace mgstudy)
  if(TARGET ${tool})
    set_target_properties(${tool} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    install(TARGETS ${tool} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
# What mgbench runs, which is no command.
foreach(program mgbench-pages mgbench-lines)
  set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/..")
  install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_LIBDIR}/multigrain)
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
if(TARGET manual)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/share/man/ DESTINATION ${CMAKE_INSTALL_MANDIR})
  install(DIRECTORY ${PROJECT_BINARY_DIR}/share/bash-completion ${PROJECT_BINARY_DIR}/share/zsh ${PROJECT_BINARY_DIR}/share/fish
    DESTINATION ${CMAKE_INSTALL_DATADIR})
endif()
# In a folder docs beside README.md, as its links and the library's messages say.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")

# What --machine finds by name.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/machines DESTINATION ${CMAKE_INSTALL_DATADIR}/multigrain FILES_MATCHING PATTERN "*.json")

install(FILES ${PROJECT_SOURCE_DIR}/tools/gdb/multigrain.gdb DESTINATION ${CMAKE_INSTALL_DATADIR}/multigrain)

install(EXPORT MultigrainTargets NAMESPACE Multigrain:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/MultigrainConfig.cmake.in
  ${PROJECT_BINARY_DIR}/MultigrainConfig.cmake INSTALL_DESTINATION ${package_dir}
  PATH_VARS CMAKE_INSTALL_BINDIR CMAKE_INSTALL_INCLUDEDIR)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/MultigrainConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/MultigrainConfig.cmake ${PROJECT_BINARY_DIR}/MultigrainConfigVersion.cmake
  DESTINATION ${package_dir})

file(RELATIVE_PATH prefix_from_pc ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${PROJECT_SOURCE_DIR}/cmake/multigrain.pc.in ${PROJECT_BINARY_DIR}/multigrain.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/multigrain.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The target installed: what `cmake --install` takes, and neither the workloads nor the tests.
targets_below(src_targets ${PROJECT_SOURCE_DIR}/src)
targets_below(study_targets ${PROJECT_SOURCE_DIR}/study)
targets_below(tools_targets ${PROJECT_SOURCE_DIR}/tools)
add_custom_target(installed DEPENDS ${src_targets} ${study_targets} ${tools_targets})
