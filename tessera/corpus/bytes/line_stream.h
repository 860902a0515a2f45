#pragma once
/// \file
/// Lines of a stream of bytes.

#include <tessera/corpus/bytes/window.h>

#include <optional>
#include <string_view>

namespace tessera::corpus {

class LineStream {
 public:
  explicit LineStream(Window window) : window_(std::move(window)) {}

  /// The next line with its '\n' (the last may lack it), valid until the next call; nullopt at the end. Throws what the
  /// window throws, also for a line that is too long; so does every later call then.
  std::optional<std::string_view> next();
  /// Bytes of the file on disk that the lines so far took; of a compressed file about.
  std::uint64_t used() const;

 private:
  Window window_;
  std::size_t given_ = 0;  ///< length of the line that was given out last, which still lies in the window
};

}  // namespace tessera::corpus
