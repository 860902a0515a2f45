# The examples of an installed Tessera, all or one:
#   cmake -S . -B build -DCMAKE_PREFIX_PATH=PREFIX && cmake --build build
# Each folder is a separate project: copy it and do the same there.
cmake_minimum_required(VERSION 3.25)
project(tessera_examples LANGUAGES CXX)
file(GLOB examples */CMakeLists.txt)
foreach(example ${examples})
  get_filename_component(folder ${example} DIRECTORY)
  add_subdirectory(${folder})
endforeach()
