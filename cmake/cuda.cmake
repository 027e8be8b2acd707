# CUDA's driver interface: only the header cuda.h, of CUDA 12.0 or later; the
# library is found at run time. Sets RSCHED_CUDA to ON or OFF, and
# CUDA_INCLUDE_DIR.

if(RSCHED_CUDA)
  include(CheckCSourceCompiles)
  find_path(CUDA_INCLUDE_DIR cuda.h HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda
            PATH_SUFFIXES include)
  if(CUDA_INCLUDE_DIR)
    set(CMAKE_REQUIRED_INCLUDES "${CUDA_INCLUDE_DIR}")
    check_c_source_compiles("#include <cuda.h>
        #if CUDA_VERSION < 12000
        #error before CUDA 12.0
        #endif
        int main(void)
        {
            return 0;
        }" RSCHED_CUDA_HEADER)
    unset(CMAKE_REQUIRED_INCLUDES)
  endif()
  if(NOT RSCHED_CUDA STREQUAL "AUTO" AND NOT RSCHED_CUDA_HEADER)
    message(FATAL_ERROR "RSCHED_CUDA is ${RSCHED_CUDA}, but there is no cuda.h, or too old a one; "
                        "CUDA_INCLUDE_DIR says where to look")
  endif()
  set(RSCHED_CUDA OFF)
  if(RSCHED_CUDA_HEADER)
    set(RSCHED_CUDA ON)
  endif()
endif()

# Kernels, compiled by nvcc, which is needed for nothing else. Sets
# RSCHED_CUDA_KERNELS to ON or OFF, and CUDA_NVCC.
if(RSCHED_CUDA AND RSCHED_CUDA_KERNELS)
  find_program(CUDA_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
endif()
if(NOT RSCHED_CUDA_KERNELS STREQUAL "AUTO" AND RSCHED_CUDA_KERNELS AND NOT CUDA_NVCC)
  message(FATAL_ERROR "RSCHED_CUDA_KERNELS is ${RSCHED_CUDA_KERNELS}, but there is no cuda.h, or no "
                      "nvcc; CUDA_NVCC says where it is")
endif()
if(RSCHED_CUDA AND RSCHED_CUDA_KERNELS AND CUDA_NVCC)
  set(RSCHED_CUDA_KERNELS ON)
else()
  set(RSCHED_CUDA_KERNELS OFF)
endif()
message(STATUS "GPU memory: ${RSCHED_CUDA}, kernels: ${RSCHED_CUDA_KERNELS}")
