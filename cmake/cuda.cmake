# Everything that is linked to CUDA is one library, liblockstep-cuda.so, opened at run time: the program is the same with
# and without it (trainer/backend/cuda_plugin.h). Built by the preset `cuda`, with what tools/cuda_toolkit.sh brings.
#
# The same sources are compiled for tests on machines without a GPU against tests/support/cuda_on_host, for which the
# vendors' headers are enough.

set(LOCKSTEP_CUDA_TOOLKIT ${CMAKE_SOURCE_DIR}/build/cuda-toolkit CACHE PATH "Made by tools/cuda_toolkit.sh")
option(LOCKSTEP_CUDA "Build liblockstep-cuda.so" OFF)

# (An older toolkit has no cuDNN.)
if(EXISTS ${LOCKSTEP_CUDA_TOOLKIT}/complete AND EXISTS ${LOCKSTEP_CUDA_TOOLKIT}/cudnn/include/cudnn.h)
  add_library(lockstep_cuda_headers INTERFACE)
  target_include_directories(lockstep_cuda_headers SYSTEM INTERFACE
    ${LOCKSTEP_CUDA_TOOLKIT}/cuda/include ${LOCKSTEP_CUDA_TOOLKIT}/cuda/include/cccl ${LOCKSTEP_CUDA_TOOLKIT}/nccl/include
    ${LOCKSTEP_CUDA_TOOLKIT}/cudnn/include)
  add_library(lockstep::cuda_headers ALIAS lockstep_cuda_headers)
elseif(LOCKSTEP_CUDA)
  message(FATAL_ERROR "no CUDA toolkit with cuDNN in ${LOCKSTEP_CUDA_TOOLKIT}: run tools/cuda_toolkit.sh")
else()
  message(STATUS "No CUDA headers in ${LOCKSTEP_CUDA_TOOLKIT}: the tests of the CUDA sources are left out")
endif()

if(LOCKSTEP_CUDA)
  # What is in use: T4, A100, H100 and H200; newer devices compile the last one for themselves.
  set(CMAKE_CUDA_ARCHITECTURES "75-real;80-real;90a-real;90-virtual")
  set(CMAKE_CUDA_COMPILER ${LOCKSTEP_CUDA_TOOLKIT}/cuda/bin/nvcc)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  enable_language(CUDA)
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
endif()

# lockstep_cuda_sources(FILE…): sources of the library, of the folder that calls.
function(lockstep_cuda_sources)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_CUDA_SOURCES ${ARGN})
endfunction()

# lockstep_cuda_library(NAME): the library, of the sources that folders have named, without a vendor's library. It shows
# its entries only; whatever it shares with the program it has its own copy of.
function(lockstep_cuda_library name)
  get_property(sources GLOBAL PROPERTY LOCKSTEP_CUDA_SOURCES)
  add_library(${name} SHARED ${sources})
  target_compile_definitions(${name} PRIVATE LOCKSTEP_VERSION="${PROJECT_VERSION}")
  target_link_libraries(${name} PRIVATE lockstep::cuda_headers Threads::Threads ${CMAKE_DL_LIBS})
  set(exports ${CMAKE_SOURCE_DIR}/cmake/cuda_exports.map)
  target_link_options(${name} PRIVATE -Wl,--version-script=${exports} -Wl,--no-undefined)
  set_target_properties(${name} PROPERTIES
    CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} LINK_DEPENDS ${exports})
endfunction()

# The real one, where LOCKSTEP_CUDA asks for it, beside the program. Its run path holds for a copy of both with CUDA's
# libraries beside them or in ../lib, and for the build tree. The driver is not needed to open it, nor is cuDNN, which it
# looks for by itself.
function(lockstep_add_cuda_plugin)
  if(NOT LOCKSTEP_CUDA)
    return()
  endif()
  lockstep_cuda_library(lockstep-cuda)
  target_link_libraries(lockstep-cuda PRIVATE
    ${LOCKSTEP_CUDA_TOOLKIT}/cuda/lib64/libcudart.so ${LOCKSTEP_CUDA_TOOLKIT}/cuda/lib64/libcublasLt.so
    ${LOCKSTEP_CUDA_TOOLKIT}/nccl/lib/libnccl.so)
  set(run_path "$ORIGIN;$ORIGIN/../lib")
  foreach(folder cuda/lib64 nccl/lib cudnn/lib)
    file(RELATIVE_PATH relative ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${LOCKSTEP_CUDA_TOOLKIT}/${folder})
    list(APPEND run_path "$ORIGIN/${relative}")
  endforeach()
  # (Kernels have local names in common: kThreads.)
  set_target_properties(lockstep-cuda PROPERTIES UNITY_BUILD OFF
    CUDA_RUNTIME_LIBRARY None BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "${run_path}")
endfunction()
