// tessera cache: lists, checks and removes cached tokens of texts.

#include <tessera/base/error.h>
#include <tessera/config/resolve/command_flags.h>
#include <tessera/corpus/cache/cache.h>
#include <tessera/corpus/cache/manage.h>
#include <tessera/corpus/cache/source_state.h>
#include <tools/tessera/commands.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera cache: tokens of texts, cached by training for the next run\n\n"
    "usage: tessera cache ls [--data_cache_dir DIR]\n"
    "       tessera cache verify [NAME...] [--data_cache_dir DIR]\n"
    "       tessera cache rm NAME... [--data_cache_dir DIR]\n"
    "       tessera cache rm --older_than AGE | --max_size SIZE | --all [--data_cache_dir DIR]\n\n"
    "  ls       one line per entry, most recently used first: name, size, tokens, time of last use, files\n"
    "  verify   compares every byte with the checksums; exit code 1 when an entry is damaged\n"
    "  rm       removes entries; one that a job uses or creates is kept and reported\n\n"
    "  --data_cache_dir DIR  default: TESSERA_CACHE, else ~/.cache/tessera/tokens\n"
    "  --older_than AGE      not used for this long: 45s, 90m, 12h, 30d\n"
    "  --max_size SIZE       the least recently used ones, until the rest has at most this size: 500M, 20G\n"
    "  --all                 all entries\n"
    "A unique prefix of a NAME is enough.\n";

std::string root_of(const config::Flags& flags) {
  if (const auto given = flags.text("data_cache_dir")) return *given;
  const char* set = std::getenv("TESSERA_CACHE");
  return set != nullptr && *set != '\0' ? set : corpus::default_cache_folder();
}

std::string sources_of(const corpus::CacheEntry& entry) {
  if (!entry.damage.empty()) return concat("damaged: ", entry.damage);
  if (!entry.finished) return entry.in_use ? "being made" : "not finished";
  if (entry.sources.empty()) return "";
  const std::size_t more = entry.sources.size() - 1;
  return concat(entry.sources.front(), more > 0 ? concat(" and ", more, " more") : "");
}

int list(const std::string& root) {
  std::uint64_t bytes = 0;
  const std::int64_t now = corpus::real_time_ns();
  const auto entries = corpus::list_cache(root);
  for (const corpus::CacheEntry& entry : entries) {
    bytes += entry.bytes;
    const double age = static_cast<double>(std::max<std::int64_t>(now - entry.used_ns, 0)) * 1e-9;
    std::cout << concat(
        entry.name, "  ", format_bytes(entry.bytes), "  ", format_count(static_cast<double>(entry.tokens)), " tokens  ",
        entry.in_use ? "in use" : concat("used ", format_duration(age), " ago"), "  ", sources_of(entry), "\n");
  }
  std::cout << concat(root, ": ", entries.size(), entries.size() == 1 ? " entry, " : " entries, ", format_bytes(bytes),
                      "\n");
  return 0;
}

/// Returns the entries whose names are given, in full or as a unique prefix.
std::vector<std::string> named(const std::vector<corpus::CacheEntry>& entries, const Arguments& words,
                               const std::string& root) {
  std::vector<std::string> names;
  for (const std::string& word : words) {
    std::vector<std::string> matches;
    for (const corpus::CacheEntry& entry : entries)
      if (entry.name == word || entry.name.starts_with(word)) matches.push_back(entry.name);
    const bool exact = std::find(matches.begin(), matches.end(), word) != matches.end();
    if (matches.empty()) throw InputError(concat(root, " has no entry '", word, "' (tessera cache ls)"));
    if (matches.size() > 1 && !exact)
      throw InputError(concat("'", word, "' is a prefix of ", matches.size(), " entries: ", join(matches)));
    names.push_back(exact ? word : matches.front());
  }
  return names;
}

int verify(const std::string& root, const Arguments& words) {
  const auto entries = corpus::list_cache(root);
  std::vector<std::string> names = named(entries, words, root);
  if (words.empty()) {
    for (const corpus::CacheEntry& entry : entries)
      if (entry.finished) names.push_back(entry.name);
  }
  bool whole = true;
  for (const std::string& name : names) {
    const std::string damage = corpus::verify_entry(root, name);
    whole &= damage.empty();
    std::cout << concat(name, damage.empty() ? "  whole" : concat("  damaged: ", damage), "\n");
  }
  return whole ? 0 : 1;
}

std::vector<std::string> chosen(const config::Flags& flags, const std::vector<corpus::CacheEntry>& entries) {
  std::optional<std::int64_t> age;
  std::optional<std::uint64_t> size;
  if (const auto text = flags.text("older_than"); text && !(age = corpus::parse_age(*text)))
    throw InputError(concat("--older_than is '", *text, "'; it takes a number and s, m, h or d, such as 30d"));
  if (const auto text = flags.text("max_size"); text && !(size = corpus::parse_size(*text)))
    throw InputError(concat("--max_size is '", *text, "'; it takes bytes, with K, M, G or T, such as 20G"));
  if (flags.has("all")) size = 0;
  if (!age && !size) throw InputError("tessera cache rm: expected entry names, or --older_than, --max_size or --all");
  return corpus::to_remove(entries, age, size, corpus::real_time_ns());
}

int remove(const std::string& root, const config::Flags& flags, const Arguments& words) {
  const auto entries = corpus::list_cache(root);
  bool all = true;
  for (const std::string& name : words.empty() ? chosen(flags, entries) : named(entries, words, root)) {
    const bool removed = corpus::remove_entry(root, name);
    std::cout << concat(removed ? "removed " : "in use, left: ", name, "\n");
    all &= removed;
  }
  return all ? 0 : 1;
}

}  // namespace

int cache_command(const Arguments& arguments) {
  if (arguments.empty() || std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::cout << help;
    return arguments.empty() ? 2 : 0;
  }
  // Names precede the flags.
  const auto first_flag = std::find_if(arguments.begin() + 1, arguments.end(),
                                       [](const std::string& word) { return word.starts_with("--"); });
  const Arguments words(arguments.begin() + 1, first_flag);
  const config::Flags flags("cache " + arguments[0], Arguments(first_flag, arguments.end()),
                            {"data_cache_dir", "older_than", "max_size"}, {"all"});
  const std::string root = root_of(flags);
  if (arguments[0] == "ls" && words.empty()) return list(root);
  if (arguments[0] == "verify") return verify(root, words);
  if (arguments[0] == "rm") return remove(root, flags, words);
  throw InputError(concat("tessera cache ", join(arguments, " "), ": expected ls, verify or rm (--help)"));
}

}  // namespace tessera::tool
