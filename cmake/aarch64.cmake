# Cross-compiles for 64-bit ARM with Debian's g++-aarch64-linux-gnu. tools/deps_aarch64.sh fetches the compiler, the
# emulator and, into .deps/aarch64/sysroot, Debian's arm64 packages of the libraries in docs/dependencies.md. Programs
# that the build or CTest starts run under qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

cmake_path(SET aarch64_deps NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../.deps/aarch64)
set(CMAKE_FIND_ROOT_PATH ${aarch64_deps}/sysroot)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)  # ccache, pkg-config and Python are this machine's
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${aarch64_deps}/sysroot)
set(ENV{PKG_CONFIG_LIBDIR} ${aarch64_deps}/sysroot/usr/lib/aarch64-linux-gnu/pkgconfig)

set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu)
