# The folders of the CUDA runtime's headers: those of a toolkit, or UNSHARD_CUDA_INCLUDE, for example those of the
# packages nvidia-cuda-runtime-cu12 and nvidia-cuda-nvcc-cu12 (its crt/). Empty where no such folders compile.
# Nothing is linked: the runtime is loaded when it is needed.
function(unshard_cuda_headers out)
  set(dirs ${UNSHARD_CUDA_INCLUDE})
  if(NOT dirs)
    find_package(CUDAToolkit QUIET)
    set(dirs ${CUDAToolkit_INCLUDE_DIRS})
  endif()
  include(CheckCSourceCompiles)
  set(CMAKE_REQUIRED_INCLUDES ${dirs})
  set(CMAKE_REQUIRED_QUIET ON)
  unset(UNSHARD_CUDA_COMPILES CACHE) # the folders may be others than last time
  check_c_source_compiles("#include <cuda_runtime_api.h>\nint main(void) { return cudaSuccess; }" UNSHARD_CUDA_COMPILES)
  if(NOT UNSHARD_CUDA_COMPILES)
    set(dirs "")
  endif()
  set(${out} ${dirs} PARENT_SCOPE)
endfunction()
