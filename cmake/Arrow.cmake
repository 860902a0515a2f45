# The plug-in libtessera_arrow.so: Parquet and Arrow files through Apache Arrow's library out of the PyPI wheel
# `pyarrow` (.deps/arrow). dlopen'ed when the first such file is opened; without it everything else works.

file(GLOB arrow_library ${TESSERA_ARROW_DIR}/pyarrow/libarrow.so.*)
file(GLOB parquet_library ${TESSERA_ARROW_DIR}/pyarrow/libparquet.so.*)
if(NOT arrow_library OR NOT parquet_library OR NOT EXISTS ${TESSERA_ARROW_DIR}/pyarrow/include/parquet/arrow/reader.h)
  message(STATUS "Parquet and Arrow: not built (no Apache Arrow in ${TESSERA_ARROW_DIR}: make deps)")
  return()
endif()

file(GLOB_RECURSE arrow_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tessera/corpus/*_arrow.cpp)
tessera_units(arrow_units arrow 8 ${arrow_sources})
add_library(tessera_arrow MODULE ${arrow_units})
target_include_directories(tessera_arrow SYSTEM PRIVATE ${TESSERA_ARROW_DIR}/pyarrow/include)
target_compile_options(tessera_arrow PRIVATE ${tessera_core_optimization})
target_link_libraries(tessera_arrow PRIVATE tessera_core tessera_flags ${parquet_library} ${arrow_library})
set_target_properties(tessera_arrow PROPERTIES BUILD_RPATH "$ORIGIN;${TESSERA_ARROW_DIR}/pyarrow")
