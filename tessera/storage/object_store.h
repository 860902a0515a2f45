#pragma once
/// \file
/// The object operations that the rest of the program needs, each with retries: a request that fails for a transient
/// reason (no connection, 500, 503, a truncated response) is repeated after a pause that doubles each time, with
/// jitter.

#include <tessera/base/error.h>
#include <tessera/base/object_url.h>
#include <tessera/storage/access.h>
#include <tessera/storage/http.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::storage {

/// The store refused a request or could not be reached.
class StorageError : public Error {
 public:
  enum class Kind : unsigned char {
    missing,    ///< no such object, bucket or upload
    refused,    ///< wrong credentials, missing permissions, or an invalid request
    changed,    ///< the object was replaced after it was looked up
    damaged,    ///< its bytes differ from what was stored
    passing,    ///< transient: every attempt failed, but a later one may succeed
    cancelled,  ///< cancelled by this process
  };
  StorageError(Kind kind, const std::string& message) : Error(message), kind_(kind) {}
  Kind kind() const noexcept { return kind_; }

 private:
  Kind kind_;
};

struct ObjectFacts {
  std::string key;
  std::uint64_t size = 0;
  std::string etag;                          ///< without quotes
  std::optional<std::uint32_t> crc32c = {};  ///< recorded by the object's writer (x-amz-meta-tessera-crc32c)
  bool etag_is_md5 = false;                  ///< uploaded in one piece, without KMS or customer-key encryption
};

/// The contents of a store below a prefix.
struct Listing {
  std::vector<ObjectFacts> objects;   ///< sorted by key; without crc32c
  std::vector<std::string> prefixes;  ///< common key prefixes if listed by level, with a trailing '/'
};

/// A part of a multipart upload.
struct StoredPart {
  int number = 0;  ///< from 1
  std::uint64_t size = 0;
  std::string etag;
  std::optional<std::uint32_t> crc32c = {};  ///< as computed by the server
};

/// Thread-safe. All members throw StorageError, whose text names method and object but never a secret, or Error for a
/// malformed listing.
class ObjectStore {
 public:
  /// `cancelled`, if given, must outlive the store: requests end soon after it becomes true.
  explicit ObjectStore(Access access, const std::atomic<bool>* cancelled = nullptr)
      : access_(std::move(access)), cancelled_(cancelled) {}

  /// Returns nullopt if the object does not exist.
  std::optional<ObjectFacts> find(const ObjectUrl& object) const;
  /// Reads a whole small object. Throws Kind::refused when it has more than `most_bytes`.
  std::string get(const ObjectUrl& object, std::uint64_t most_bytes) const;
  /// Reads bytes [begin, begin + into.size()). `etag`: read only this version; empty: the current version.
  void get_range(const ObjectUrl& object, std::uint64_t begin, std::span<std::byte> into,
                 const std::string& etag = "") const;
  /// Lists the keys below `prefix` (a URL whose key, if any, is a whole "folder"). With `one_level`, deeper keys are
  /// reported as prefixes. At most a million entries.
  Listing list(const ObjectUrl& prefix, bool one_level) const;
  /// Stores bytes whose checksum is `crc32c`. Returns when the store has confirmed the checksum or, if it does not
  /// report one, when the bytes have been read back and compared.
  void put(const ObjectUrl& object, std::span<const std::byte> bytes, std::uint32_t crc32c) const;
  void erase(const ObjectUrl& object) const;

  // Multipart uploads. Parts stay in the store until the upload is completed or aborted, even if the uploader dies.
  std::string begin_upload(const ObjectUrl& object, std::uint32_t crc32c) const;
  /// Uploads of exactly this object that were started but neither completed nor aborted, newest last.
  std::vector<std::string> uploads_of(const ObjectUrl& object) const;
  std::vector<StoredPart> parts_of(const ObjectUrl& object, const std::string& upload) const;
  /// Sets `verified` to false when the response does not prove which bytes the store has.
  StoredPart put_part(const ObjectUrl& object, const std::string& upload, int number, std::span<const std::byte> bytes,
                      std::uint32_t crc32c, bool& verified) const;
  void complete_upload(const ObjectUrl& object, const std::string& upload, std::span<const StoredPart> parts) const;
  void abort_upload(const ObjectUrl& object, const std::string& upload) const;

  const Access& access() const { return access_; }
  /// Sleeps; throws StorageError (cancelled) as soon as `cancelled` becomes true.
  void pause(double seconds) const;

 private:
  using Parameters = std::vector<std::pair<std::string, std::string>>;  // sorted by name
  struct Call;

  HttpAnswer send(const Call& call) const;
  std::string url_of(const ObjectUrl& object, const Parameters& parameters) const;
  std::string answer_text(const ObjectUrl& bucket, Parameters parameters, const std::string& key) const;

  Access access_;
  const std::atomic<bool>* cancelled_;
};

/// Makes a server's text safe for messages: printable, at most 200 characters.
std::string printable(std::string_view text);

/// CRC-32C in the format of S3's headers: base64 of the four bytes, most significant first.
std::string crc_header(std::uint32_t crc32c);
std::optional<std::uint32_t> parse_crc_header(std::string_view text);

}  // namespace tessera::storage
