#include "tree.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>

namespace tessera::structure {

namespace fs = std::filesystem;

namespace {

bool is_source(const fs::path& path) {
  static const std::set<std::string> extensions = {".cpp", ".h", ".cu", ".cuh", ".c", ".py", ".sh", ".cmake"};
  return extensions.count(path.extension().string()) > 0 || path.filename() == "CMakeLists.txt";
}

bool has_hash_comments(const std::string& path) {
  return path.ends_with(".py") || path.ends_with(".sh") || path.ends_with(".cmake") || path.ends_with(".txt") ||
         path == "Makefile";
}

}  // namespace

std::vector<std::string> sources(const std::string& root) {
  std::vector<std::string> found;
  if (fs::exists(fs::path(root) / "CMakeLists.txt")) found.push_back("CMakeLists.txt");
  for (const char* top : {"bench", "cmake", "examples", "tessera", "tests", "tools"}) {
    const fs::path folder = fs::path(root) / top;
    if (!fs::is_directory(folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file() && is_source(entry.path()))
        found.push_back(fs::relative(entry.path(), root).generic_string());
    }
  }
  if (found.empty()) throw std::runtime_error("no source file under " + root + ": nothing was checked");
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> lines_of(const std::string& root, const std::string& path) {
  std::ifstream in(fs::path(root) / path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string comment_of(const std::string& path, const std::string& line) {
  const std::string marker = has_hash_comments(path) ? "#" : "//";
  const auto begin = line.find(marker);
  if (begin == std::string::npos) return "";
  const auto quotes = std::count(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(begin), '"');
  if (quotes % 2 != 0) return "";
  const auto text = line.find_first_not_of(marker == "#" ? "#! " : "/!< ", begin);
  return text == std::string::npos ? "" : line.substr(text);
}

std::string at(const std::string& path, std::size_t index) { return path + ":" + std::to_string(index + 1) + ": "; }

}  // namespace tessera::structure
