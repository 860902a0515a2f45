#include "layer_rules.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <stdexcept>
#include <string_view>

namespace tessera::structure {

namespace {

namespace fs = std::filesystem;

/// Bottom to top. Layers up to `c` are torch-free; `kernels` and later layers are part of libtessera, `c` of
/// libtessera_c.
constexpr std::array<std::string_view, 24> layers = {
    "base",   "layout",     "architectures", "image",    "text", "format", "corpus", "config",
    "launch", "storage",    "plan",          "kernels",  "wire", "c",      "comm",   "nn",
    "data",   "checkpoint", "optim",         "parallel", "xla",  "models", "train",  "faces"};
constexpr int first_above_program = 11;  // kernels: in libtessera, but without LibTorch's headers
constexpr int first_torch_layer = 14;    // comm
constexpr int tools_level = 100;
constexpr int unknown_level = -1;
constexpr int umbrella_level = 99;
constexpr int outside = -2;  // not our file

int layer_level(std::string_view name) {
  const auto found = std::find(layers.begin(), layers.end(), name);
  return found == layers.end() ? unknown_level : static_cast<int>(found - layers.begin());
}

/// The level of a path such as "tessera/nn/linear.h".
int level_of(const std::string& path) {
  if (path == "tessera/tessera.h" || path == "tessera/faces.h") return umbrella_level;
  if (path.starts_with("tessera/")) {
    const auto end = path.find('/', 8);
    return end == std::string::npos ? unknown_level : layer_level(std::string_view(path).substr(8, end - 8));
  }
  if (path.starts_with("tools/")) return tools_level;
  return outside;
}

bool is_program(const std::string& path) {
  return path.starts_with("tools/") && !path.starts_with("tools/tessera/torch/");
}

bool is_torch_free(const std::string& path) {
  const int level = level_of(path);
  return (level >= 0 && level < first_torch_layer) || is_program(path);
}

bool starts_with_any(const std::string& text, std::initializer_list<const char*> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(), [&](const char* b) { return text.starts_with(b); });
}

constexpr std::string_view features = "tessera/train/features/";

/// Whether both are in train/features and `target` is the header of a feature that `file` does not implement.
bool is_another_feature(const std::string& file, const std::string& target) {
  static const std::set<std::string> shared = {"features", "log_sums", "objective", "row_shares", "run_feature"};
  if (!file.starts_with(features) || !target.starts_with(features) || file == "tessera/train/features/features.cpp")
    return false;
  const std::string name = fs::path(target).stem().string();
  return name != fs::path(file).stem().string() && !shared.contains(name);
}

/// The rule that `file` breaks by including `target` (a path from the root, or the text between < and >), or "".
std::string broken_rule(const std::string& file, const std::string& target) {
  if (target.find("..") != std::string::npos) return "includes name the path from the root, without '..'";
  if (target == "torch/torch.h") return "torch/torch.h costs 21 s per file: include the headers that are needed";
  if (starts_with_any(target, {"fmt/", "spdlog/"}))
    return "LibTorch's wheel ships another fmt: no file includes fmt or spdlog";
  if ((target.starts_with("gloo/") || target.ends_with("/ProcessGroupGloo.hpp")) && file != "tessera/comm/gloo.cpp") {
    return "only tessera/comm/gloo.cpp includes Gloo";
  }
  if (starts_with_any(target, {"torch/", "ATen/", "c10/", "caffe2/"})) {
    return is_torch_free(file) ? "LibTorch's headers are not for the torch-free layers, the kernels and the program"
                               : "";
  }
  const int from = level_of(file), to = level_of(target);
  if (to == outside) {
    return starts_with_any(target, {"tests/", "bench/", "examples/"})
               ? "the library does not include tests, benchmarks or examples"
               : "";
  }
  if (to == unknown_level) return "unknown layer (the order is in docs/architecture.md)";
  if (from == umbrella_level) return to == tools_level ? "the umbrella does not include the tools" : "";
  if (to == umbrella_level && from != tools_level)
    return "the umbrella tessera/tessera.h is for users, not for the layers";
  if (is_program(file) && to != tools_level && to >= first_above_program) {
    return "the program is torch-free; what needs tensors belongs to tools/tessera/torch";
  }
  if (to == layer_level("c") && from != to && from != tools_level)
    return "the C interface is for programs without us: no layer includes it";
  if (file.starts_with("tessera/checkpoint/") && target.starts_with("tessera/launch/"))
    return "checkpoint knows tensors and files, and nothing of the launcher";
  if (file.starts_with("tessera/train/core/") && target.starts_with("tessera/train/loop/"))
    return "train/core is what the program's loop and the faces share: it knows neither";
  if (file.starts_with(features) && target.starts_with("tessera/train/loop/"))
    return "a run reaches its features through their hooks: they do not know the loop";
  if (is_another_feature(file, target)) return "no feature of a run knows another one: only features.cpp has them all";
  if (to <= from) return "";
  if (to == tools_level) return "the library does not include the tools";
  return "an include arrow only goes down: " + std::string(layers[static_cast<std::size_t>(to)]) + " is above " +
         std::string(layers[static_cast<std::size_t>(from)]);
}

struct SourceFile {
  std::string path;  ///< from the root, with '/'
  std::vector<std::string> lines;
};

std::vector<SourceFile> read_tree(const fs::path& root) {
  static const std::set<std::string> extensions = {".h", ".hpp", ".cpp", ".cc", ".c", ".cu", ".cuh", ".inc"};
  std::vector<SourceFile> files;
  for (const char* top : {"tessera", "tools"}) {
    if (!fs::is_directory(root / top)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
      if (!entry.is_regular_file() || !extensions.count(entry.path().extension().string())) continue;
      SourceFile file{fs::relative(entry.path(), root).generic_string(), {}};
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) file.lines.push_back(line);
      files.push_back(std::move(file));
    }
  }
  std::sort(files.begin(), files.end(), [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

/// A quoted "file.h" is looked up in the folder of the including file first, then from the root like <file.h>.
std::string resolve(const fs::path& root, const SourceFile& file, const std::string& target, bool quoted) {
  const fs::path beside = fs::path(file.path).parent_path() / target;
  return quoted && target.find("..") == std::string::npos && fs::exists(root / beside) ? beside.generic_string()
                                                                                       : target;
}

void check_file(const fs::path& root, const SourceFile& file, std::vector<std::string>& violations) {
  static const std::regex include(R"(^\s*#\s*(?:include|include_next|import)\s*([<"])([^>"]+)[>"])");
  const auto report = [&](std::size_t line, const std::string& what) {
    violations.push_back(file.path + ":" + std::to_string(line) + ": " + what);
  };
  if (level_of(file.path) == unknown_level) report(1, "unknown layer (the order is in docs/architecture.md)");
  bool in_comment = false;
  for (std::size_t i = 0; i < file.lines.size(); ++i) {
    const std::string& line = file.lines[i];
    std::smatch match;
    if (!in_comment && line.find('#') != std::string::npos && std::regex_search(line, match, include)) {
      const std::string target = resolve(root, file, match[2], match[1] == "\"");
      const std::string rule = broken_rule(file.path, target);
      if (!rule.empty()) report(i + 1, "<" + target + ">: " + rule);
    }
    const auto open = line.rfind("/*"), close = line.rfind("*/");
    if (open != std::string::npos && (close == std::string::npos || close < open) && line.find("//") > open)
      in_comment = true;
    if (close != std::string::npos && (open == std::string::npos || open < close)) in_comment = false;
  }
}

}  // namespace

std::vector<std::string> check_tree(const std::string& root) {
  const std::vector<SourceFile> files = read_tree(root);
  if (files.empty()) throw std::runtime_error("no source file under " + root + "/tessera: nothing was checked");
  std::vector<std::string> violations;
  for (const SourceFile& file : files) check_file(root, file, violations);
  return violations;
}

}  // namespace tessera::structure
