#include <tessera/comm/fingerprint.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/launch/fleet/rank_list.h>

#include <algorithm>

namespace tessera::comm {
namespace {

constexpr std::size_t most_named = 8;       // maximum number of differing facts in a message
constexpr std::size_t longest_value = 200;  // maximum bytes of a value in a message

// "5:hello": length-prefixed, so that any bytes are allowed.
void put(std::string& text, const std::string& part) {
  text.append(std::to_string(part.size())).append(":").append(part);
}

std::string take(const std::string& text, std::size_t& at) {
  const std::size_t colon = text.find(':', at);
  const auto length = colon == std::string::npos ? std::nullopt : parse_int(text.substr(at, colon - at));
  if (!length || *length < 0 || static_cast<std::size_t>(*length) > text.size() - colon - 1) {
    throw Error(concat("facts of another rank cannot be read at byte ", at, " of ", text.size(),
                       ": that rank runs a different build of tessera. Start the same program on every host."));
  }
  at = colon + 1 + static_cast<std::size_t>(*length);
  return text.substr(colon + 1, static_cast<std::size_t>(*length));
}

std::string shown(const std::string& value) {
  return concat("'", value.substr(0, longest_value), value.size() > longest_value ? "..." : "", "'");
}

}  // namespace

std::string to_text(const Fingerprint& facts) {
  std::string text;
  for (const auto& [name, value] : facts) {
    put(text, name);
    put(text, value);
  }
  return text;
}

Fingerprint from_text(const std::string& text) {
  Fingerprint facts;
  for (std::size_t at = 0; at < text.size();) {
    std::string name = take(text, at);
    facts.emplace_back(std::move(name), take(text, at));
  }
  return facts;
}

std::optional<std::string> differences(const std::map<int, Fingerprint>& facts_of_rank) {
  std::vector<std::string> names;  // in order of first appearance
  for (const auto& [rank, facts] : facts_of_rank) {
    for (const auto& fact : facts) {
      if (std::find(names.begin(), names.end(), fact.first) == names.end()) names.push_back(fact.first);
    }
  }
  std::string text;
  std::size_t count = 0;
  for (const std::string& name : names) {
    std::vector<std::pair<std::string, std::vector<int>>> values;  // displayed value, ranks that have it
    for (const auto& [rank, facts] : facts_of_rank) {
      const auto found = std::find_if(facts.begin(), facts.end(), [&](const auto& fact) { return fact.first == name; });
      const std::string value = found == facts.end() ? "not given" : "= " + found->second;
      auto group = std::find_if(values.begin(), values.end(), [&](const auto& v) { return v.first == value; });
      if (group == values.end()) group = values.insert(values.end(), {value, {}});
      group->second.push_back(rank);
    }
    if (values.size() == 1 || ++count > most_named) continue;
    text += concat(text.empty() ? "" : "; ", name, " is ");
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::string& value = values[i].first;
      text += concat(i == 0 ? "" : " but ", value == "not given" ? value : shown(value.substr(2)), " on ",
                     launch::ranks_text(values[i].second));
    }
  }
  if (count == 0) return std::nullopt;
  if (count > most_named) text += concat("; and ", count - most_named, " more");
  return text;
}

}  // namespace tessera::comm
