#include "text_rules.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "tree.h"

namespace tessera::structure {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_columns = 120;
constexpr std::size_t most_lines = 600;
constexpr int most_files = 50;

std::size_t columns(const std::string& line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

/// Whether the opening comment of the file (after #pragma once, #! and blank lines) gives a reason for its length.
bool says_why_it_is_long(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    const auto begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos || line == "#pragma once") continue;
    if (line[begin] != '#' && line.compare(begin, 2, "//") != 0) return false;
    if (line.find("Long because:") != std::string::npos) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> long_files(const std::string& root) {
  std::vector<std::string> found;
  for (const std::string& path : sources(root)) {
    const std::vector<std::string> lines = lines_of(root, path);
    if (lines.size() > most_lines && !says_why_it_is_long(lines))
      found.push_back(at(path, most_lines) + "the file has " + std::to_string(lines.size()) +
                      " lines: over 600 its opening comment gives a reason that begins with \"Long because:\"");
  }
  return found;
}

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

std::vector<std::string> unexplained_folders(const std::string& root) {
  std::map<std::string, bool> explained;
  for (const std::string& path : sources(root)) {
    if (!path.starts_with("tessera/") || !path.ends_with(".h")) continue;
    const std::string folder = fs::path(path).parent_path().generic_string();
    if (folder == "tessera") continue;
    const std::string name = folder.substr(folder.rfind('/') + 1) + "/: ";
    bool& found = explained[folder];
    for (const std::string& line : lines_of(root, path)) {
      if (line.starts_with("#include")) break;  // end of the opening comment
      const auto place = line.find(name);
      found = found || (line.starts_with("/// ") && place != std::string::npos && line.find(' ', 4) > place);
    }
  }
  std::vector<std::string> result;
  for (const auto& [folder, found] : explained) {
    if (!found) result.push_back(folder + ": no header begins with a line /// FOLDER/: what it is for");
  }
  return result;
}

std::vector<std::string> headless_comments(const std::string& root) {
  std::vector<std::string> found;
  for (const std::string& path : sources(root)) {
    if (path.ends_with(".py") || path.ends_with(".sh") || path.ends_with(".cmake") || path.ends_with(".txt")) continue;
    const std::vector<std::string> lines = lines_of(root, path);
    bool in_comment = false;  // whether the previous line ends in a comment, which may continue with "of"
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const std::string comment = comment_of(path, lines[i]);
      const auto begin = lines[i].find_first_not_of(' ');
      const bool alone = begin != std::string::npos && lines[i].compare(begin, 2, "//") == 0;
      const bool goes_on = alone && in_comment;
      if (!goes_on && (comment.starts_with("of ") || comment.starts_with("Of ")))
        found.push_back(at(path, i) + "the comment begins with \"of\": what, then?");
      in_comment = !comment.empty();
    }
  }
  return found;
}

std::vector<std::string> throwing_readers(const std::string& root) {
  std::vector<std::string> found;
  for (const std::string& path : sources(root)) {
    if (!path.starts_with("tessera/") && !path.starts_with("tools/")) continue;
    const std::vector<std::string> lines = lines_of(root, path);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].find("istreambuf_iterator") != std::string::npos)
        found.push_back(at(path, i) + "use read_file() or read_file_or_empty() of tessera/base/file.h");
    }
  }
  return found;
}

std::vector<std::string> wrong_walks(const std::string& root) {
  constexpr std::size_t wanted = 6, most = 5;
  const std::string path = "CONTRIBUTING.md", title = "### Walk: ";
  const std::vector<std::string> lines = lines_of(root, path);
  std::vector<std::string> found;
  std::size_t walks = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!lines[i].starts_with(title)) continue;
    ++walks;
    std::set<std::string> files;
    for (std::size_t k = i + 1; k < lines.size() && !lines[k].starts_with("#"); ++k) {
      for (auto quote = lines[k].find('`'); quote != std::string::npos;) {
        const auto end = lines[k].find('`', quote + 1);
        if (end == std::string::npos) break;
        const std::string word = lines[k].substr(quote + 1, end - quote - 1);
        if (word.find('/') != std::string::npos && fs::is_regular_file(fs::path(root) / word)) {
          std::string pair = word.substr(0, word.rfind('.'));  // a header and its source count as one file
          files.insert(pair);
        }
        quote = lines[k].find('`', end + 1);
      }
    }
    if (files.empty() || files.size() > most)
      found.push_back(at(path, i) + "the walk names " + std::to_string(files.size()) + " files; 1 to 5 are right");
  }
  if (walks != wanted) found.push_back(path + " has " + std::to_string(walks) + " walks; six are promised");
  return found;
}

}  // namespace tessera::structure
