#pragma once
/// \file
/// In-memory stream compression, used by byte_sink.h.

#include <memory>
#include <string>
#include <string_view>

namespace tessera::corpus {

class Compressor {
 public:
  virtual ~Compressor() = default;
  /// Compresses `bytes` and appends the available output to `out`.
  virtual void add(std::string_view bytes, std::string& out) = 0;
  virtual void end(std::string& out) = 0;  ///< appends the remaining output
};

std::unique_ptr<Compressor> gzip_compressor();
std::unique_ptr<Compressor> zstd_compressor();  ///< with a checksum
std::unique_ptr<Compressor> xz_compressor();

}  // namespace tessera::corpus
