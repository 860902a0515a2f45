#pragma once
/// \file
/// One signed HTTP request to an object store. libcurl performs it (TLS, persistent connections, Amazon's signature
/// version 4) and libcrypto computes the digests that S3 requires. Both are used only inside the plug-in
/// libtessera_s3.so (the files *_curl.cpp, cmake/S3.cmake), loaded at the first use of s3://; nothing else includes
/// their headers.

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

/// A request. It refers to the caller's bytes.
struct HttpRequest {
  std::string method;  ///< "GET", "PUT", ...
  std::string url;     ///< complete, percent-encoded, parameters sorted by name
  std::vector<std::pair<std::string, std::string>> headers;
  std::span<const std::byte> body = {};
  std::uint64_t most_bytes = 0;  ///< limit on a successful body (errors: at least 64 KiB); longer ones are aborted
};

/// The response.
struct HttpAnswer {
  int status = 0;                              ///< 0: no complete response; see `failure`
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;
  std::string failure;
};

/// The plug-in's functions.
struct HttpPlugin {
  /// Blocks until the response is complete, 30 s pass without a byte, or `cancelled` (may be nullptr) becomes true.
  /// Does not follow redirects. Throws only std::bad_alloc. Thread-safe; each thread keeps its own connection.
  HttpAnswer (*perform)(const HttpRequest& request, const Access& access, const std::atomic<bool>* cancelled);
  std::string (*sha256)(std::span<const std::byte> bytes);  ///< 64 hexadecimal digits
  std::string (*md5)(std::span<const std::byte> bytes);     ///< 32 digits; empty where MD5 is forbidden (FIPS)
};

inline constexpr const char* http_plugin_entry = "tessera_http_plugin";
extern "C" const HttpPlugin* tessera_http_plugin();

/// Loads the plug-in at the first call. Throws Error, with the remedy, when it was not built or cannot be loaded.
const HttpPlugin& http_plugin();
/// Whether the plug-in was built.
bool has_http_plugin();

}  // namespace tessera::storage
