#include <tessera/config/core/overrides.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace tessera::config {
namespace {

Value typed(const std::string& text) {
  const std::string word = to_lower(text);
  if (word == "null" || word == "none") return {};
  if (word == "true" || word == "false") return Value::of(word == "true");
  if (const auto integer = parse_int(text)) return Value::of(*integer);
  if (const auto real = parse_real(text); real && std::isfinite(*real)) return Value::of(*real);
  return Value::of(text);
}

bool is_key(const std::string& key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  });
}

}  // namespace

std::vector<std::pair<std::string, Value>> parse_overrides(std::string_view text, const std::string& flag) {
  if (trim(text).empty()) return {};
  if (trim(text).front() == '{') return parse_json(text, flag).members();
  std::vector<std::pair<std::string, Value>> pairs;
  const auto file = std::make_shared<const std::string>(flag);
  for (const std::string& part : split(text, ',')) {
    const auto fail = [&](const std::string& what) {
      return InputError(concat(flag, ": '", trim(part), "' ", what, " (expected key=value,key=value)"));
    };
    const std::size_t equals = part.find('=');
    if (equals == std::string::npos) throw fail("has no '='");
    const std::string key = trim(part.substr(0, equals)), written = trim(part.substr(equals + 1));
    if (!is_key(key)) throw fail("does not begin with a key");
    if (written.empty()) throw fail("has no value");
    if (std::any_of(pairs.begin(), pairs.end(), [&](const auto& pair) { return pair.first == key; }))
      throw fail(concat("gives ", key, " a second time"));
    Value value = typed(written);
    value.set_where({file, 0, 0});
    pairs.emplace_back(key, std::move(value));
  }
  return pairs;
}

}  // namespace tessera::config
