#include "size_rules.h"

#include <algorithm>
#include <iterator>
#include <regex>

#include "tree.h"

namespace tessera::structure {
namespace {

constexpr std::size_t most_lines = 60;
constexpr std::ptrdiff_t most_members = 20;

std::size_t indentation(const std::string& line) { return std::min(line.find_first_not_of(' '), line.size()); }

/// Applies `check` to every source under tessera/train; returns the findings.
template <class Check>
std::vector<std::string> checked(const std::string& root, const Check& check) {
  std::vector<std::string> found;
  for (const std::string& path : sources(root))
    if (path.starts_with("tessera/train/")) check(path, lines_of(root, path), found);
  return found;
}

}  // namespace

std::vector<std::string> long_functions(const std::string& root) {
  static const std::regex block(R"( *(\} )?(namespace|if|for|while|do|switch|else|try|catch)\b.*)");
  return checked(root,
                 [](const std::string& path, const std::vector<std::string>& lines, std::vector<std::string>& found) {
                   for (std::size_t end = 0; end < lines.size(); ++end) {
                     const std::size_t columns = indentation(lines[end]);
                     if (lines[end].substr(columns) != "}") continue;
                     std::size_t begin = end;
                     while (begin > 0 && (begin == end || lines[begin].empty() || indentation(lines[begin]) > columns))
                       --begin;
                     if (end - begin + 1 <= most_lines || std::regex_match(lines[begin], block)) continue;
                     found.push_back(at(path, begin) + "a function of " + std::to_string(end - begin + 1) +
                                     " lines; a part of a run has at most 60");
                   }
                 });
}

std::vector<std::string> large_classes(const std::string& root) {
  static const std::regex head(R"( *class \w+[^;]*\{)"), member(R"(\b[a-z]\w*_( = [^;,]*[,;]|[;,{]))");
  return checked(
      root, [](const std::string& path, const std::vector<std::string>& lines, std::vector<std::string>& found) {
        for (std::size_t begin = 0; begin < lines.size(); ++begin) {
          if (!std::regex_match(lines[begin], head)) continue;
          const std::size_t columns = indentation(lines[begin]);
          std::ptrdiff_t members = 0;
          for (std::size_t i = begin + 1; i < lines.size() && indentation(lines[i]) > columns; ++i) {
            while (i + 1 < lines.size() && lines[i].empty()) ++i;
            const std::string code = lines[i].substr(0, lines[i].find("//"));
            if (indentation(lines[i]) != columns + 2 || code.find(") ") != std::string::npos) continue;  // a function
            members += std::distance(std::sregex_iterator(code.begin(), code.end(), member), std::sregex_iterator());
          }
          if (members > most_members)
            found.push_back(at(path, begin) + "a class of " + std::to_string(members) +
                            " data members; a part of a run has at most 20");
        }
      });
}

}  // namespace tessera::structure
