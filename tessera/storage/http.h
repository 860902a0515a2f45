#pragma once
/// \file
/// One signed HTTP request to an object store. libcurl does it (TLS, connections that are kept, Amazon's signature
/// version 4), and libcrypto takes the digests that S3 wants; both live behind the plug-in libtessera_s3.so (the files
/// *_curl.cpp, cmake/S3.cmake), which is loaded when the first s3:// is used. Nothing else includes their headers.

#include <tessera/storage/access.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera::storage {

/// What is asked. Refers to the caller's bytes.
struct HttpRequest {
  std::string method;  ///< "GET", "PUT", ...
  std::string url;     ///< whole, percent-encoded, parameters sorted by name
  std::vector<std::pair<std::string, std::string>> headers;
  std::span<const std::byte> body = {};
  std::uint64_t most_bytes = 0;  ///< that a success may have (a refusal 64 KiB at least); a longer answer is given up
};

/// What came back.
struct HttpAnswer {
  int status = 0;                              ///< 0: nothing came back whole, and `failure` says why
  std::map<std::string, std::string> headers;  ///< names in small letters
  std::string body;
  std::string failure;
};

/// The plug-in's functions.
struct HttpPlugin {
  /// Blocks until the answer is there, 30 s pass without a byte, or `cancelled` (may be nullptr) becomes true. Follows
  /// no redirection. Throws nothing but std::bad_alloc. Any number of threads; each keeps its connection.
  HttpAnswer (*perform)(const HttpRequest& request, const Access& access, const std::atomic<bool>* cancelled);
  std::string (*sha256)(std::span<const std::byte> bytes);  ///< 64 hexadecimal digits
  std::string (*md5)(std::span<const std::byte> bytes);     ///< 32; empty where the system forbids it (FIPS)
};

inline constexpr const char* http_plugin_entry = "tessera_http_plugin";
extern "C" const HttpPlugin* tessera_http_plugin();

/// Loads the plug-in at the first call. Throws Error, with the remedy, when it was not built or cannot be loaded.
const HttpPlugin& http_plugin();
/// Whether it was built.
bool has_http_plugin();

}  // namespace tessera::storage
