# The compiler cache serves every clone on the machine, in whatever folder: ccache makes the paths below CCACHE_BASEDIR
# relative to the build folder before it hashes a command, and NOHASHDIR leaves the folder itself out. Precompiled
# headers come from the cache as well, byte for byte, since a unit's hash has that of its precompiled header
# (pch_defines and time_macros are what ccache asks for; the times of the generated headers are those of this build
# folder). Error messages name absolute paths again.
# Every compiler that really runs notes its CPU-seconds (unit_seconds.sh).
set(tessera_unit_seconds ${PROJECT_SOURCE_DIR}/cmake/unit_seconds.sh)
set(CMAKE_CXX_COMPILER_LAUNCHER ${tessera_unit_seconds})
find_program(CCACHE ccache)
if(CCACHE)
  set(tessera_cache_launcher ${CMAKE_COMMAND} -E env
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_ABSSTDERR=1 CCACHE_PREFIX=${tessera_unit_seconds}
      "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime" ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${tessera_cache_launcher})
endif()

# An object must not depend on the folder either: __FILE__ is tessera/base/error.cpp with and without a cache (which
# passes ../tessera/base/error.cpp), and the debugger finds sources from the root of the tree.
file(RELATIVE_PATH tessera_source_from_build ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR})
set(tessera_path_options -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/= -fmacro-prefix-map=${tessera_source_from_build}=
    -fdebug-prefix-map=${PROJECT_SOURCE_DIR}=.)
