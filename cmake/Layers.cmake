# How a folder becomes part of a library. A layer is a folder; its sources are globbed, so adding a file needs no
# edit here. NAME_cuda.cpp / NAME_none.cpp are chosen by the build instead of #ifdefs.

add_library(tessera_flags INTERFACE)
target_compile_options(tessera_flags INTERFACE -Wall -Wextra -Wno-unused-parameter -g1 ${tessera_path_options}
  $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>  # lets the compiler cache serve units with a precompiled header
  # libstdc++'s std::stable_sort uses what C++17 deprecates, and its own pragma does not survive a precompiled header.
  # Templates under std::enable_if keep the names that g++ gives them, whose LibTorch is linked to.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations;-fclang-abi-compat=17>)
if(TESSERA_WERROR)
  target_compile_options(tessera_flags INTERFACE -Werror)
endif()
target_include_directories(tessera_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_definitions(tessera_flags INTERFACE TESSERA_VERSION="${PROJECT_VERSION}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(tessera_architecture arm64)
  # g++ would join a product and a sum into one instruction that rounds once, where there is one: always here, never on
  # x86-64 outside the kernels. Every number shall come out as there; kernels ask for it by name.
  target_compile_options(tessera_flags INTERFACE -ffp-contract=off)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(tessera_architecture x86)
  set(tessera_kernel_contraction -ffp-contract=fast)  # files for AVX2 and AVX-512: a product and a sum round once
else()
  message(FATAL_ERROR "Tessera runs on x86-64 and on 64-bit ARM; this is ${CMAKE_SYSTEM_PROCESSOR}.")
endif()
# tessera_of_architecture(LIST): takes NAME_x86.cpp and NAME_arm64.cpp of other architectures out, and files for
# instruction sets that this one does not have.
function(tessera_of_architecture list)
  set(sources ${${list}})
  if(tessera_architecture STREQUAL x86)
    list(FILTER sources EXCLUDE REGEX "_(arm64|neon)\\.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "_(x86|avx2|avx512)\\.cpp$")
  endif()
  set(${list} ${sources} PARENT_SCOPE)
endfunction()

set(tessera_core_optimization -O2)
# What only connects parts is inlined less, which saves a fifth of its compile time; kernels are compiled elsewhere.
set(tessera_glue $<$<CXX_COMPILER_ID:Clang>:SHELL:-mllvm -inline-threshold=25>)
if(TESSERA_SANITIZE)
  target_compile_options(tessera_flags INTERFACE
    -fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    # g++ 12 warns inside std::function and std::regex under sanitizers
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  set(tessera_core_optimization -O0)  # a third of the compile time
  target_link_options(tessera_flags INTERFACE -fsanitize=${TESSERA_SANITIZE})
endif()
set(tessera_kernel_optimization -O3)
if(TESSERA_SANITIZE)
  set(tessera_kernel_optimization -O1)
endif()
set(tessera_core_kind SHARED)
if(TESSERA_FUZZ)
  target_compile_options(tessera_flags INTERFACE -fsanitize=fuzzer-no-link)
  set(tessera_core_optimization -O2)  # millions of inputs pay for the compile time
  set(tessera_core_kind STATIC)       # a fuzzer then counts the edges of what its reader uses, and nothing else
  # The search for the name that was meant compares every known name: with a callback for each comparison it takes most
  # of the time.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/tessera/base/text.cpp
    PROPERTIES COMPILE_OPTIONS -fno-sanitize-coverage=trace-cmp)
endif()

# What has no tensors is compiled with the standard library's headers precompiled.
set(tessera_standard_headers <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <filesystem> <fstream>
  <functional> <map> <memory> <mutex> <optional> <set> <sstream> <string> <string_view> <thread> <unordered_map>
  <utility> <variant> <vector>)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/pch/standard.cpp CONTENT "")
add_library(tessera_pch_standard OBJECT ${PROJECT_BINARY_DIR}/pch/standard.cpp)
target_compile_options(tessera_pch_standard PRIVATE ${tessera_core_optimization})
target_link_libraries(tessera_pch_standard PRIVATE tessera_flags)
target_precompile_headers(tessera_pch_standard PRIVATE ${tessera_standard_headers})
# tessera_use_standard(TARGET): compiles TARGET so, optimized as the part without tensors is.
function(tessera_use_standard target)
  # -fPIC: CMake says -fPIE for programs, the precompiled header is -fPIC, and the last one counts.
  target_compile_options(${target} PRIVATE ${tessera_core_optimization} -fPIC)
  target_precompile_headers(${target} REUSE_FROM tessera_pch_standard)
endfunction()

# A program looks for the library whose public names it was linked to (docs/install.md, Versions): before 1.0 the second
# number changes with them. libNAME.so.0.1.0 is the file, libNAME.so.0.1 what programs look for, libNAME.so what links.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(tessera_abi 0.${PROJECT_VERSION_MINOR})
else()
  set(tessera_abi ${PROJECT_VERSION_MAJOR})
endif()
function(tessera_versioned target)
  set_target_properties(${target} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${tessera_abi})
  # Calls inside a library go straight to its own functions: without this, each passes through a table that the loader
  # fills by name (0.7 MB of tables in libtessera.so).
  target_link_options(${target} PRIVATE LINKER:-Bsymbolic-functions)
endfunction()

set_property(GLOBAL PROPERTY tessera_core_objects "")
set_property(GLOBAL PROPERTY tessera_core_libraries "")
set_property(GLOBAL PROPERTY tessera_torch_objects "")

# tessera_units(RESULT NAME SIZE SOURCES...): what is compiled for the sources. With TESSERA_UNITY those of a folder
# come in units of at most SIZE files, because most of a unit's time goes into headers and what they instantiate; names
# in anonymous namespaces must then differ within a unit. Units include <tessera/...>, not an absolute path, so that the
# compiler cache serves every clone. Sources with compile options of their own stay alone.
function(tessera_units result name size)
  if(NOT TESSERA_UNITY)
    set(${result} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(units "")
  set(folders "")
  foreach(source ${ARGN})
    get_source_file_property(own ${source} COMPILE_OPTIONS)
    get_filename_component(folder ${source} DIRECTORY)
    if(own)
      list(APPEND units ${source})
    else()
      list(APPEND folders ${folder})
      list(APPEND sources_of_${folder} ${source})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder ${folders})
    list(LENGTH sources_of_${folder} count)
    math(EXPR number "(${count} + ${size} - 1) / ${size}")
    math(EXPR each "(${count} + ${number} - 1) / ${number}")  # 9 files of at most 8 are 5 and 4
    file(RELATIVE_PATH title ${PROJECT_SOURCE_DIR} ${folder})
    string(REPLACE "/" "_" title ${title})
    math(EXPR last "${number} - 1")
    foreach(index RANGE ${last})
      math(EXPR begin "${index} * ${each}")
      list(SUBLIST sources_of_${folder} ${begin} ${each} files)
      set(text "")
      foreach(file ${files})
        file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${file})
        string(APPEND text "#include <${path}>\n")
      endforeach()
      set(unit ${PROJECT_BINARY_DIR}/units/${name}/${title}_${index}.cpp)
      file(CONFIGURE OUTPUT ${unit} CONTENT "${text}" @ONLY)
      if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # it takes an included .cpp for a header
        set_source_files_properties(${unit} PROPERTIES COMPILE_OPTIONS -Wno-subobject-linkage)
      endif()
      list(APPEND units ${unit})
    endforeach()
  endforeach()
  set(${result} ${units} PARENT_SCOPE)
endfunction()

# tessera_core_layer(FOLDER [GLUE|HOT] [LIBRARIES ...]): torch-free, with its sub-folders; GLUE: without hot loops;
# HOT: with loops so hot that its tests would take minutes under sanitizers without optimization.
function(tessera_core_layer folder)
  cmake_parse_arguments(ARG "GLUE;HOT" "" "LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tessera/${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "_(arrow|codec|curl)\\.cpp$")  # of plug-ins: Arrow.cmake, Image.cmake, S3.cmake
  tessera_of_architecture(sources)
  if(NOT sources)
    return()
  endif()
  string(REPLACE "/" "_" name tessera_layer_${folder})
  tessera_units(units ${folder} 8 ${sources})
  add_library(${name} OBJECT ${units})
  if(ARG_HOT AND TESSERA_SANITIZE)
    target_compile_options(${name} PRIVATE -O1)  # the precompiled header is of another optimization
  else()
    tessera_use_standard(${name})
  endif()
  if(ARG_GLUE)
    target_compile_options(${name} PRIVATE ${tessera_glue})
  endif()
  target_link_libraries(${name} PRIVATE tessera_flags ${ARG_LIBRARIES})
  set_property(GLOBAL APPEND PROPERTY tessera_core_objects $<TARGET_OBJECTS:${name}>)
  set_property(GLOBAL APPEND PROPERTY tessera_core_libraries ${ARG_LIBRARIES})
endfunction()

function(tessera_core_library)
  get_property(objects GLOBAL PROPERTY tessera_core_objects)
  get_property(libraries GLOBAL PROPERTY tessera_core_libraries)
  add_library(tessera_core ${tessera_core_kind} ${objects})
  target_include_directories(tessera_core PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(tessera_core PRIVATE tessera_flags ${libraries} Threads::Threads)
  if(tessera_core_kind STREQUAL SHARED)
    tessera_versioned(tessera_core)
    set(script ${PROJECT_BINARY_DIR}/core.map)
    configure_file(${PROJECT_SOURCE_DIR}/cmake/core.map.in ${script} @ONLY)
    # What comes from static libraries stays ours: the plug-in of s3:// has its own libcrypto.
    target_link_options(tessera_core PRIVATE LINKER:--version-script=${script} LINKER:--exclude-libs,ALL)
    set_target_properties(tessera_core PROPERTIES LINK_DEPENDS ${script})
  endif()
endfunction()

# tessera_kernel_layer(FOLDER): raw-pointer kernels, no torch headers, -O3. NAME_avx2.cpp and NAME_avx512.cpp get the
# instruction sets of their names and may only be entered behind a run-time check (kernels/cpu/dispatch.h); NEON, of
# NAME_neon.cpp, is in every 64-bit ARM.
function(tessera_kernel_layer folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tessera/${folder}/*.cpp)
  tessera_of_architecture(sources)
  if(NOT sources)
    return()
  endif()
  string(REPLACE "/" "_" name tessera_layer_${folder})
  add_library(${name} OBJECT ${sources})
  target_compile_options(${name} PRIVATE ${tessera_kernel_optimization} -fno-math-errno ${tessera_kernel_contraction})
  target_link_libraries(${name} PRIVATE tessera_flags)
  foreach(source ${sources})
    if(source MATCHES "_avx2\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c")
    elseif(source MATCHES "_avx512\\.cpp$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mfma;-mf16c;-mprefer-vector-width=512")
    endif()
  endforeach()
  set_property(GLOBAL APPEND PROPERTY tessera_torch_objects $<TARGET_OBJECTS:${name}>)
endfunction()

# tessera_wire_layer(FOLDER): torch-free, on kernels/cpu and the core; part of libtessera and of libtessera_c.
function(tessera_wire_layer folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tessera/${folder}/*.cpp)
  string(REPLACE "/" "_" name tessera_layer_${folder})
  tessera_units(units ${folder} 8 ${sources})
  add_library(${name} OBJECT ${units})
  tessera_use_standard(${name})
  target_compile_options(${name} PRIVATE -fno-semantic-interposition)
  target_link_libraries(${name} PRIVATE tessera_flags)
  set_property(GLOBAL APPEND PROPERTY tessera_torch_objects $<TARGET_OBJECTS:${name}>)
endfunction()
