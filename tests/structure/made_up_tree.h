#pragma once
/// \file
/// A temporary folder into which a test of a rule writes its files.

#include <filesystem>
#include <fstream>
#include <string>

#include <tessera/base/file.h>

namespace tessera::structure {

class MadeUpTree {
 public:
  void add(const std::string& path, const std::string& text) {
    const std::string whole = path_join(folder_.path(), path);
    make_folders(std::filesystem::path(whole).parent_path().string());
    std::ofstream(whole) << text;  // not atomic: hundreds of trees, and an fsync takes milliseconds
  }
  const std::string& root() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

}  // namespace tessera::structure
