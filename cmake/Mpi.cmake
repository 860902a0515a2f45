# The plug-in libtessera_mpi.so: the functions of MPI's standard ABI as a table (tessera/wire/mpi/functions.h). It is
# linked to no MPI: wire/mpi loads the cluster's library first, and the plug-in finds its functions there. The same
# source becomes the shim for a library without the standard ABI on the cluster itself (tools/mpi_shim.sh).
add_library(tessera_mpi MODULE ${PROJECT_SOURCE_DIR}/tessera/wire/mpi/functions_mpi.cpp)
target_include_directories(tessera_mpi PRIVATE ${PROJECT_SOURCE_DIR}
  ${PROJECT_SOURCE_DIR}/tessera/wire/mpi/standard_abi)
target_compile_options(tessera_mpi PRIVATE -O2 -Wall -Wextra -g1 -fno-exceptions -fno-rtti ${tessera_path_options})
set_target_properties(tessera_mpi PROPERTIES CXX_VISIBILITY_PRESET hidden)
add_dependencies(tessera_c tessera_mpi)
