#include "text_rules.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "tree.h"

namespace tessera::structure {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_columns = 120;
constexpr int most_files = 50;

std::size_t columns(const std::string& line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::vector<std::string> wide_lines(const std::string& root) {
  std::vector<std::string> found;
  for (const std::string& path : sources(root)) {
    const std::vector<std::string> lines = lines_of(root, path);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (path.ends_with(".sh") && lines[i].starts_with("| ")) continue;
      if (const std::size_t width = columns(lines[i]); width > most_columns)
        found.push_back(at(path, i) + std::to_string(width) + " columns; a line has at most 120");
    }
  }
  return found;
}

std::vector<std::string> crowded_folders(const std::string& root) {
  std::map<std::string, int> files;
  for (const std::string& path : sources(root)) {
    if (path.starts_with("tessera/") || path.starts_with("tools/") || path.starts_with("tests/"))
      ++files[fs::path(path).parent_path().generic_string()];
  }
  std::vector<std::string> found;
  for (const auto& [folder, count] : files) {
    if (count > most_files)
      found.push_back(folder + ": " + std::to_string(count) + " source files; divide it into folders of at most 50");
  }
  return found;
}

}  // namespace tessera::structure
