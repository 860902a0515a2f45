#include <tools/tessera/objects/training.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/object_url.h>
#include <tessera/base/text.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/corpus/cache/cache.h>
#include <tessera/corpus/data_list.h>
#include <tessera/storage/data_files.h>
#include <tessera/storage/fetch.h>
#include <tools/tessera/text_progress.h>

#include <algorithm>
#include <functional>

namespace tessera::tool {
namespace {

bool names_objects(const std::string& list) {
  const std::vector<std::string> places = corpus::places_of(corpus::parse_data_list(list));
  return std::any_of(places.begin(), places.end(), is_object_url);
}

storage::TransferOptions with_progress(TextProgress& progress, const std::string& what) {
  storage::TransferOptions options;
  options.progress = [&progress, what](std::uint64_t done, std::uint64_t all) {
    progress.show("fetching " + what, static_cast<std::int64_t>(done), static_cast<std::int64_t>(all), true);
  };
  return options;
}

/// A wrong name or wrong credentials are the user's mistake, detected before anything is written.
void as_input(const std::function<void()>& act) {
  try {
    act();
  } catch (const storage::StorageError& error) {
    using Kind = storage::StorageError::Kind;
    if (error.kind() == Kind::refused || error.kind() == Kind::missing) throw InputError(error.what());
    throw;
  }
}

/// The folder name of a fetched checkpoint: the last component of its URL.
std::string folder_name(const ObjectUrl& url) {
  return url.key.empty() ? "checkpoint" : url.key.substr(url.key.rfind('/') + 1);
}

}  // namespace

void fetch_objects(config::Resolved& resolved, const launch::RankEnvironment& environment) {
  RunConfig& config = resolved.values;
  OutputConfig& output = config.output;
  const bool data = names_objects(config.data.train_file) || names_objects(config.data.validation_file);
  const bool resume = is_object_url(output.resume_from_checkpoint);
  if (!data && !resume) return;
  const storage::ObjectStore store(storage::read_access());
  as_input([&] {
    TextProgress progress;
    if (data) {
      const std::string root =
          config.data.data_cache_dir.empty() ? corpus::default_cache_folder() : config.data.data_cache_dir;
      for (std::string* list : {&config.data.train_file, &config.data.validation_file})
        if (names_objects(*list))
          *list = storage::fetch_data_list(store, *list, path_join(root, "objects"), with_progress(progress, *list));
    }
    if (!resume) return;
    const ObjectUrl from = storage::newest_at(store, parse_object_url(output.resume_from_checkpoint)).url;
    const std::string folder = path_join(output.output_dir, folder_name(from));
    const auto report = storage::fetch_checkpoint(store, from, folder, with_progress(progress, from.text()));
    if (environment.rank == 0)
      log::info("fetched ", from.text(), " into ", folder, " (", format_bytes(report.bytes), ", of which ",
                format_bytes(report.bytes - report.fetched), " existed already)");
    output.resume_from_checkpoint = folder;
  });
}

}  // namespace tessera::tool
