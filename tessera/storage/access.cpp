#include <tessera/storage/access.h>

#include <cstdlib>
#include <map>
#include <optional>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>

namespace tessera::storage {
namespace {

using Section = std::map<std::string, std::string>;

std::optional<std::string> said_by(const Variable& variable, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = variable(name); value != nullptr && *value != '\0') return std::string(value);
  return std::nullopt;
}

/// One section of a file with "key = value" lines below "[section]". Error messages omit the line's text: it may
/// contain a secret.
Section section_of(const std::string& path, const std::string& name) {
  Section values;
  if (!path_exists(path)) return values;
  bool inside = false;
  int number = 0;
  for (const std::string& raw : split(read_file(path, std::uint64_t{1} << 20), '\n')) {
    ++number;
    const std::string line = trim(raw);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (line.front() == '[') {
      if (line.back() != ']') throw InputError(concat(path, ":", number, ": a section name must end with ']'"));
      inside = trim(line.substr(1, line.size() - 2)) == name;
      continue;
    }
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) throw InputError(concat(path, ":", number, ": expected KEY = VALUE"));
    // An indented line belongs to a nested setting of the key above it (s3 = ...); none of these settings are used
    // here.
    if (inside && raw[0] != ' ' && raw[0] != '\t') values[trim(line.substr(0, equals))] = trim(line.substr(equals + 1));
  }
  return values;
}

std::string in_home(const Variable& variable, const char* name) {
  const auto home = said_by(variable, {"HOME"});
  return home ? path_join(*home, name) : std::string();
}

std::optional<std::string> find(const Section& section, const char* key) {
  const auto found = section.find(key);
  if (found == section.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::string checked_endpoint(std::string endpoint) {
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const bool right = (endpoint.starts_with("http://") && endpoint.size() > 7) ||
                     (endpoint.starts_with("https://") && endpoint.size() > 8);
  if (!right || endpoint.find_first_of(" @?#\"\\\n\r\t") != std::string::npos)
    throw InputError("AWS_ENDPOINT_URL (or endpoint_url) is not of the form https://HOST[:PORT]");
  return endpoint;
}

}  // namespace

Access read_access(const Variable& variable) {
  const std::string credentials_file =
      said_by(variable, {"AWS_SHARED_CREDENTIALS_FILE"}).value_or(in_home(variable, ".aws/credentials"));
  const std::string config_file = said_by(variable, {"AWS_CONFIG_FILE"}).value_or(in_home(variable, ".aws/config"));
  const std::string profile = said_by(variable, {"AWS_PROFILE", "AWS_DEFAULT_PROFILE"}).value_or("default");
  const Section config = section_of(config_file, profile == "default" ? "default" : "profile " + profile);

  Access access;
  if (const auto key = said_by(variable, {"AWS_ACCESS_KEY_ID"})) {
    access.key_id = *key;
    access.secret = said_by(variable, {"AWS_SECRET_ACCESS_KEY"}).value_or("");
    access.token = said_by(variable, {"AWS_SESSION_TOKEN"}).value_or("");
    if (access.secret.empty())
      throw InputError("AWS_ACCESS_KEY_ID is set but AWS_SECRET_ACCESS_KEY is not: set both, or set neither and use " +
                       credentials_file);
  } else {
    const Section stored = section_of(credentials_file, profile);
    const Section& from = find(stored, "aws_access_key_id") ? stored : config;
    access.key_id = find(from, "aws_access_key_id").value_or("");
    access.secret = find(from, "aws_secret_access_key").value_or("");
    access.token = find(from, "aws_session_token").value_or("");
    if (access.key_id.empty() || access.secret.empty())
      throw InputError(
          concat("no credentials for s3:// found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                 "add them to the section [",
                 profile, "] of ", credentials_file.empty() ? "~/.aws/credentials" : credentials_file,
                 " (for instance roles and SSO: eval \"$(aws configure export-credentials --format env)\")"));
  }
  if (const auto region = said_by(variable, {"AWS_REGION", "AWS_DEFAULT_REGION"}))
    access.region = *region;
  else
    access.region = find(config, "region").value_or(access.region);
  auto endpoint = said_by(variable, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  if (!endpoint) endpoint = find(config, "endpoint_url");
  access.path_style = endpoint.has_value();
  access.endpoint = checked_endpoint(endpoint.value_or(concat("https://s3.", access.region, ".amazonaws.com")));
  if (const auto attempts = said_by(variable, {"AWS_MAX_ATTEMPTS"})) {
    const auto number = parse_int(*attempts);
    if (!number || *number < 1 || *number > 100) throw InputError("AWS_MAX_ATTEMPTS must be a number from 1 to 100");
    access.attempts = static_cast<int>(*number);
  }
  return access;
}

Access read_access() {
  return read_access([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace tessera::storage
