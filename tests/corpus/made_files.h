#pragma once
/// \file
/// Temporary files of a test, and the records read from them.

#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/corpus/records.h>
#include <tessera/corpus/sources.h>

namespace tessera::corpus {

class MadeFiles {
 public:
  /// Writes a file (and its parent folders) and returns its path.
  std::string add(const std::string& name, std::string_view bytes = "x\n") const {
    const std::string path = path_join(folder_.path(), name);
    make_folders(path.substr(0, path.rfind('/')));
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path;
  }
  const std::string& path() const { return folder_.path(); }
  std::string path(const std::string& name) const { return path_join(folder_.path(), name); }

 private:
  TemporaryFolder folder_{"corpus"};
};

/// Number of damaged files to try: TESSERA_MUTATIONS, default 160.
inline int mutations() {
  const char* given = std::getenv("TESSERA_MUTATIONS");
  return given != nullptr ? std::atoi(given) : 160;
}

/// All records as JSON, read in pieces of about `bytes_each`; an error ends the list with its text.
inline std::vector<std::string> records_of(const SourceFile& file, std::uint64_t bytes_each = std::uint64_t{1} << 30) {
  std::vector<std::string> records;
  try {
    for (const Piece& piece : pieces_of(file, bytes_each)) {
      const auto reader = read_records(file, piece);
      while (const auto record = reader->next()) records.push_back(dump_json(*record, -1));
    }
  } catch (const InputError& error) {
    records.push_back(error.what());
  }
  return records;
}

inline std::vector<std::string> records_of(const std::string& path) { return records_of(source_file(path)); }

}  // namespace tessera::corpus
