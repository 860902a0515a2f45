#pragma once
/// \file
/// Cases of configuration as text (tests/config/cases/*.txt): what a user gives, and every word of what comes of it.
///
///     == unknown key of fsdp_config            the case's name
///     -- file a.yaml                           files, until the next line that begins with "--" or "=="
///     distributed_type: FSDP
///     -- environment FSDP_VERSION=2
///     -- flags --config_file a.yaml            words as in a shell, with 'single quotes'
///     -- expect
///     learning_rate = 0.001 (--learning_rate)  every setting that has not its default
///     ! a.yaml:3:9: unknown key ...            every problem
///     ~ a.yaml:4: ... has no effect: ...       every warning
///
/// TESSERA_WRITE_CASES=1 makes the test write what came instead of comparing: the difference is then to be read with
/// git diff.

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
  int line = 0;  ///< line of its name
};

std::vector<Case> read_cases(const std::string& path);
/// The file again, with other expectations.
std::string cases_text(const std::vector<Case>& cases, const std::string& introduction);
/// The comment lines before the first case.
std::string introduction_of(const std::string& path);

/// What comes of a case, in the form of `expected`. Its files are written into the current folder.
std::vector<std::string> outcome(const Case& c);

/// Words between blanks; 'single quotes' hold blanks together.
std::vector<std::string> words_of(const std::string& text);

}  // namespace tessera::config::testing
