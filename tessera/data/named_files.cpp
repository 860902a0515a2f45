#include <tessera/data/named_files.h>

#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>

namespace tessera::data {

std::vector<corpus::SourceFile> named_files(const std::string& flag, const corpus::DataPart& part,
                                            corpus::Split split) {
  std::vector<corpus::SourceFile> files;
  for (const std::string& place : part.places) {
    if (!corpus::is_pattern(place) && !path_exists(place))
      throw InputError(concat("--", flag, ": no such file: ", place));
    const bool has_split = is_directory(place) && corpus::has_split(place, split);
    for (corpus::SourceFile& file : corpus::find_sources(place, has_split ? split : corpus::Split::train)) {
      if (file.kind != corpus::FileKind::tokens && file.bytes == 0)
        throw InputError(concat(file.path, ": is empty: use a file with at least one row"));
      files.push_back(std::move(file));
    }
  }
  return files;
}

}  // namespace tessera::data
