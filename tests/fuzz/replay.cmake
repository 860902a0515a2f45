# The fuzzers' entries in one program, each under its own name, with a table of them: replay_test.cpp.
file(GLOB fuzzers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/*_fuzz.cpp)
if(NOT TARGET tessera_image)
  list(FILTER fuzzers EXCLUDE REGEX "/image_fuzz\\.cpp$")
endif()
foreach(fuzzer ${fuzzers})
  cmake_path(GET fuzzer STEM name)
  string(REGEX REPLACE "_fuzz$" "" name ${name})
  set_source_files_properties(${fuzzer} PROPERTIES COMPILE_DEFINITIONS
    "LLVMFuzzerTestOneInput=fuzz_${name};LLVMFuzzerInitialize=fuzz_initialize_${name}")
  string(APPEND fuzz_entries "extern \"C\" int fuzz_${name}(const std::uint8_t* data, std::size_t size);\n")
  string(APPEND fuzz_rows "    {\"${name}\", fuzz_${name}},\n")
endforeach()
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/fuzz_readers.cpp CONTENT "// Written by tests/CMakeLists.txt.
#include <tests/fuzz/readers.h>

${fuzz_entries}
namespace tessera::testing {

std::span<const FuzzReader> fuzz_readers() {
  static constexpr FuzzReader readers[] = {
${fuzz_rows}  };
  return readers;
}

}  // namespace tessera::testing
")
tessera_tests(fuzz)
target_sources(fuzz_tests PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/fuzz_readers.cpp)
if(TARGET tessera_image)  # image_fuzz.cpp takes the decoders without the plug-in around them
  target_sources(fuzz_tests PRIVATE ${image_sources})
  target_link_libraries(fuzz_tests PRIVATE PkgConfig::JPEG PkgConfig::PNG)
endif()

