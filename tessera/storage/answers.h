#pragma once
/// \file
/// Inside of object_store.h: what a server's answer says. Servers are not trusted: what is missing, too long or of
/// another form is an error, never a guess.

#include <tessera/storage/object_store.h>
#include <tessera/storage/xml.h>

namespace tessera::storage {

/// A header of an answer, by its name in small letters; "" when it is not there.
std::string header(const HttpAnswer& answer, const std::string& name);
/// An ETag without the quotes around it; "" when it has characters that no ETag has.
std::string unquoted(std::string_view text);
/// 32 hexadecimal digits.
bool is_md5(std::string_view etag);
std::optional<std::uint32_t> parse_hexadecimal(std::string_view text);

/// Why an answer that is no success is none, and whether it may pass.
struct Refusal {
  StorageError::Kind kind;
  std::string text;  ///< with the remedy where there is one
};
Refusal refusal_of(const HttpAnswer& answer);

/// "" when an answer of status 200 is a success: S3 may say so and send an error behind it.
std::string problem_in_answer(const HttpAnswer& answer);

/// Whether the answer to a PUT says that the store has other bytes than were sent; "" when not. `proved`: it says that
/// it has the same (by checksum, or by an ETag that is their MD5).
std::string check_stored(const HttpAnswer& answer, std::span<const std::byte> bytes, std::uint32_t crc32c,
                         std::string (*md5)(std::span<const std::byte>), bool& proved);

/// Appends a page of a listing; returns the token of the next one, or "". Keys that could not be files are passed over.
std::string read_listing(const XmlElement& page, Listing& listing);
/// Upload ids of exactly this key, in the order in which they were begun.
std::vector<std::string> read_uploads(const XmlElement& page, std::string_view key);
/// Appends a page of parts; returns the marker of the next one, or "".
std::string read_parts(const XmlElement& page, std::vector<StoredPart>& parts);

}  // namespace tessera::storage
