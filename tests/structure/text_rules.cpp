#include "text_rules.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>

namespace tessera::structure {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_columns = 120;
constexpr int most_files = 50;

bool is_source(const fs::path& path) {
  static const std::set<std::string> extensions = {".cpp", ".h", ".cu", ".cuh", ".c", ".py", ".sh", ".cmake"};
  return extensions.count(path.extension().string()) > 0 || path.filename() == "CMakeLists.txt";
}

/// The sources of the tree, sorted; paths from `root`.
std::vector<std::string> sources(const fs::path& root) {
  std::vector<std::string> found;
  if (fs::exists(root / "CMakeLists.txt")) found.push_back("CMakeLists.txt");
  for (const char* top : {"bench", "cmake", "examples", "tessera", "tests", "tools"}) {
    if (!fs::is_directory(root / top)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      if (entry.is_regular_file() && is_source(entry.path()))
        found.push_back(fs::relative(entry.path(), root).generic_string());
    }
  }
  if (found.empty()) throw std::runtime_error("no source file under " + root.string() + ": nothing was checked");
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::size_t columns(const std::string& line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string at(const std::string& path, std::size_t index) { return path + ":" + std::to_string(index + 1) + ": "; }

}  // namespace

std::vector<std::string> wide_lines(const std::string& root) {
  std::vector<std::string> found;
  for (const std::string& path : sources(root)) {
    const std::vector<std::string> lines = lines_of(fs::path(root) / path);
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
