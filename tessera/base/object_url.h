#pragma once
/// \file
/// Names of objects in an object store: s3://bucket/some/key.

#include <string>
#include <string_view>

namespace tessera {

/// A bucket and a key in it. Object stores have no folders: "a/b" is one key, and a "folder" is a prefix of keys.
struct ObjectUrl {
  std::string bucket;
  std::string key;  ///< without leading and trailing '/'; empty: the whole bucket

  std::string text() const;  ///< "s3://bucket/key"
  /// "s3://bucket/key/NAME".
  ObjectUrl below(std::string_view name) const;
  bool operator==(const ObjectUrl&) const = default;
};

/// Whether a text names an object rather than a file: it begins with "s3://".
bool is_object_url(std::string_view text);

/// Parses a URL; a trailing '/' is ignored. Throws InputError, with the rule, for a bucket that is not 3 to 63 letters,
/// digits, '.', '-' or '_', and for a key that is longer than 1024 bytes, is not UTF-8, or has control characters or a
/// component that is empty, "." or ".." (components become file names).
ObjectUrl parse_object_url(std::string_view text);

/// Whether `key` is a valid key by the rule of parse_object_url(). For names that a server returns.
bool is_object_key(std::string_view key);

}  // namespace tessera
