#include <tessera/corpus/cache/manage.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/corpus/cache/descriptor.h>
#include <tessera/corpus/cache/entry.h>
#include <tessera/format/manifest/verify.h>

namespace tessera::corpus {
namespace {

constexpr std::string_view unfinished = ".building";

/// Matches "0123...", "0123....1", each optionally with ".building".
bool is_entry_name(std::string name) {
  if (name.ends_with(unfinished)) name.resize(name.size() - unfinished.size());
  const std::size_t digits = name.find_first_not_of("0123456789abcdef");
  if (digits == std::string::npos) return name.size() == 32;
  return digits == 32 && name[32] == '.' && name.size() > 33 &&
         name.find_first_not_of("0123456789", 33) == std::string::npos;
}

std::uint64_t bytes_in(const std::string& folder) {
  std::uint64_t bytes = 0;
  std::error_code gone;  // files appear and disappear during a build
  for (std::filesystem::directory_iterator it(folder, gone), end; !gone && it != end; it.increment(gone)) {
    const std::uintmax_t size = it->file_size(gone);
    if (!gone) bytes += size;
    gone.clear();
  }
  return bytes;
}

CacheEntry describe(const std::string& root, const std::string& name) {
  const std::string folder = path_join(root, name), lock = path_join(folder, lock_file);
  CacheEntry entry;
  entry.name = name;
  entry.finished = !name.ends_with(unfinished);
  entry.bytes = bytes_in(folder);
  struct stat info{};
  if (::stat(lock.c_str(), &info) == 0)
    entry.used_ns = std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
  try {
    entry.in_use = PlaceLocks(lock, false).is_locked(presence_place);
    if (!entry.finished) return entry;
    const Entry stored = read_entry(folder);
    entry.tokens = stored.tally.tokens;
    entry.settings = stored.settings;
    for (const EntrySource& source : stored.sources) entry.sources.push_back(source.path);
  } catch (const Error& error) {
    entry.damage = error.what();
  }
  return entry;
}

std::optional<double> number_before(const std::string& text, std::size_t letters) {
  if (text.size() <= letters) return std::nullopt;
  const auto number = parse_real(text.substr(0, text.size() - letters));
  return number && *number >= 0 && std::isfinite(*number) ? number : std::nullopt;
}

}  // namespace

std::vector<CacheEntry> list_cache(const std::string& root) {
  std::vector<CacheEntry> entries;
  if (!is_directory(root)) return entries;
  for (const std::string& name : list_folder(root))
    if (is_entry_name(name)) entries.push_back(describe(root, name));
  std::stable_sort(entries.begin(), entries.end(),
                   [](const CacheEntry& a, const CacheEntry& b) { return a.used_ns > b.used_ns; });
  return entries;
}

bool remove_entry(const std::string& root, const std::string& name) {
  if (!is_entry_name(name))
    throw InputError(concat("'", name, "' is not a cache entry; list them with tessera cache ls"));
  const std::string folder = path_join(root, name);
  if (!is_directory(folder))
    throw InputError(concat(root, " has no entry ", name, "; list them with tessera cache ls"));
  PlaceLocks lock(path_join(folder, lock_file), true);
  if (!lock.try_lock(planning_place, PlaceLocks::Kind::exclusive) ||
      !lock.try_lock(presence_place, PlaceLocks::Kind::exclusive) || !lock.still_there())
    return false;
  // Renames the folder first, so that no process finds a partial entry.
  const std::string gone = path_join(root, concat("removed-", name, "-", ::getpid()));
  if (::rename(folder.c_str(), gone.c_str()) != 0) throw Error(concat("cannot rename '", folder, "'"));
  remove_tree(gone);
  return true;
}

std::vector<std::string> to_remove(const std::vector<CacheEntry>& entries, std::optional<std::int64_t> older_than_ns,
                                   std::optional<std::uint64_t> most_bytes, std::int64_t now_ns) {
  std::vector<std::string> names;
  std::uint64_t kept = 0;
  for (const CacheEntry& entry : entries) {  // most recently used first
    const bool old = older_than_ns && now_ns - entry.used_ns > *older_than_ns;
    const bool too_much = most_bytes && kept + entry.bytes > *most_bytes;
    if (!entry.in_use && (old || too_much))
      names.push_back(entry.name);
    else
      kept += entry.bytes;
  }
  return names;
}

std::string verify_entry(const std::string& root, const std::string& name) {
  return format::verify_folder(path_join(root, name)).text();
}

std::optional<std::int64_t> parse_age(const std::string& text) {
  const auto number = number_before(text, 1);
  if (!number) return std::nullopt;
  const std::string_view units = "smhd";
  constexpr double seconds[] = {1, 60, 3600, 86400};
  const std::size_t unit = units.find(text.back());
  if (unit == std::string_view::npos || *number * seconds[unit] > 9e9) return std::nullopt;
  return static_cast<std::int64_t>(*number * seconds[unit] * 1e9);
}

std::optional<std::uint64_t> parse_size(const std::string& text) {
  const std::string_view units = "KMGT";
  const std::size_t unit = text.empty() ? std::string_view::npos : units.find(text.back());
  const auto number = number_before(text, unit == std::string_view::npos ? 0 : 1);
  if (!number) return std::nullopt;
  const double bytes =
      *number * (unit == std::string_view::npos ? 1 : std::ldexp(1, 10 * (static_cast<int>(unit) + 1)));
  if (bytes > 9e18) return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

}  // namespace tessera::corpus
