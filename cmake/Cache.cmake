# Compilers run through compile.sh: the compiler cache, and what each unit cost.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/compile.sh ${CCACHE})
else()
  set(CMAKE_CXX_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/compile.sh none)
endif()

# An object must not depend on the folder either: __FILE__ is tessera/base/error.cpp with and without a cache (which
# passes ../tessera/base/error.cpp), and the debugger finds sources from the root of the tree.
file(RELATIVE_PATH tessera_source_from_build ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR})
set(tessera_path_options -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/= -fmacro-prefix-map=${tessera_source_from_build}=
    -fdebug-prefix-map=${PROJECT_SOURCE_DIR}=.)
