#pragma once
/// \file
/// The operations on objects that the rest needs, each with its repetitions: a request that fails for a reason that may
/// pass (no connection, 500, 503, an answer that is cut off) is repeated after a pause that doubles, with chance in it.

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

/// The store said no, or could not be reached.
class StorageError : public Error {
 public:
  enum class Kind : unsigned char {
    missing,    ///< no such object, bucket or upload
    refused,    ///< credentials, permissions, a request that it does not take
    changed,    ///< the object is not the one that was asked for any more
    damaged,    ///< its bytes are not those that were put
    passing,    ///< it may work later: every attempt failed
    cancelled,  ///< this side gave up
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
  std::optional<std::uint32_t> crc32c = {};  ///< that whoever put it has noted (x-amz-meta-tessera-crc32c)
  bool etag_is_md5 = false;                  ///< it was put in one piece, not encrypted with a key of its own
};

/// What is in a store below a prefix.
struct Listing {
  std::vector<ObjectFacts> objects;   ///< sorted by key; crc32c is not told here
  std::vector<std::string> prefixes;  ///< with a delimiter: what keys begin with, '/' at the end
};

/// A part of an object that is being put together.
struct StoredPart {
  int number = 0;  ///< from 1
  std::uint64_t size = 0;
  std::string etag;
  std::optional<std::uint32_t> crc32c = {};  ///< as the server computed it
};

/// Thread-safe. All members throw StorageError, whose text names method and object and never a secret, or Error for a
/// listing that cannot be read.
class ObjectStore {
 public:
  /// `cancelled`, if any, outlives the store: requests end soon after it has become true.
  explicit ObjectStore(Access access, const std::atomic<bool>* cancelled = nullptr)
      : access_(std::move(access)), cancelled_(cancelled) {}

  /// nullopt: there is none.
  std::optional<ObjectFacts> find(const ObjectUrl& object) const;
  /// All of a small object. Kind::refused when it has more than `most_bytes`.
  std::string get(const ObjectUrl& object, std::uint64_t most_bytes) const;
  /// Bytes [begin, begin + into.size()) of it. `etag`: of which one; empty: whichever is there.
  void get_range(const ObjectUrl& object, std::uint64_t begin, std::span<std::byte> into,
                 const std::string& etag = "") const;
  /// Keys below `prefix` (an URL whose key, if any, stands before a '/'). With `one_level` what lies deeper is told as
  /// prefixes. At most a million.
  Listing list(const ObjectUrl& prefix, bool one_level) const;
  /// Puts bytes whose checksum is `crc32c`; returns when the store has them with this checksum, by its own word or, of
  /// a store that tells none, read back.
  void put(const ObjectUrl& object, std::span<const std::byte> bytes, std::uint32_t crc32c) const;
  void erase(const ObjectUrl& object) const;

  // An object in parts. Parts stay in the store until the upload is completed or aborted, whoever dies.
  std::string begin_upload(const ObjectUrl& object, std::uint32_t crc32c) const;
  /// Uploads of this very object that were begun and not ended, the newest last.
  std::vector<std::string> uploads_of(const ObjectUrl& object) const;
  std::vector<StoredPart> parts_of(const ObjectUrl& object, const std::string& upload) const;
  /// `verified` becomes false when the store's answer proves nothing about the bytes it has.
  StoredPart put_part(const ObjectUrl& object, const std::string& upload, int number, std::span<const std::byte> bytes,
                      std::uint32_t crc32c, bool& verified) const;
  void complete_upload(const ObjectUrl& object, const std::string& upload, std::span<const StoredPart> parts) const;
  void abort_upload(const ObjectUrl& object, const std::string& upload) const;

  const Access& access() const { return access_; }
  /// Sleeps; throws StorageError (cancelled) as soon as it is cancelled.
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

/// Text of a server as it may stand in a message: printable, at most 200 characters.
std::string printable(std::string_view text);

/// CRC-32C as S3's headers have it: base64 of the four bytes, the highest first.
std::string crc_header(std::uint32_t crc32c);
std::optional<std::uint32_t> parse_crc_header(std::string_view text);

}  // namespace tessera::storage
