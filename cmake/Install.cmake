# `cmake --install`: program, libraries, the headers that users include, examples, and what makes
# `find_package(Tessera)` enough (TesseraConfig.cmake.in). docs/install.md is the user's side of it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# tessera_header_closure(RESULT ROOTS...): headers below tessera/ that the roots include, directly or not. Public is
# what the umbrellas and the examples include, so that a header nobody was shown is not promised to anyone.
function(tessera_header_closure result)
  set(open ${ARGN})
  set(seen "")
  while(open)
    list(POP_FRONT open file)
    file(STRINGS ${PROJECT_SOURCE_DIR}/${file} lines REGEX "^#include <tessera/[^>]+>")
    foreach(line ${lines})
      string(REGEX REPLACE "^#include <([^>]+)>.*" "\\1" header "${line}")
      if(NOT header IN_LIST seen)
        list(APPEND seen ${header})
        list(APPEND open ${header})
      endif()
    endforeach()
  endwhile()
  list(SORT seen)
  set(${result} ${seen} PARENT_SCOPE)
endfunction()

file(GLOB tessera_example_sources RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/examples/*.cpp ${PROJECT_SOURCE_DIR}/examples/*.h)
tessera_header_closure(tessera_public_headers tessera/tessera.h tessera/faces.h ${tessera_example_sources})
list(APPEND tessera_public_headers tessera/tessera.h tessera/faces.h tessera/base/version.h)
list(REMOVE_DUPLICATES tessera_public_headers)
foreach(header ${tessera_public_headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()

install(FILES ${PROJECT_SOURCE_DIR}/tessera/c/tessera_c.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera/c)
# What a cluster compiles for its own MPI (tools/mpi_shim.sh).
install(FILES ${PROJECT_SOURCE_DIR}/tessera/wire/mpi/functions.h
  ${PROJECT_SOURCE_DIR}/tessera/wire/mpi/functions_mpi.cpp
  DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera/mpi/tessera/wire/mpi)
install(PROGRAMS ${PROJECT_SOURCE_DIR}/tools/mpi_shim.sh DESTINATION ${CMAKE_INSTALL_DATADIR}/tessera/mpi)

set(tessera_installed tessera_program tessera_core)
foreach(target tessera_c tessera tessera_tool tessera_arrow tessera_image tessera_s3 tessera_mpi tessera_cuda
    tessera_xla)
  if(TARGET ${target})
    list(APPEND tessera_installed ${target})
  endif()
endforeach()
install(TARGETS ${tessera_installed}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

# Libraries find each other beside themselves, and LibTorch where it is now; a package that brings LibTorch along says
# where with TESSERA_INSTALL_RPATH.
set(TESSERA_INSTALL_RPATH "${tessera_torch_rpath};${TESSERA_ARROW_DIR}/pyarrow" CACHE STRING
    "Folders in which installed libraries look for LibTorch's and Arrow's")
file(RELATIVE_PATH tessera_libraries_from_programs "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
set_target_properties(${tessera_installed} PROPERTIES INSTALL_RPATH "$ORIGIN;${TESSERA_INSTALL_RPATH}")
set_target_properties(tessera_program PROPERTIES INSTALL_RPATH "$ORIGIN/${tessera_libraries_from_programs}")

set(tessera_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)
set(tessera_has_torch ${TESSERA_TORCH})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/TesseraConfig.cmake.in
  ${PROJECT_BINARY_DIR}/install/TesseraConfig.cmake INSTALL_DESTINATION ${tessera_cmake_dir}
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/install/TesseraConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
# pkg-config, too, finds an installation that was moved.
file(RELATIVE_PATH tessera_prefix_from_pkgconfig "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file(${PROJECT_SOURCE_DIR}/cmake/tessera.pc.in ${PROJECT_BINARY_DIR}/install/tessera.pc @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/cmake/tessera_c.pc.in ${PROJECT_BINARY_DIR}/install/tessera_c.pc @ONLY)
if(TESSERA_TORCH)  # pkg-config checks no version of what it is told to include: the compiler does
  string(REGEX MATCHALL "[0-9]+" numbers ${tessera_torch_release})
  list(GET numbers 0 tessera_torch_major)
  list(GET numbers 1 tessera_torch_minor)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/built_for_torch.h.in
    ${PROJECT_BINARY_DIR}/install/built_for_torch.h @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/install/built_for_torch.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera)
endif()
install(FILES ${PROJECT_BINARY_DIR}/install/TesseraConfig.cmake ${PROJECT_BINARY_DIR}/install/TesseraConfigVersion.cmake
        ${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake
        DESTINATION ${tessera_cmake_dir})
install(FILES ${PROJECT_BINARY_DIR}/install/tessera.pc ${PROJECT_BINARY_DIR}/install/tessera_c.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# Every example is a folder that can be copied out: its source, the headers beside it that it includes, its settings and
# a CMakeLists.txt of five lines. The one above them builds all.
set(tessera_examples_dir ${CMAKE_INSTALL_DATADIR}/tessera/examples)
function(tessera_install_example source)
  get_filename_component(name ${source} NAME_WE)
  set(open ${name}.cpp)
  set(files "")
  while(open)
    list(POP_FRONT open file)
    list(APPEND files ${PROJECT_SOURCE_DIR}/examples/${file})
    file(STRINGS ${PROJECT_SOURCE_DIR}/examples/${file} lines REGEX "^#include \"[^\"]+\"")
    foreach(line ${lines})
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" header "${line}")
      list(APPEND open ${header})
    endforeach()
  endwhile()
  list(REMOVE_DUPLICATES files)
  file(GLOB settings CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/${name}.json
    ${PROJECT_SOURCE_DIR}/examples/${name}.yaml)
  install(FILES ${files} ${settings} DESTINATION ${tessera_examples_dir}/${name})
  configure_file(${PROJECT_SOURCE_DIR}/examples/outside/example.cmake.in
    ${PROJECT_BINARY_DIR}/install/examples/${name}/CMakeLists.txt @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/install/examples/${name}/CMakeLists.txt
    DESTINATION ${tessera_examples_dir}/${name})
endfunction()
file(GLOB tessera_examples CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.cpp)
foreach(example ${tessera_examples})
  tessera_install_example(${example})
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/examples/c/all_reduce.c ${PROJECT_SOURCE_DIR}/examples/c/all_reduce.f90
        ${PROJECT_SOURCE_DIR}/examples/c/all_reduce.py
        DESTINATION ${tessera_examples_dir}/c)
install(FILES ${PROJECT_SOURCE_DIR}/examples/outside/examples.cmake RENAME CMakeLists.txt
        DESTINATION ${tessera_examples_dir})
install(FILES ${PROJECT_SOURCE_DIR}/examples/outside/CMakeLists.txt ${PROJECT_SOURCE_DIR}/examples/outside/train.cpp
        DESTINATION ${tessera_examples_dir}/outside)
