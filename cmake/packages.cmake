# What is borrowed, all from Debian 12. Each vendor's headers stay in one folder (tests/unit/vendor_headers_test.py).

find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto SSL)
find_package(nlohmann_json REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(prometheus-cpp REQUIRED COMPONENTS core)
# (Debian's dnnl-config.cmake wants OpenCL's headers, which the CPU engine does not need.)
find_library(DNNL_LIBRARY dnnl REQUIRED)
find_package(GTest REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(microhttpd REQUIRED IMPORTED_TARGET libmicrohttpd)
pkg_check_modules(libdeflate REQUIRED IMPORTED_TARGET libdeflate)
pkg_check_modules(libyaml REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(pmix REQUIRED IMPORTED_TARGET pmix)
pkg_check_modules(cpp_httplib REQUIRED IMPORTED_TARGET cpp-httplib)
# Debian's GlooConfig.cmake names targets it does not ship; the library itself is enough.
find_library(GLOO_LIBRARY gloo REQUIRED)
# Static, since `lockstep` runs in images that have none.
find_library(RE2_LIBRARY libre2.a REQUIRED)
find_library(NCURSES_LIBRARY libncursesw.a REQUIRED)
find_library(TINFO_LIBRARY libtinfo.a REQUIRED)
