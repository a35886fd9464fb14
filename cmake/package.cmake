# What `cpack` makes of that which install.cmake installs, in the build's folder: a .deb, whose dependencies are the
# packages of the libraries that the programs are linked with, and a .tar.zst.
set(CPACK_GENERATOR DEB TZST)
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_VENDOR Lockstep)
set(CPACK_PACKAGE_CONTACT "The Lockstep authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Starts, watches and restarts training jobs that run as several processes")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR})
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS gdb)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "One manifest, a TrainingJob, says what to run; the launcher gives every process
its devices, its rank and its peers, restarts them together when one fails, and
serves health, progress and throughput over HTTP.")
include(CPack)
