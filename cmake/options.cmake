# Compiler flags of every target of ours.

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

# Designated initialisers leave out what has a default.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-missing-field-initializers;-fno-omit-frame-pointer>")
# (nvcc's own output is not clean under -Wextra.)
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-fno-omit-frame-pointer>")
if(LOCKSTEP_WERROR)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Werror>" "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>")
endif()
if(LOCKSTEP_SANITIZE)
  # GCC sees uninitialised members in <regex> when it instruments it.
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all -Wno-maybe-uninitialized)
  if(LOCKSTEP_SANITIZE MATCHES undefined)
    # These three take a third of the time to compile; a null pointer that is followed ends the program all the same.
    add_compile_options(-fno-sanitize=null,vptr,object-size)
  endif()
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
endif()
include_directories(${CMAKE_SOURCE_DIR})

# Most of the time of building everything goes into headers: a unity build compiles a dozen sources of a library or
# program together (CMakePresets.json: all presets but debug) and takes a third of the time.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)
if(CMAKE_UNITY_BUILD)
  # (It takes the sources' own types for a header's.)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>")
endif()

# lockstep_compile_alone(FILE…): sources of this folder whose local names others have too.
function(lockstep_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# lockstep_library(NAME SOURCES … DEPENDS …): one library a folder; DEPENDS is the rule of who may know whom.
function(lockstep_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(lockstep_${name} STATIC ${arg_SOURCES})
  target_link_libraries(lockstep_${name} PUBLIC ${arg_DEPENDS} PRIVATE ${arg_PRIVATE_DEPENDS})
  add_library(lockstep::${name} ALIAS lockstep_${name})
  # The trainer is a library for others too (install.cmake).
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "^${CMAKE_SOURCE_DIR}/(common|trainer)")
    set_target_properties(lockstep_${name} PROPERTIES EXPORT_NAME ${name})
    set_property(GLOBAL APPEND PROPERTY LOCKSTEP_INSTALLED_LIBRARIES lockstep_${name})
  endif()
endfunction()
