#include <tessera/corpus/cache/cache.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/user_folders.h>
#include <tessera/corpus/cache/build.h>
#include <tessera/corpus/cache/entry.h>
#include <tessera/format/manifest/manifest.h>

namespace tessera::corpus {
namespace {

/// Part of every key: changing it invalidates all existing entries.
constexpr const char* format_version = "tessera tokens 1";
constexpr int most_variants = 1000;  // number of entries with the same fingerprint (glance_at()) but different contents

std::string key_of(const TokenRequest& request) {
  std::string text = concat(format_version, "\n", request.examples ? "examples" : "stream", " ", request.width, "\n",
                            request.settings, "\n");
  for (const SourceFile& source : request.sources) text += glance_at(source) + "\n";
  return hash_of(std::string_view(text)).hex();
}

std::string full_settings(const TokenRequest& request) {
  return concat(request.examples ? "examples" : "stream", ", ", request.width, " bytes a token; ", request.settings);
}

/// Returns the entry if it is complete and has the requested contents. The lock marks it as in use.
struct Found {
  Entry entry;
  std::shared_ptr<PlaceLocks> lock;
};

std::optional<Found> look_into(const std::string& folder, const TokenRequest& request) {
  auto lock = std::make_shared<PlaceLocks>(path_join(folder, lock_file), false);
  while (!lock->try_lock(presence_place, PlaceLocks::Kind::shared))  // it is being removed or published
    if (!lock->still_there()) return std::nullopt;
  if (!lock->still_there()) return std::nullopt;
  format::verify_sizes(folder, format::read_manifest(folder));
  Entry entry = read_entry(folder);
  if (entry.settings != full_settings(request) || !same_contents(folder, entry, request.sources)) return std::nullopt;
  ::utimensat(AT_FDCWD, path_join(folder, lock_file).c_str(), nullptr, 0);  // records the last use
  return Found{std::move(entry), std::move(lock)};
}

/// Moves a damaged entry out of the way. Processes that have mapped its files keep them.
void put_aside(const std::string& folder, const std::string& why) {
  log::warning("the tokens in ", folder, " are damaged and will be created again (", why, ")");
  const std::string aside = concat(folder, ".damaged.", ::getpid());
  if (::rename(folder.c_str(), aside.c_str()) == 0) remove_tree(aside);
}

}  // namespace

std::string default_cache_folder() {
  if (const auto folder = user_cache_folder()) return path_join(*folder, "tokens");
  throw InputError("no folder for tokens: set --data_cache_dir, TESSERA_CACHE, XDG_CACHE_HOME or HOME");
}

bool is_writable_cache(const std::string& root) {
  try {
    make_folders(root);
  } catch (const Error&) {
    return false;
  }
  return ::access(root.c_str(), W_OK | X_OK) == 0;
}

CachedTokens cached_tokens(const std::string& root, const TokenRequest& given, const CacheProgress& progress) {
  TESSERA_CHECK(!given.sources.empty(), "tokens of no files");
  TokenRequest request = given;
  request.settings = full_settings(given);
  const std::string key = key_of(given);
  bool made = false;
  for (int variant = 0; variant < most_variants;) {
    const std::string name = variant == 0 ? key : concat(key, ".", variant), folder = path_join(root, name);
    if (path_exists(folder) && !path_exists(path_join(folder, format::kManifestName))) {
      put_aside(folder, concat(format::kManifestName, " is missing"));
      continue;
    }
    if (!path_exists(folder)) {
      build_entry(root, name, request, progress);
      made = true;
      continue;  // another process may have created it, possibly from different contents
    }
    try {
      if (auto found = look_into(folder, given)) {
        auto store = std::make_shared<TokenStore>(folder, found->entry.shards, std::move(found->lock));
        return {std::move(store), std::move(found->entry.tally), folder, !made};
      }
    } catch (const InputError& error) {
      if (!path_exists(folder)) continue;                                      // removed meanwhile
      for (const SourceFile& source : request.sources) state_of(source.path);  // throws if the source is invalid
      put_aside(folder, error.what());
      continue;
    }
    if (path_exists(folder)) ++variant;  // the entry has different contents; otherwise it was removed in the meantime
  }
  throw Error(concat(root, " contains ", most_variants, " entries for files like ", request.sources[0].path,
                     ", none of which has the same contents: remove some (tessera cache rm)"));
}

CachedTokens private_tokens(const TokenRequest& given, const CacheProgress& progress) {
  TokenRequest request = given;
  request.settings = full_settings(given);
  const TemporaryFolder folder("tessera-tokens");
  build_privately(folder.path(), request, progress);
  Entry entry = read_entry(folder.path());
  // The store has mapped its files and does not need their names, so a run that is killed later leaves nothing behind.
  auto store = std::make_shared<TokenStore>(folder.path(), entry.shards, nullptr);
  return {std::move(store), std::move(entry.tally), "", false};
}

}  // namespace tessera::corpus
