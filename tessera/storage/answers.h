#pragma once
/// \file
/// Internal to object_store.h: interprets a server's responses. Servers are not trusted: a missing, overlong or
/// malformed field is an error, never a guess.

#include <tessera/storage/object_store.h>
#include <tessera/storage/xml.h>

namespace tessera::storage {

/// A response header, by its lower-case name; "" when absent.
std::string header(const HttpAnswer& answer, const std::string& name);
/// An ETag without its quotes; "" if it contains characters that are not allowed in an ETag.
std::string unquoted(std::string_view text);
/// 32 hexadecimal digits.
bool is_md5(std::string_view etag);
std::optional<std::uint32_t> parse_hexadecimal(std::string_view text);

/// The reason why a request failed, and whether a retry may help.
struct Refusal {
  StorageError::Kind kind;
  std::string text;  ///< with the remedy if one is known
};
Refusal refusal_of(const HttpAnswer& answer);

/// Returns the error in a response with status 200, or "", because S3 may send status 200 and then an error in the
/// body.
std::string problem_in_answer(const HttpAnswer& answer);

/// Returns the problem if the response to a PUT shows that the store has different bytes, otherwise "". `proved`: the
/// response shows that it has the same bytes (by checksum, or by an ETag that is their MD5).
std::string check_stored(const HttpAnswer& answer, std::span<const std::byte> bytes, std::uint32_t crc32c,
                         std::string (*md5)(std::span<const std::byte>), bool& proved);

/// Appends a page of a listing; returns the token of the next page, or "". Skips keys that are not valid file names.
std::string read_listing(const XmlElement& page, Listing& listing);
/// Upload ids of exactly this key, oldest first.
std::vector<std::string> read_uploads(const XmlElement& page, std::string_view key);
/// Appends a page of parts; returns the marker of the next page, or "".
std::string read_parts(const XmlElement& page, std::vector<StoredPart>& parts);

}  // namespace tessera::storage
