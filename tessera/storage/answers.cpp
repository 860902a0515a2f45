#include <tessera/storage/answers.h>

#include <algorithm>
#include <array>

#include <tessera/base/text.h>

namespace tessera::storage {
namespace {

constexpr std::string_view base64_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// An S3 error code and its remedy.
struct Advice {
  std::string_view code, remedy;
};
constexpr std::array<Advice, 9> advice{{
    {"RequestTimeTooSkewed", "this host's clock is wrong: run timedatectl set-ntp true, or start chronyd"},
    {"InvalidAccessKeyId", "the store does not know this key: check AWS_ACCESS_KEY_ID, AWS_PROFILE and the endpoint"},
    {"SignatureDoesNotMatch", "check AWS_SECRET_ACCESS_KEY and the region (AWS_REGION)"},
    {"ExpiredToken", "the credentials have expired: get new ones and start again"},
    {"AccessDenied", "these credentials lack the permission: check the bucket's policy"},
    {"NoSuchBucket", "the bucket does not exist: create it, or check its name and the endpoint"},
    {"PermanentRedirect", "the bucket is in another region: set AWS_REGION"},
    {"AuthorizationHeaderMalformed", "the bucket is in another region: set AWS_REGION"},
    {"EntityTooLarge", "the store does not accept objects of this size"},
}};

/// Error codes of problems that may disappear on a retry.
constexpr std::array<std::string_view, 8> passing_codes = {"InternalError",  "SlowDown",
                                                           "RequestTimeout", "ServiceUnavailable",
                                                           "BadDigest",      "XAmzContentChecksumMismatch",
                                                           "IncompleteBody", "OperationAborted"};

struct Complaint {
  std::string code, message;
};

Complaint complaint_of(const HttpAnswer& answer) {
  try {
    if (answer.body.empty()) return {};
    const XmlElement root = parse_xml(answer.body);
    if (root.name != "Error") return {};
    return {printable(root.text_of("Code")), printable(root.text_of("Message"))};
  } catch (const Error&) {
    return {"", printable(answer.body)};  // an error page of a proxy
  }
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 200)) out += c >= 32 && c < 127 ? c : '?';
  return text.size() > 200 ? out + "..." : out;
}

std::string crc_header(std::uint32_t crc32c) {
  const std::uint64_t bits = std::uint64_t{crc32c} << 4;  // 32 bits in six base64 digits of 6 bits
  std::string text;
  for (int shift = 30; shift >= 0; shift -= 6) text += base64_digits[(bits >> shift) & 63];
  return text + "==";
}

std::optional<std::uint32_t> parse_crc_header(std::string_view text) {
  if (text.size() != 8 || !text.ends_with("==")) return std::nullopt;
  std::uint64_t bits = 0;
  for (const char c : text.substr(0, 6)) {
    const std::size_t digit = base64_digits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = (bits << 6) | digit;
  }
  return static_cast<std::uint32_t>(bits >> 4);
}

std::string header(const HttpAnswer& answer, const std::string& name) {
  const auto found = answer.headers.find(name);
  return found == answer.headers.end() ? std::string() : found->second;
}

std::string unquoted(std::string_view text) {
  if (text.starts_with("W/")) text.remove_prefix(2);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  const bool plain =
      text.size() <= 256 && std::all_of(text.begin(), text.end(), [](char c) { return c > 32 && c < 127 && c != '"'; });
  return plain ? std::string(text) : std::string();
}

