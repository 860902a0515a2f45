#pragma once
/// \file
/// Splits a stream of bytes into lines.

#include <tessera/corpus/bytes/window.h>

#include <optional>
#include <string_view>

namespace tessera::corpus {

class LineStream {
 public:
  explicit LineStream(Window window) : window_(std::move(window)) {}

  /// Returns the next line with its '\n' (the last may lack it), valid until the next call; nullopt at the end. Throws
  /// the window's errors, including those for overlong lines; every later call throws the same error.
  std::optional<std::string_view> next();
  /// Bytes of the file on disk consumed by the lines returned so far; approximate for a compressed file.
  std::uint64_t used() const;

 private:
  Window window_;
  std::size_t given_ = 0;  ///< length of the line returned last, which is still in the window
};

}  // namespace tessera::corpus
