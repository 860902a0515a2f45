# LibTorch from the PyPI wheel, without find_package(Torch) (it wants nvcc and stops without it): a release that
# tools/torch/ lists. 'make deps' unpacks the wheel into ${TESSERA_TORCH_DIR}. docs/dependencies.md tells why each line
# is so.

set(torch_root ${TESSERA_TORCH_DIR}/torch)
if(NOT EXISTS ${torch_root}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "LibTorch is not at ${torch_root}: run 'make deps' first (or set TESSERA_TORCH_DIR).")
endif()
file(STRINGS ${torch_root}/version.py torch_version REGEX "^__version__")
file(GLOB tessera_torch_releases CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/torch/*.txt)
list(TRANSFORM tessera_torch_releases REPLACE "^.*/([0-9.]+)\\.txt$" "\\1")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" tessera_torch_release "${torch_version}")
if(NOT tessera_torch_release IN_LIST tessera_torch_releases)
  list(JOIN tessera_torch_releases " or " tessera_torch_releases)
  message(FATAL_ERROR "LibTorch at ${torch_root} says ${torch_version}; this build needs ${tessera_torch_releases} "
                      "(the C++ ABI changes between releases). Run 'make deps', or 'tools/deps.sh --torch RELEASE'.")
endif()
message(STATUS "LibTorch ${tessera_torch_release}: ${torch_root}")
set_source_files_properties(${PROJECT_SOURCE_DIR}/tools/tessera/tensors.cpp PROPERTIES
  COMPILE_DEFINITIONS TESSERA_TORCH_RELEASE="${tessera_torch_release}")

foreach(name c10 torch_cpu)
  add_library(torch::${name} SHARED IMPORTED)
  set_target_properties(torch::${name} PROPERTIES IMPORTED_LOCATION ${torch_root}/lib/lib${name}.so)
endforeach()
add_library(tessera_torch INTERFACE)
target_include_directories(tessera_torch SYSTEM INTERFACE
  ${torch_root}/include ${torch_root}/include/torch/csrc/api/include)
target_compile_definitions(tessera_torch INTERFACE USE_DISTRIBUTED USE_C10D_GLOO)
# NO_PUBLIC names: interposition off lets the compiler inline across our own functions. gomp: nn/parallel_for.cpp enters
# the pool of LibTorch, which is the wheel's own libgomp (RPATH below). No -fopenmp: clang's would be a second pool.
set(tessera_torch_optimization -O1 ${tessera_glue})
target_compile_options(tessera_torch INTERFACE -fno-semantic-interposition)
target_link_libraries(tessera_torch INTERFACE torch::torch_cpu torch::c10 gomp)
target_link_options(tessera_torch INTERFACE -Wl,--allow-shlib-undefined)
set(tessera_torch_rpath ${torch_root}/lib ${TESSERA_TORCH_DIR}/nvidia/cu13/lib)

# One precompiled header: clang reads of it what a unit uses, so that tensors alone cost no more for standing beside
# modules.
set(pch_dir ${PROJECT_BINARY_DIR}/pch)
if(NOT EXISTS ${pch_dir}/empty.cpp)  # written once: a new time stamp would rebuild everything
  file(WRITE ${pch_dir}/empty.cpp "")
endif()
set(tessera_torch_headers <ATen/ATen.h> <torch/nn/module.h> <torch/nn/pimpl.h> <torch/csrc/autograd/custom_function.h>)
add_library(tessera_pch_torch OBJECT ${pch_dir}/empty.cpp)
target_link_libraries(tessera_pch_torch PRIVATE tessera_flags tessera_torch)
target_compile_options(tessera_pch_torch PRIVATE ${tessera_torch_optimization})
target_precompile_headers(tessera_pch_torch PRIVATE ${tessera_torch_headers} ${tessera_standard_headers})

# Gloo is inside libtorch_cpu.so but its headers are not shipped: declaration-only stand-ins, for one file.
set_source_files_properties(${PROJECT_SOURCE_DIR}/tessera/comm/gloo.cpp PROPERTIES
  COMPILE_OPTIONS "-isystem;${PROJECT_SOURCE_DIR}/cmake/gloo_stubs")

# tessera_use_torch(TARGET [TESTS]): compile and link TARGET against LibTorch with its precompiled header; TESTS: with
# the one of tests/CMakeLists.txt.
function(tessera_use_torch target)
  cmake_parse_arguments(ARG "TESTS" "" "" ${ARGN})
  target_link_libraries(${target} PRIVATE tessera_flags tessera_torch)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")  # CMake says -fPIE for programs; the PCH is -fPIC, and the last one counts
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  if(ARG_TESTS)
    target_compile_options(${target} PRIVATE ${tessera_test_options})
    target_precompile_headers(${target} REUSE_FROM tessera_pch_torch_test)
  else()
    target_compile_options(${target} PRIVATE ${tessera_torch_optimization})
    target_precompile_headers(${target} REUSE_FROM tessera_pch_torch)
  endif()
  set_target_properties(${target} PROPERTIES BUILD_RPATH "$ORIGIN;${tessera_torch_rpath}")
endfunction()

# tessera_torch_layer(FOLDER): sources in tessera/FOLDER and its sub-folders.
function(tessera_torch_layer folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tessera/${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_cuda\\.cpp$")
  if(NOT sources)
    return()
  endif()
  string(REPLACE "/" "_" name tessera_layer_${folder})
  tessera_units(units ${folder} 5 ${sources})
  add_library(${name} OBJECT ${units})
  tessera_use_torch(${name})
  set_property(GLOBAL APPEND PROPERTY tessera_torch_objects $<TARGET_OBJECTS:${name}>)
endfunction()

function(tessera_torch_library)
  get_property(objects GLOBAL PROPERTY tessera_torch_objects)
  add_library(tessera SHARED ${objects})
  target_link_libraries(tessera PUBLIC tessera_core PRIVATE tessera_flags tessera_torch ${CMAKE_DL_LIBS})
  set_target_properties(tessera PROPERTIES BUILD_RPATH "$ORIGIN;${tessera_torch_rpath}")
  tessera_versioned(tessera)
endfunction()
