#pragma once
/// \file
/// Configuration cases as text (tests/config/cases/*.txt): the user's input and the complete result.
///
///     == unknown key of fsdp_config            name of the case
///     -- file a.yaml                           files, until the next line that begins with "--" or "=="
///     distributed_type: FSDP
///     -- environment FSDP_VERSION=2
///     -- flags --config_file a.yaml            words as in a shell, with 'single quotes'
///     -- expect
///     learning_rate = 0.001 (--learning_rate)  every setting that differs from its default
///     ! a.yaml:3:9: unknown key ...            every problem
///     ~ a.yaml:4: ... has no effect: ...       every warning
///
/// With TESSERA_WRITE_CASES=1 the test writes the actual result instead of comparing; review the difference with git
/// diff.

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tessera::config::testing {

struct Case {
  std::string name;
  std::vector<std::pair<std::string, std::string>> files;
  std::map<std::string, std::string> environment;
  std::string flags_text;
  std::vector<std::string> flags;
  std::vector<std::string> expected;
  int line = 0;  ///< line of the case's name
};

std::vector<Case> read_cases(const std::string& path);
/// The text of the file with the expectations of `cases`.
std::string cases_text(const std::vector<Case>& cases, const std::string& introduction);
/// The comment lines before the first case.
std::string introduction_of(const std::string& path);

/// The result of a case, in the form of `expected`. Writes the case's files into the current folder.
std::vector<std::string> outcome(const Case& c);

/// Words separated by blanks; 'single quotes' keep blanks within a word.
std::vector<std::string> words_of(const std::string& text);

}  // namespace tessera::config::testing
