#include <tessera/storage/object_store.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include <tessera/base/text.h>
#include <tessera/format/manifest/crc32c.h>
#include <tessera/storage/answers.h>
#include <tessera/storage/xml.h>

namespace tessera::storage {
namespace {

using Kind = StorageError::Kind;

constexpr std::uint64_t most_xml = std::uint64_t{8} << 20;
constexpr std::size_t most_listed = 1'000'000;
constexpr const char* crc_metadata = "x-amz-meta-tessera-crc32c";

/// Percent-encoding as the signature requires: everything but letters, digits, "-_.~" and, in a path, '/'.
std::string encoded(std::string_view text, bool path) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
        c == '.' || c == '~' || (path && c == '/')) {
      out += c;
    } else {
      out += '%';
      out += "0123456789ABCDEF"[byte >> 4];
      out += "0123456789ABCDEF"[byte & 15];
    }
  }
  return out;
}

std::string hexadecimal(std::uint32_t value) {
  std::string text;
  for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[(value >> shift) & 15];
  return text;
}

std::span<const std::byte> bytes_of_text(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

/// Seconds to wait before the n-th retry. Doubles from `first` up to 20 s; half of the time is random, so that many
/// ranks do not retry simultaneously.
double pause_before(int repetition, double first, const HttpAnswer& answer) {
  thread_local std::minstd_rand random{std::random_device{}()};
  const double whole = std::min(20.0, first * static_cast<double>(1 << std::min(repetition, 10)));
  double seconds = whole * std::uniform_real_distribution<double>(0.5, 1)(random);
  if (const auto asked = parse_int(header(answer, "retry-after"))) {
    const std::int64_t at_most = 60;
    seconds = std::max(seconds, static_cast<double>(std::clamp<std::int64_t>(*asked, 0, at_most)));
  }
  return seconds;
}

}  // namespace

struct ObjectStore::Call {
  const char* method = "GET";
  const ObjectUrl& object;
  Parameters parameters = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::span<const std::byte> body = {};
  std::uint64_t most_bytes = most_xml;
  /// Returns the transient problem of a response with status 2xx, or "".
  std::function<std::string(const HttpAnswer&)> check = {};
};

std::string ObjectStore::url_of(const ObjectUrl& object, const Parameters& parameters) const {
  const std::size_t host = access_.endpoint.find("//") + 2;
  const bool in_path = access_.path_style || object.bucket.find('.') != std::string::npos;
  std::string url = in_path
                        ? concat(access_.endpoint, "/", object.bucket)
                        : concat(access_.endpoint.substr(0, host), object.bucket, ".", access_.endpoint.substr(host));
  url += "/" + encoded(object.key, true);
  if (in_path && object.key.empty()) url.pop_back();
  char separator = '?';
  for (const auto& [name, value] : parameters) {
    url += concat(separator, encoded(name, false), "=", encoded(value, false));
    separator = '&';
  }
  return url;
}

/// Sends one request, with retries while they may help. Returns a response with status 2xx; throws for any other.
HttpAnswer ObjectStore::send(const Call& call) const {
  const HttpPlugin& plugin = http_plugin();
  HttpRequest request{call.method, url_of(call.object, call.parameters), call.headers, call.body, call.most_bytes};
  // TLS already protects the body; without TLS the signature covers it.
  request.headers.emplace_back("x-amz-content-sha256", access_.endpoint.starts_with("https:")
                                                           ? std::string("UNSIGNED-PAYLOAD")
                                                           : plugin.sha256(call.body));
  if (!access_.token.empty()) request.headers.emplace_back("x-amz-security-token", access_.token);
  if (!call.body.empty()) request.headers.emplace_back("Content-Type", "application/octet-stream");
  const std::string what = concat(call.method, " ", call.object.text());
  for (int attempt = 1;; ++attempt) {
    const HttpAnswer answer = plugin.perform(request, access_, cancelled_);
    if (cancelled_ != nullptr && cancelled_->load()) throw StorageError(Kind::cancelled, what + ": cancelled");
    std::string problem;
    if (answer.status >= 200 && answer.status < 300) {
      try {
        if (call.check) problem = call.check(answer);
      } catch (const StorageError&) {
        throw;
      } catch (const Error& error) {  // not XML: a proxy's page, or a truncated response
        problem = error.what();
      }
      if (problem.empty()) return answer;
    } else {
      const Refusal refusal = refusal_of(answer);
      problem = refusal.text;
      if (refusal.kind != Kind::passing) throw StorageError(refusal.kind, concat(what, ": ", problem));
    }
    if (attempt >= access_.attempts)
      throw StorageError(Kind::passing, concat(what, " at ", access_.endpoint, ": ", problem, " (", access_.attempts,
                                               access_.attempts == 1 ? " attempt)" : " attempts)"));
    pause(pause_before(attempt - 1, access_.first_pause, answer));
  }
}

