# The CUDA plug-in libtessera_cuda.so: NCCL groups and CUDA kernels (tessera/**/*_cuda.cpp, tessera/kernels/cuda/*.cu).
# It compiles and links on a machine without a GPU, and is dlopen'ed only when a run asks for --device cuda.
# AUTO: built when nvcc of the wheel's major version (13) and nccl.h are found; ON: missing parts are an error; OFF:
# never.

if(TESSERA_CUDA STREQUAL "OFF")
  message(STATUS "CUDA plug-in: OFF")
  return()
endif()

find_program(TESSERA_NVCC nvcc HINTS /usr/local/cuda/bin)
set(cuda_missing "")
set(tessera_nccl_minor 28)
if(tessera_torch_release VERSION_GREATER_EQUAL 2.15)
  set(tessera_nccl_minor 30)
endif()
if(NOT TESSERA_NVCC)
  set(cuda_missing "nvcc not found")
else()
  execute_process(COMMAND ${TESSERA_NVCC} --version OUTPUT_VARIABLE nvcc_version)
  if(NOT nvcc_version MATCHES "release 13\\.")
    set(cuda_missing "nvcc is not of CUDA 13 (the wheel's)")
  endif()
  get_filename_component(nvcc_real ${TESSERA_NVCC} REALPATH)
  get_filename_component(cuda_home ${nvcc_real}/../.. ABSOLUTE)
  find_path(NCCL_INCLUDE nccl.h HINTS ${cuda_home}/include /usr/local/cuda/include)
  if(NOT NCCL_INCLUDE)
    set(cuda_missing "nccl.h not found")
  endif()
  if(NCCL_INCLUDE)
    file(STRINGS ${NCCL_INCLUDE}/nccl.h nccl_version REGEX "define NCCL_(MAJOR|MINOR) ")
    if(NOT nccl_version MATCHES "MAJOR 2;.*MINOR ${tessera_nccl_minor}$")
      set(cuda_missing "nccl.h is not of NCCL 2.${tessera_nccl_minor} (that of LibTorch ${tessera_torch_release})")
    endif()
  endif()
  if(NOT EXISTS ${cuda_home}/include/cusparse.h OR NOT EXISTS ${cuda_home}/include/cublas_v2.h)
    set(cuda_missing "the toolkit at ${cuda_home} lacks cublas/cusparse headers, which LibTorch's CUDA headers include")
  endif()
endif()
if(cuda_missing)
  if(TESSERA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TESSERA_CUDA=ON: ${cuda_missing}")
  endif()
  message(STATUS "CUDA plug-in: not built (${cuda_missing})")
  return()
endif()

file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tessera/*_cuda.cpp)
file(GLOB cuda_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tessera/kernels/cuda/*.cu)
if(NOT cuda_sources)
  return()
endif()
message(STATUS "CUDA plug-in: ${cuda_home}, ${NCCL_INCLUDE}/nccl.h")

foreach(name c10_cuda torch_cuda)
  add_library(torch::${name} SHARED IMPORTED)
  set_target_properties(torch::${name} PROPERTIES IMPORTED_LOCATION ${torch_root}/lib/lib${name}.so)
endforeach()

# Kernels see raw pointers only, so nvcc never meets a torch header: one custom command per file instead of a CUDA
# language that CMake would probe for on every machine. sm_80 and sm_90, with PTX for what comes later.
set(cuda_objects "")
foreach(source ${cuda_kernels})
  get_filename_component(name ${source} NAME_WE)
  set(object ${PROJECT_BINARY_DIR}/cuda/${name}.o)
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/cuda
    COMMAND ${TESSERA_NVCC} -std=c++20 -O3 --expt-relaxed-constexpr -Xcompiler -fPIC,-Wall,-Wextra --Werror all-warnings
            -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90]
            -I ${PROJECT_SOURCE_DIR} -MD -MF ${object}.d -c ${source} -o ${object}
    DEPENDS ${source} DEPFILE ${object}.d COMMENT "nvcc ${name}.cu" VERBATIM)
  list(APPEND cuda_objects ${object})
endforeach()

add_library(tessera_cuda MODULE ${cuda_sources} ${cuda_objects})
target_link_libraries(tessera_cuda PRIVATE tessera tessera_flags tessera_torch torch::torch_cuda torch::c10_cuda)
target_include_directories(tessera_cuda SYSTEM PRIVATE ${cuda_home}/include ${NCCL_INCLUDE})
target_compile_definitions(tessera_cuda PRIVATE USE_C10D_NCCL)
target_compile_options(tessera_cuda PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-interference-size>)  # c10/cuda/CUDAEvent.h
target_link_options(tessera_cuda PRIVATE -L${cuda_home}/lib64 -L${cuda_home}/lib -Wl,--allow-shlib-undefined)
target_link_libraries(tessera_cuda PRIVATE cudart)
set_target_properties(tessera_cuda PROPERTIES BUILD_RPATH "$ORIGIN;${tessera_torch_rpath}")
