#include "folder_rules.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

namespace tessera::structure {
namespace {

namespace fs = std::filesystem;

/// Maps each folder to the folders that it includes, each with a file that does so.
using Arrows = std::map<std::string, std::map<std::string, std::string>>;

constexpr const char* ground = "its own headers";
constexpr const char* front = "its own sources";

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  for (const fs::path& part : fs::path(path)) parts.push_back(part.string());
  return parts;
}

/// The folder within its layer of a path such as {"tessera", "comm", "ring", "queue.h"}.
std::string folder_of(const std::vector<std::string>& parts) {
  if (parts.size() > 3) return parts[2];
  return parts[2].ends_with(".h") && parts[2] != parts[1] + ".h" ? ground : front;
}

std::map<std::string, Arrows> arrows_by_layer(const fs::path& root) {
  static const std::regex include(R"(^#include [<"](tessera/[^">]+)[">])");
  std::map<std::string, Arrows> layers;
  for (const auto& entry : fs::recursive_directory_iterator(root / "tessera")) {
    const std::string path = fs::relative(entry.path(), root).generic_string();
    const std::vector<std::string> from = parts_of(path);
    if (!entry.is_regular_file() || from.size() < 3) continue;
    const std::string folder = folder_of(from);
    if (folder == front) continue;
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);) {
      std::smatch match;
      if (!line.starts_with("#include") || !std::regex_search(line, match, include)) continue;
      const std::vector<std::string> to = parts_of(match[1]);
      if (to.size() < 3 || to[1] != from[1] || folder_of(to) == folder || folder_of(to) == front) continue;
      layers[from[1]][folder].emplace(folder_of(to), path);
    }
  }
  return layers;
}

/// A path along the includes from `at` to `goal`, as text; empty if none exists.
std::string way(const Arrows& arrows, const std::string& at, const std::string& goal, std::vector<std::string>& seen) {
  const auto found = arrows.find(at);
  if (found == arrows.end()) return {};
  for (const auto& [to, file] : found->second) {
    const std::string step = " -> " + to + " (" + file + ")";
    if (to == goal) return step;
    if (std::find(seen.begin(), seen.end(), to) != seen.end()) continue;
    seen.push_back(to);
    const std::string rest = way(arrows, to, goal, seen);
    if (!rest.empty()) return step + rest;
  }
  return {};
}

}  // namespace

std::vector<std::string> folder_circles(const std::string& root, const std::vector<std::string>& unordered) {
  std::vector<std::string> circles;
  for (const auto& [layer, arrows] : arrows_by_layer(root)) {
    if (std::find(unordered.begin(), unordered.end(), layer) != unordered.end()) continue;
    for (const auto& [folder, to] : arrows) {
      std::vector<std::string> seen = {folder};
      const std::string circle = way(arrows, folder, folder, seen);
      if (!circle.empty()) circles.push_back("tessera/" + layer + ": " + folder + circle);
    }
  }
  return circles;
}

}  // namespace tessera::structure
