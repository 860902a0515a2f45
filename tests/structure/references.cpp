#include "references.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>

#include "tree.h"

namespace tessera::structure {

namespace {

namespace fs = std::filesystem;

bool is_any(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool is_code_name(std::string_view word) {
  for (const char* extension : {".h", ".cpp", ".cu", ".cuh"}) {
    if (word.ends_with(extension) && word.size() > std::string_view(extension).size()) return true;
  }
  return false;
}

/// Whether a part of the word is a placeholder: FOLDER, N, *, <name>, ${build}.
bool has_placeholder(const std::string& word) {
  if (word.find_first_of("*{}<>$") != std::string::npos || word.find("...") != std::string::npos) return true;
  for (const std::string& part : split(word, '/')) {
    const std::string stem = part.substr(0, part.find_first_of("._"));
    const bool capitals = std::none_of(stem.begin(), stem.end(), [](unsigned char c) { return std::islower(c); });
    if (!stem.empty() && capitals && stem != "README" && stem != "CONTRIBUTING") return true;
  }
  return false;
}

class Tree {
 public:
  explicit Tree(const std::string& root) : root_(root) {
    for (const std::string& path : sources(root)) {
      paths_.push_back("/" + path);
      names_.insert(fs::path(path).filename().string());
    }
    for (const std::string& line : lines_of(root, "Makefile")) {
      const auto colon = line.find(':');
      if (colon == std::string::npos || line.empty() || std::isspace(static_cast<unsigned char>(line[0]))) continue;
      targets_.insert(line.substr(0, colon));
    }
  }

  /// The problem with a word; "" if it has none.
  std::string problem(const std::string& word) const {
    if (word == "DESIGN" || word.ends_with("DESIGN.md")) return word + ": readers have docs/ only";
    if (has_placeholder(word)) return "";
    const std::string first = word.substr(0, word.find('/'));
    const bool folders = first.size() < word.size();
    if (word.ends_with("_tests") && word.find('.') == std::string::npos) {
      const std::string name = word.substr(word.rfind('/') + 1);
      if (is_any(name, {"run_tests", "tessera_tests"})) return "";
      if (!exists("tests/" + name.substr(0, name.size() - 6))) return word + ": there is no folder of such tests";
      return "";
    }
    if (folders && is_any(first, {"tessera", "tests", "tools", "docs", "bench", "examples", "cmake"})) {
      for (const char* extension : {"", ".h", ".cpp", ".sh", ".py"}) {
        if (exists(word + extension)) return "";
      }
      return word + " is not there";
    }
    if (!is_code_name(word)) return "";
    if (!folders) {
      const bool known = names_.count(word) > 0 || is_any(word, {"nccl.h", "torch.h"});
      return known ? "" : word + ": no file of the tree has this name";
    }
    if (is_any(first, {"torch", "ATen", "aten", "c10", "ggml", "gloo", "linux"})) return "";
    const bool known =
        std::any_of(paths_.begin(), paths_.end(), [&](const std::string& path) { return path.ends_with("/" + word); });
    return known ? "" : word + " is not there";
  }

  bool has_target(const std::string& name) const { return targets_.count(name) > 0; }
  bool exists(const std::string& path) const { return fs::exists(fs::path(root_) / path); }

 private:
  std::string root_;
  std::vector<std::string> paths_;  // with a leading /
  std::set<std::string> names_, targets_;
};

bool belongs_to_word(char c) {
  constexpr std::string_view others = "_./*{}<>$-";
  return std::isalnum(static_cast<unsigned char>(c)) || others.find(c) != others.npos;
}

/// The words of a text that may be file names, without a final full stop.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && belongs_to_word(text[end])) ++end;
    std::string word = text.substr(i, end - i);
    const bool part_of_more = i > 0 && (text[i - 1] == ':' || text[i - 1] == '@' || text[i - 1] == ',');
    if (word.ends_with("/...")) word.clear();
    while (!word.empty() && std::string_view(".-").find(word.back()) != std::string_view::npos) word.pop_back();
    while (word.starts_with("../")) word.erase(0, 3);
    while (word.starts_with("<")) word.erase(0, 1);
    while (word.ends_with(">")) word.pop_back();
    if (!word.empty() && word.front() != '_' && !part_of_more) words.push_back(word);
    i = std::max(end, i + 1);
  }
  return words;
}

void check_text(const Tree& tree, const std::string& where, const std::string& text, std::vector<std::string>& found) {
  for (const std::string& word : words_of(text)) {
    if (const std::string problem = tree.problem(word); !problem.empty()) found.push_back(where + problem);
  }
  const std::string make = "`make ";
  for (auto i = text.find(make); i != std::string::npos; i = text.find(make, i + 1)) {
    std::size_t end = i + make.size();
    const auto in_name = [](unsigned char c) { return std::islower(c) || std::isdigit(c) || c == '-'; };
    while (end < text.size() && in_name(static_cast<unsigned char>(text[end]))) ++end;
    const std::string target = text.substr(i + make.size(), end - i - make.size());
    if (!target.empty() && !tree.has_target(target)) found.push_back(where + "make has no target " + target);
  }
}

void check_links(const Tree& tree, const std::string& path, const std::string& where, const std::string& text,
                 std::vector<std::string>& found) {
  for (auto i = text.find("]("); i != std::string::npos; i = text.find("](", i + 1)) {
    std::string link = text.substr(i + 2, text.find(')', i) - i - 2);
    link = link.substr(0, link.find('#'));
    if (link.empty() || link.find("://") != std::string::npos) continue;
    if (!tree.exists((fs::path(path).parent_path() / link).generic_string()))
      found.push_back(where + "the link " + link + " leads nowhere");
  }
}

std::vector<std::string> documents(const std::string& root) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.path().extension() == ".md") found.push_back(entry.path().filename().string());
  }
  for (const char* folder : {"docs", "tests"}) {
    if (!fs::is_directory(fs::path(root) / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(root) / folder)) {
      if (entry.path().extension() == ".md") found.push_back(fs::relative(entry.path(), root).generic_string());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::vector<std::string> stale_references(const std::string& root) {
  const Tree tree(root);
  std::vector<std::string> found;
  for (const std::string& path : documents(root)) {
    const std::vector<std::string> lines = lines_of(root, path);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      check_text(tree, at(path, i), lines[i], found);
      check_links(tree, path, at(path, i), lines[i], found);
    }
  }
  for (const std::string& path : sources(root)) {
    if (path.starts_with("tests/structure/")) continue;  // these files name missing files on purpose
    const std::vector<std::string> lines = lines_of(root, path);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::string text = path.ends_with(".py") ? lines[i] : comment_of(path, lines[i]);
      if (!text.empty()) check_text(tree, at(path, i), text, found);
    }
  }
  return found;
}

}  // namespace tessera::structure
