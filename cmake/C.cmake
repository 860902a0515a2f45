# libtessera_c.so: the C interface (tessera/c/tessera_c.h) for programs without LibTorch and without C++. It holds what
# it needs of the part without tensors itself and exports nothing but tessera_*, so that it can be loaded beside the
# other libraries, and shipped alone.
set(tessera_c_parts base/clock base/error base/file base/free_ranges base/log base/text base/utf8 base/system/abandoned
  base/system/endpoint base/system/file_limit base/system/open_file base/system/plugin launch/agent/board
  launch/agent/ports launch/agent/sealed_fd launch/cli/environment
  launch/fleet/hostfile launch/fleet/rank_list launch/store/hmac launch/store/store_client
  launch/store/store_connection launch/store/store_secret launch/store/store_server launch/store/store_socket
  launch/store/store_table launch/store/store_wire launch/watch/record)
list(TRANSFORM tessera_c_parts PREPEND ${PROJECT_SOURCE_DIR}/tessera/)
list(TRANSFORM tessera_c_parts APPEND .cpp)
file(GLOB tessera_c_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tessera/c/*.cpp)
tessera_units(tessera_c_units c 8 ${tessera_c_sources})
# An archive: the linker takes what is used.
add_library(tessera_c_kernels STATIC $<TARGET_OBJECTS:tessera_layer_kernels_cpu>)
add_library(tessera_c SHARED ${tessera_c_units} ${tessera_c_parts} $<TARGET_OBJECTS:tessera_layer_wire>)
tessera_use_standard(tessera_c)
target_include_directories(tessera_c PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(tessera_c PRIVATE tessera_flags tessera_c_kernels ${TESSERA_CRYPTO} Threads::Threads)
set(tessera_c_map ${PROJECT_SOURCE_DIR}/cmake/c.map)
target_link_options(tessera_c PRIVATE LINKER:--version-script=${tessera_c_map} LINKER:--exclude-libs,ALL
  LINKER:--gc-sections LINKER:--as-needed)
if(NOT TESSERA_SANITIZE)  # whose functions are in the program
  target_link_options(tessera_c PRIVATE LINKER:-z,defs)
endif()
set_target_properties(tessera_c PROPERTIES LINK_DEPENDS ${tessera_c_map})
tessera_versioned(tessera_c)
