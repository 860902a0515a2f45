#include <tessera/corpus/cache/entry.h>

#include <algorithm>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>

namespace tessera::corpus {
namespace {

constexpr std::size_t most_seen = 4096;  // maximum entries in seen.json

}  // namespace

Value to_json(const Entry& entry) {
  std::vector<Value> sources, shards;
  for (const EntrySource& source : entry.sources)
    sources.push_back(Value::make_object(
        {{"path", Value::of(source.path)}, {"state", to_json(source.state)}, {"hash", Value::of(source.hash.hex())}}));
  for (const std::string& name : entry.shards) shards.push_back(Value::of(name));
  return Value::make_object({{"settings", Value::of(entry.settings)},
                             {"made_ns", Value::of(entry.made_ns)},
                             {"sources", Value::make_array(std::move(sources))},
                             {"tally", to_json(entry.tally)},
                             {"shards", Value::make_array(std::move(shards))}});
}

Entry read_entry(const std::string& folder) {
  const Value value = read_json(path_join(folder, entry_file));
  Entry entry;
  entry.settings = value.at("settings").as_string();
  entry.made_ns = value.at("made_ns").as_int();
  for (const Value& source : value.at("sources").items())
    entry.sources.push_back({source.at("path").as_string(), state_from_json(source.at("state")),
                             parse_hash(source.at("hash").as_string(), source.where().str())});
  entry.tally = tally_from_json(value.at("tally"));
  for (const Value& name : value.at("shards").items()) {
    if (!format::is_plain_file_name(name.as_string()))
      throw InputError(concat(name.where().str(), ": '", name.as_string(), "' is not a plain file name"));
    entry.shards.push_back(name.as_string());
  }
  return entry;
}

std::vector<SeenSource> read_seen(const std::string& folder) {
  const std::string path = path_join(folder, seen_file);
  std::vector<SeenSource> seen;
  if (!path_exists(path)) return seen;
  try {
    const Value list = read_json(path);  // named, because a temporary would be destroyed before the loop begins
    for (const Value& one : list.items())
      seen.push_back({static_cast<std::size_t>(one.at("source").as_int()), one.at("path").as_string(),
                      state_from_json(one.at("state"))});
  } catch (const InputError& error) {
    log::debug(error.what());
    seen.clear();
  }
  return seen;
}

void write_seen(const std::string& folder, const std::vector<SeenSource>& seen) {
  std::vector<Value> list;
  for (const SeenSource& one : seen)
    list.push_back(Value::make_object({{"source", Value::of(static_cast<std::int64_t>(one.source))},
                                       {"path", Value::of(one.path)},
                                       {"state", to_json(one.state)}}));
  write_file_atomically(path_join(folder, seen_file), dump_json(Value::make_array(std::move(list)), -1));
}

bool same_contents(const std::string& folder, const Entry& entry, const std::vector<SourceFile>& sources) {
  if (entry.sources.size() != sources.size()) return false;
  std::vector<SeenSource> seen = read_seen(folder), learnt;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::string path = absolute_path(sources[i].path);
    const EntrySource& kept = entry.sources[i];
    const FileState state = state_of(path);
    if (state == kept.state && path == kept.path && is_settled(state, entry.made_ns)) continue;
    const bool known = std::any_of(seen.begin(), seen.end(), [&](const SeenSource& one) {
      return one.source == i && one.path == path && one.state == state;
    });
    if (known) continue;
    if (state.bytes != kept.state.bytes) return false;
    const std::int64_t now = real_time_ns();
    if (hash_of_file(path, state.bytes) != kept.hash || state_of(path) != state) return false;
    if (is_settled(state, now)) learnt.push_back({i, path, state});
  }
  if (learnt.empty()) return true;
  // Earlier records of the same path are obsolete.
  std::erase_if(seen, [&](const SeenSource& one) {
    return std::any_of(learnt.begin(), learnt.end(),
                       [&](const SeenSource& now) { return now.source == one.source && now.path == one.path; });
  });
  seen.insert(seen.end(), learnt.begin(), learnt.end());
  if (seen.size() > most_seen) seen.erase(seen.begin(), seen.end() - most_seen);
  try {
    write_seen(folder, seen);
  } catch (const Error& error) {  // fails in a folder that is read-only for this user
    log::debug(error.what());
  }
  return true;
}

}  // namespace tessera::corpus
