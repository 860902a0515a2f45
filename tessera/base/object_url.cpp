#include <tessera/base/object_url.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>

namespace tessera {
namespace {

constexpr std::string_view object_scheme = "s3://";

bool is_bucket(std::string_view name) {
  const auto alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return name.size() >= 3 && name.size() <= 63 && alphanumeric(name.front()) && alphanumeric(name.back()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return alphanumeric(c) || c == '.' || c == '-' || c == '_'; }) &&
         name.find("..") == std::string_view::npos;
}

}  // namespace

std::string ObjectUrl::text() const { return concat(object_scheme, bucket, key.empty() ? "" : "/", key); }

ObjectUrl ObjectUrl::below(std::string_view name) const {
  return {bucket, key.empty() ? std::string(name) : concat(key, "/", name)};
}

bool is_object_url(std::string_view text) { return text.starts_with(object_scheme); }

bool is_object_key(std::string_view key) {
  if (key.empty() || key.size() > 1024 || !is_utf8(key)) return false;
  if (std::any_of(key.begin(), key.end(), [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; }))
    return false;
  const std::vector<std::string> parts = split(key, '/');
  return std::none_of(parts.begin(), parts.end(),
                      [](const std::string& part) { return part.empty() || part == "." || part == ".."; });
}

ObjectUrl parse_object_url(std::string_view text) {
  if (!is_object_url(text)) throw InputError(concat("'", text, "' is not an object URL: expected s3://BUCKET/KEY"));
  std::string_view rest = text.substr(object_scheme.size());
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const std::size_t slash = rest.find('/');
  ObjectUrl url{std::string(rest.substr(0, slash)),
                slash == std::string_view::npos ? std::string() : std::string(rest.substr(slash + 1))};
  if (!is_bucket(url.bucket))
    throw InputError(
        concat(text, ": '", url.bucket,
               "' is not a bucket name: it must have 3 to 63 letters, digits, '.', '-' or '_', and begin and "
               "end with a letter or digit"));
  if (!url.key.empty() && !is_object_key(url.key))
    throw InputError(concat(text,
                            ": a key is at most 1024 bytes of UTF-8 without control characters, "
                            "and no component between two '/' may be empty, '.' or '..'"));
  return url;
}

}  // namespace tessera