bool is_md5(std::string_view etag) {
  return etag.size() == 32 && etag.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::optional<std::uint32_t> parse_hexadecimal(std::string_view text) {
  if (text.size() != 8) return std::nullopt;
  std::uint32_t value = 0;
  for (const char c : text) {
    const std::size_t digit = std::string_view("0123456789abcdef").find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    value = value << 4 | static_cast<std::uint32_t>(digit);
  }
  return value;
}

Refusal refusal_of(const HttpAnswer& answer) {
  using Kind = StorageError::Kind;
  if (answer.status == 0) return {Kind::passing, answer.failure};
  const Complaint said = complaint_of(answer);
  std::string text = concat(answer.status, said.code.empty() ? "" : " ", said.code,
                            said.message.empty() ? "" : concat(" (", said.message, ")"));
  const auto found = std::find_if(advice.begin(), advice.end(), [&](const Advice& a) { return a.code == said.code; });
  const std::string region = printable(header(answer, "x-amz-bucket-region"));
  if (found != advice.end())
    text += concat(": ", found->remedy);
  else if ((answer.status == 301 || answer.status == 400) && !region.empty())
    text += concat(": the bucket is in ", region, ": set AWS_REGION");
  else if (answer.status == 403)
    text += ": these credentials lack the permission";
  const bool passing_code = std::find(passing_codes.begin(), passing_codes.end(), said.code) != passing_codes.end();
  if (answer.status == 404) return {Kind::missing, std::move(text)};
  if (answer.status == 412) return {Kind::changed, text + ": the object has changed in the meantime"};
  if (answer.status >= 500 || answer.status == 408 || answer.status == 429 || passing_code)
    return {Kind::passing, std::move(text)};
  return {Kind::refused, std::move(text)};
}

std::string problem_in_answer(const HttpAnswer& answer) {
  if (answer.body.empty()) return "";
  const XmlElement root = parse_xml(answer.body);
  if (root.name != "Error") return "";
  return concat(printable(root.text_of("Code")), " (", printable(root.text_of("Message")), ")");
}

std::string check_stored(const HttpAnswer& answer, std::span<const std::byte> bytes, std::uint32_t crc32c,
                         std::string (*md5)(std::span<const std::byte>), bool& proved) {
  proved = false;
  if (const std::string said = header(answer, "x-amz-checksum-crc32c"); !said.empty()) {
    if (parse_crc_header(said) != crc32c) return "the store has different bytes than were sent (its CRC-32C differs)";
    proved = true;
    return "";
  }
  const std::string etag = unquoted(header(answer, "etag"));
  if (!is_md5(etag)) return "";
  // A different MD5 in the ETag proves nothing: some stores, and encrypted objects, use ETags that are not MD5s.
  proved = etag == md5(bytes);
  return "";
}

std::string read_listing(const XmlElement& page, Listing& listing) {
  if (page.name != "ListBucketResult")
    throw StorageError(StorageError::Kind::refused,
                       concat("the server answered a listing request with <", printable(page.name), ">"));
  for (const XmlElement& child : page.children) {
    if (child.name == "CommonPrefixes") {
      const std::string_view prefix = child.text_of("Prefix");
      if (prefix.ends_with('/') && is_object_key(prefix.substr(0, prefix.size() - 1)))
        listing.prefixes.emplace_back(prefix);
    } else if (child.name == "Contents") {
      const std::string_view key = child.text_of("Key");
      const auto size = parse_int(child.text_of("Size"));
      if (!is_object_key(key) || !size || *size < 0) continue;  // e.g. "folder/" placeholders that consoles create
      listing.objects.push_back({.key = std::string(key),
                                 .size = static_cast<std::uint64_t>(*size),
                                 .etag = unquoted(child.text_of("ETag")),
                                 .crc32c = std::nullopt});
    }
  }
  if (page.text_of("IsTruncated") != "true") return "";
  const std::string_view token = page.text_of("NextContinuationToken");
  if (token.empty())
    throw StorageError(StorageError::Kind::refused, "the server's listing is truncated but has no continuation token");
  return std::string(token);
}

std::vector<std::string> read_uploads(const XmlElement& page, std::string_view key) {
  std::vector<std::pair<std::string, std::string>> found;  // start time (ISO 8601 sorts chronologically), id
  for (const XmlElement& child : page.children)
    if (child.name == "Upload" && child.text_of("Key") == key && !child.text_of("UploadId").empty())
      found.emplace_back(child.text_of("Initiated"), child.text_of("UploadId"));
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> ids;
  for (auto& [begun, id] : found) ids.push_back(std::move(id));
  return ids;
}

std::string read_parts(const XmlElement& page, std::vector<StoredPart>& parts) {
  for (const XmlElement& child : page.children) {
    if (child.name != "Part") continue;
    const auto number = parse_int(child.text_of("PartNumber")), size = parse_int(child.text_of("Size"));
    const std::string etag = unquoted(child.text_of("ETag"));
    if (!number || *number < 1 || *number > 10'000 || !size || *size < 0 || etag.empty()) continue;
    parts.push_back({static_cast<int>(*number), static_cast<std::uint64_t>(*size), etag,
                     parse_crc_header(child.text_of("ChecksumCRC32C"))});
  }
  return page.text_of("IsTruncated") == "true" ? std::string(page.text_of("NextPartNumberMarker")) : std::string();
}

}  // namespace tessera::storage