void ObjectStore::pause(double seconds) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (cancelled_ != nullptr && cancelled_->load()) throw StorageError(Kind::cancelled, "cancelled");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::optional<ObjectFacts> ObjectStore::find(const ObjectUrl& object) const {
  try {
    const HttpAnswer answer = send({.method = "HEAD", .object = object});
    ObjectFacts facts{.key = object.key, .size = 0, .etag = unquoted(header(answer, "etag"))};
    const auto size = parse_int(header(answer, "content-length"));
    if (!size || *size < 0) throw StorageError(Kind::refused, concat(object.text(), ": the server reports no size"));
    facts.size = static_cast<std::uint64_t>(*size);
    facts.crc32c = parse_hexadecimal(header(answer, crc_metadata));
    const std::string encryption = header(answer, "x-amz-server-side-encryption");
    facts.etag_is_md5 = is_md5(facts.etag) && (encryption.empty() || encryption == "AES256") &&
                        header(answer, "x-amz-server-side-encryption-customer-algorithm").empty();
    return facts;
  } catch (const StorageError& error) {
    if (error.kind() == Kind::missing) return std::nullopt;
    throw;
  }
}

std::string ObjectStore::get(const ObjectUrl& object, std::uint64_t most_bytes) const {
  const auto facts = find(object);
  if (!facts) throw StorageError(Kind::missing, object.text() + ": no such object");
  if (facts->size > most_bytes)
    throw StorageError(Kind::refused, concat(object.text(), " has ", format_bytes(facts->size), "; expected at most ",
                                             format_bytes(most_bytes)));
  std::string text(facts->size, '\0');
  get_range(object, 0, std::as_writable_bytes(std::span(text)), facts->etag);
  return text;
}

void ObjectStore::get_range(const ObjectUrl& object, std::uint64_t begin, std::span<std::byte> into,
                            const std::string& etag) const {
  if (into.empty()) return;
  Call call{.object = object, .most_bytes = into.size()};
  call.headers.emplace_back("Range", concat("bytes=", begin, "-", begin + into.size() - 1));
  if (!etag.empty()) call.headers.emplace_back("If-Match", concat("\"", etag, "\""));
  call.check = [&](const HttpAnswer& answer) -> std::string {
    if (answer.body.size() != into.size())
      return concat("the server returned ", answer.body.size(), " of ", into.size(), " bytes");
    if (!etag.empty() && unquoted(header(answer, "etag")) != etag)
      return "the server returned bytes of another version of the object";
    if (answer.status == 200)
      return begin == 0 ? "" : "the server returned the start of the object instead of the range";
    const std::string range = concat("bytes ", begin, "-", begin + into.size() - 1, "/");
    return header(answer, "content-range").starts_with(range) ? "" : "the server returned another range";
  };
  const HttpAnswer answer = send(call);
  std::memcpy(into.data(), answer.body.data(), into.size());
}

/// Returns the response to a GET of the bucket or, with `key`, of the object.
std::string ObjectStore::answer_text(const ObjectUrl& bucket, Parameters parameters, const std::string& key) const {
  const ObjectUrl target{bucket.bucket, key};
  return send({.object = target, .parameters = std::move(parameters)}).body;
}

Listing ObjectStore::list(const ObjectUrl& prefix, bool one_level) const {
  Listing listing;
  std::string token;
  do {
    Parameters parameters;
    if (!token.empty()) parameters.emplace_back("continuation-token", token);
    if (one_level) parameters.emplace_back("delimiter", "/");
    parameters.emplace_back("list-type", "2");
    if (!prefix.key.empty()) parameters.emplace_back("prefix", prefix.key + "/");
    const std::string text = answer_text(prefix, std::move(parameters), "");
    std::string next = read_listing(parse_xml(text), listing);
    if (listing.objects.size() + listing.prefixes.size() > most_listed)
      throw StorageError(Kind::refused, concat(prefix.text(), " contains more than ", most_listed, " objects"));
    if (!next.empty() && next == token)
      throw StorageError(Kind::refused, concat(prefix.text(), ": the server repeats the same page of the listing"));
    token = std::move(next);
  } while (!token.empty());
  return listing;
}

