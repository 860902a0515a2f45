# libtessera_c.so: the C interface (tessera/c/tessera_c.h) for programs without LibTorch and without C++. It holds what it
# needs of the torch-free part itself and exports nothing but tessera_*, so that it can be loaded beside the other
# libraries, and shipped alone.
file(GLOB tessera_c_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tessera/c/*.cpp)
tessera_units(tessera_c_units c 8 ${tessera_c_sources})
get_property(tessera_core_objects GLOBAL PROPERTY tessera_core_objects)
add_library(tessera_core_parts STATIC EXCLUDE_FROM_ALL ${tessera_core_objects}
  $<TARGET_OBJECTS:tessera_layer_kernels_cpu>)  # an archive: the linker takes what is used
add_library(tessera_c SHARED ${tessera_c_units} $<TARGET_OBJECTS:tessera_layer_wire>)
tessera_use_standard(tessera_c)
target_include_directories(tessera_c PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(tessera_c PRIVATE tessera_flags tessera_core_parts yaml-cpp PkgConfig::PCRE2 ${TESSERA_CRYPTO}
  Threads::Threads)
set(tessera_c_map ${PROJECT_SOURCE_DIR}/cmake/c.map)
target_link_options(tessera_c PRIVATE LINKER:--version-script=${tessera_c_map} LINKER:--exclude-libs,ALL
  LINKER:--gc-sections LINKER:--as-needed LINKER:-z,defs)
set_target_properties(tessera_c PROPERTIES LINK_DEPENDS ${tessera_c_map})
tessera_versioned(tessera_c)
