// Cases of all formats, end to end: tests/config/cases/*.txt (format: case_file.h).

#include <gtest/gtest.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tests/own_folder.h>
#include <tests/paths.h>

#include <cstdlib>
#include <regex>

#include "case_file.h"

namespace tessera::config::testing {
namespace {

const std::string folder = tessera::testing::source_path("tests/config/cases");

std::vector<std::string> case_files() {
  std::vector<std::string> paths;
  for (const std::string& name : list_folder(folder))
    if (name.ends_with(".txt")) paths.push_back(path_join(folder, name));
  return paths;
}

TEST(Cases, ComeOutWordForWord) {
  const bool writing = std::getenv("TESSERA_WRITE_CASES") != nullptr;
  std::size_t count = 0;
  for (const std::string& path : case_files()) {
    std::vector<Case> cases = read_cases(path);
    for (Case& c : cases) {
      const tessera::testing::InEmptyFolder inside;  // a case may write into the current folder
      const std::vector<std::string> came = outcome(c);
      if (writing) c.expected = came;
      EXPECT_EQ(join(came, "\n"), join(c.expected, "\n")) << path << ":" << c.line << ": " << c.name;
      EXPECT_FALSE(c.expected.empty()) << path << ":" << c.line << ": the case expects nothing";
      ++count;
    }
    if (writing) write_file_atomically(path, cases_text(cases, introduction_of(path)));
  }
  EXPECT_GE(count, 200u);
}

bool has_word_of(const std::string& message, const Case& c) {
  static const std::regex word("[A-Za-z_][A-Za-z0-9_]{2,}");
  std::string given = c.flags_text;
  for (const auto& [name, text] : c.files) given += " " + text;
  for (const auto& [name, value] : c.environment) given += " " + name;
  for (std::sregex_iterator at(message.begin(), message.end(), word), end; at != end; ++at)
    if (given.find(at->str()) != std::string::npos || find_field(at->str()) != nullptr) return true;
  return false;
}

/// A remedy: the allowed values, the likely intended word, or an alternative.
bool has_remedy(const std::string& message) {
  static const std::regex remedy(
      "must be|must refer to|must say|must not|must contain|must select|is missing; it|check the|list each|is not "
      "closed|it takes|"
      " takes |did you mean|keep one|keep it|leave |give |given with|use |write "
      "|choose |make |the keys (?:there )?are|the "
      "words are|the types are|needs |expected|are supported|is supported|instead|say |put |remove |belongs|set "
      "|--help|lists all|at least|at most|"
      "one of|only with|runs on|greater than|it has |halves |has small states|its section is|: add it|look at the|no "
      "such file|fits |continue|divide|: correct|should be|switch to|multiply|shorter|the "
      "nearest is|= ");
  return std::regex_search(message, remedy);
}

// key, file:line, reason, remedy
TEST(Cases, NoMessageLacksWhatItTakesToActOnIt) {
  std::size_t problems = 0;
  for (const std::string& path : case_files())
    for (const Case& c : read_cases(path))
      for (const std::string& line : c.expected) {
        if (!line.starts_with("! ")) continue;
        const std::string message = line.substr(2), where = concat(path, ":", c.line, ": ", c.name, ": ", message);
        ++problems;
        EXPECT_TRUE(has_word_of(message, c)) << "names no key: " << where;
        EXPECT_TRUE(has_remedy(message)) << "gives no remedy: " << where;
        EXPECT_GT(message.size(), 25u) << "gives no reason: " << where;
        if (c.files.empty()) continue;
        // problems from a file name it with the line, unless a flag or variable is at fault
        bool located = message.starts_with("--") || message.starts_with("unknown flag") ||
                       message.find("environment ") != std::string::npos;
        for (const auto& [name, text] : c.files)
          located = located || std::regex_search(message, std::regex("(^|[^a-z])" + name + ":[0-9]+")) ||
                    message.find(name) != std::string::npos;
        EXPECT_TRUE(located) << "gives no location: " << where;
      }
  EXPECT_GE(problems, 100u);
}

}  // namespace
}  // namespace tessera::config::testing
