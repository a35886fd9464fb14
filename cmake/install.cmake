# What `cmake --install` puts where: the two programs with their manual pages, and the trainer as a library for C++ (docs/library.md), which
# find_package(Lockstep) finds. To be included after the libraries are made.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS lockstep lockstep-pmix lockstep-trainer RUNTIME)
install(FILES ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/kubectl-lockstep TYPE BIN)
install(DIRECTORY ${CMAKE_BINARY_DIR}/man1 TYPE MAN)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/lockstep RENAME copyright)
if(LOCKSTEP_CUDA)
  install(TARGETS lockstep-cuda LIBRARY DESTINATION ${CMAKE_INSTALL_BINDIR})  # beside the program, which looks there
endif()

get_property(libraries GLOBAL PROPERTY LOCKSTEP_INSTALLED_LIBRARIES)
install(TARGETS ${libraries} EXPORT LockstepTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep)
install(DIRECTORY common trainer DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep FILES_MATCHING PATTERN "*.h")

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep)
install(EXPORT LockstepTargets NAMESPACE lockstep:: DESTINATION ${package})
configure_package_config_file(cmake/LockstepConfig.cmake.in LockstepConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(LockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/LockstepConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/LockstepConfigVersion.cmake
  DESTINATION ${package})
