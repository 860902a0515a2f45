#pragma once
/// \file
/// The fuzzers' entries as functions of one program. tests/CMakeLists.txt compiles each NAME_fuzz.cpp with its entry
/// renamed to fuzz_NAME and writes the table of them.

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::testing {

struct FuzzReader {
  const char* name;                                         ///< folder name in tests/fuzz/corpus
  int (*read)(const std::uint8_t* data, std::size_t size);  ///< aborts if the reader breaks its guarantees
};

/// By name.
std::span<const FuzzReader> fuzz_readers();

}  // namespace tessera::testing