void ObjectStore::put(const ObjectUrl& object, std::span<const std::byte> bytes, std::uint32_t crc32c) const {
  Call call{.method = "PUT", .object = object, .body = bytes};
  call.headers = {{"x-amz-checksum-crc32c", crc_header(crc32c)}, {crc_metadata, hexadecimal(crc32c)}};
  bool proved = false;
  call.check = [&](const HttpAnswer& answer) { return check_stored(answer, bytes, crc32c, http_plugin().md5, proved); };
  send(call);
  if (proved) return;
  std::vector<std::byte> back(bytes.size());
  get_range(object, 0, back);
  if (format::crc32c(back) != crc32c)
    throw StorageError(Kind::passing, object.text() + ": reading it back gives different bytes than were sent");
}

void ObjectStore::erase(const ObjectUrl& object) const { send({.method = "DELETE", .object = object}); }

std::string ObjectStore::begin_upload(const ObjectUrl& object, std::uint32_t crc32c) const {
  Call call{.method = "POST", .object = object, .parameters = {{"uploads", ""}}};
  call.headers = {{"x-amz-checksum-algorithm", "CRC32C"}, {crc_metadata, hexadecimal(crc32c)}};
  std::string upload;
  call.check = [&](const HttpAnswer& answer) -> std::string {
    upload = parse_xml(answer.body).text_of("UploadId");
    return upload.empty() || upload.size() > 2048 ? "the server returned no valid UploadId" : "";
  };
  send(call);
  return upload;
}

std::vector<std::string> ObjectStore::uploads_of(const ObjectUrl& object) const {
  const std::string text = answer_text(object, {{"prefix", object.key}, {"uploads", ""}}, "");
  return read_uploads(parse_xml(text), object.key);
}

std::vector<StoredPart> ObjectStore::parts_of(const ObjectUrl& object, const std::string& upload) const {
  std::vector<StoredPart> parts;
  std::string marker;
  do {
    Parameters parameters;
    if (!marker.empty()) parameters.emplace_back("part-number-marker", marker);
    parameters.emplace_back("uploadId", upload);
    const std::string text = answer_text(object, std::move(parameters), object.key);
    const std::size_t before = parts.size();
    marker = read_parts(parse_xml(text), parts);
    if (parts.size() == before || parts.size() > 10'000) break;  // a server that repeats pages
  } while (!marker.empty());
  return parts;
}

StoredPart ObjectStore::put_part(const ObjectUrl& object, const std::string& upload, int number,
                                 std::span<const std::byte> bytes, std::uint32_t crc32c, bool& verified) const {
  Call call{.method = "PUT", .object = object, .body = bytes};
  call.parameters = {{"partNumber", concat(number)}, {"uploadId", upload}};
  call.headers = {{"x-amz-checksum-crc32c", crc_header(crc32c)}};
  bool proved = false;
  call.check = [&](const HttpAnswer& answer) -> std::string {
    if (unquoted(header(answer, "etag")).empty()) return "the server returned no ETag for a part";
    return check_stored(answer, bytes, crc32c, http_plugin().md5, proved);
  };
  const HttpAnswer answer = send(call);
  if (!proved) verified = false;
  return {number, bytes.size(), unquoted(header(answer, "etag")),
          parse_crc_header(header(answer, "x-amz-checksum-crc32c"))};
}

void ObjectStore::complete_upload(const ObjectUrl& object, const std::string& upload,
                                  std::span<const StoredPart> parts) const {
  std::string body = "<CompleteMultipartUpload>";
  for (const StoredPart& part : parts) {
    body += concat("<Part><PartNumber>", part.number, "</PartNumber><ETag>\"", xml_escaped(part.etag), "\"</ETag>");
    if (part.crc32c) body += concat("<ChecksumCRC32C>", crc_header(*part.crc32c), "</ChecksumCRC32C>");
    body += "</Part>";
  }
  body += "</CompleteMultipartUpload>";
  // The status 200 is sent before the work is done, so the body may still report an error.
  send({.method = "POST",
        .object = object,
        .parameters = {{"uploadId", upload}},
        .body = bytes_of_text(body),
        .check = [](const HttpAnswer& answer) { return problem_in_answer(answer); }});
}

void ObjectStore::abort_upload(const ObjectUrl& object, const std::string& upload) const {
  send({.method = "DELETE", .object = object, .parameters = {{"uploadId", upload}}});
}

}  // namespace tessera::storage
