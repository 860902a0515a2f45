#pragma once
/// \file
/// Compressing a stream in memory: what byte_sink.h writes.

#include <memory>
#include <string>
#include <string_view>

namespace tessera::corpus {

class Compressor {
 public:
  virtual ~Compressor() = default;
  /// Compresses `bytes` and appends what is ready to `out`.
  virtual void add(std::string_view bytes, std::string& out) = 0;
  virtual void end(std::string& out) = 0;  ///< appends the rest
};

std::unique_ptr<Compressor> gzip_compressor();
std::unique_ptr<Compressor> zstd_compressor();  ///< with a checksum
std::unique_ptr<Compressor> xz_compressor();

}  // namespace tessera::corpus
