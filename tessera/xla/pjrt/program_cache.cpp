#include <tessera/xla/pjrt/program_cache.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/corpus/cache/content_hash.h>

#include <algorithm>
#include <filesystem>
#include <vector>

namespace tessera::xla {
namespace {

constexpr std::string_view suffix = ".program";

/// First line of an entry: its format, and a hash of the rest.
std::string head_of(std::string_view bytes) { return concat("tessera-xla-1 ", corpus::hash_of(bytes).hex(), "\n"); }

}  // namespace

std::string ProgramCache::key_of(std::string_view everything) { return corpus::hash_of(everything).hex(); }

std::string ProgramCache::path_of(const std::string& key) const { return path_join(folder_, concat(key, suffix)); }

std::optional<std::string> ProgramCache::read(const std::string& key) const {
  const std::string path = path_of(key);
  if (!path_exists(path)) return std::nullopt;
  try {
    std::string entry = read_file(path);
    const std::size_t end = std::min(entry.find('\n'), entry.size() - 1) + 1;
    std::string bytes = entry.substr(end);
    if (entry.substr(0, end) != head_of(bytes)) throw InputError(concat(path, " is damaged"));
    std::error_code ignored;  // a failure affects only the order of removal
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now(), ignored);
    return bytes;
  } catch (const Error& error) {
    compiled_again(error.what());
    return std::nullopt;
  }
}

void ProgramCache::compiled_again(std::string_view why) const {
  if (told_.exchange(true)) return;
  log::warning("xla: a program of the cache cannot be used and is compiled again: ", why,
               " (others of this run are not reported)");
}

void ProgramCache::write(const std::string& key, std::string_view bytes) const {
  const std::string head = head_of(bytes), path = path_of(key);
  if (head.size() + bytes.size() > most_) return;
  try {
    make_folders(folder_);
    write_file_atomically(path, head + std::string(bytes));
    remove_oldest(path);
  } catch (const Error& error) {
    log::warning("xla: a compiled program is not cached: ", error.what());
  }
}

void ProgramCache::remove_oldest(const std::string& newest) const {
  struct Entry {
    std::filesystem::file_time_type used;
    std::string path;
    std::uint64_t bytes;
  };
  std::vector<Entry> entries;
  std::uint64_t total = 0;
  std::error_code gone;  // set if another process has removed the entry
  for (const std::string& name : list_folder(folder_)) {
    if (!name.ends_with(suffix)) continue;
    const std::string path = path_join(folder_, name);
    const auto bytes = std::filesystem::file_size(path, gone);
    if (gone) continue;
    const auto used = std::filesystem::last_write_time(path, gone);
    if (gone) continue;
    total += bytes;
    if (path != newest) entries.push_back({used, path, bytes});
  }
  std::ranges::sort(entries, {}, &Entry::used);
  for (const Entry& entry : entries) {
    if (total <= most_) return;
    std::filesystem::remove(entry.path, gone);
    total -= entry.bytes;
  }
}

}  // namespace tessera::xla
