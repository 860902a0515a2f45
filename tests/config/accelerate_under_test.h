#pragma once
/// \file
/// The result of reading accelerate's file from a text, in a form that fits into a table of cases.

#include <gtest/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/accelerate/accelerate_file.h>

#include <map>
#include <string>
#include <vector>

namespace tessera::config::testing {

using Words = std::vector<std::string>;

struct Read {
  std::map<std::string, std::string> settings;
  Words notes, problems;
  std::string settings_text() const {
    Words parts;
    for (const auto& [name, text] : settings) parts.push_back(concat(name, "=", text));
    return join(parts, " ");
  }
};

inline Read read_of(const Translation& translation, const Problems& problems) {
  Read read;
  for (const FileSetting& setting : translation.settings) read.settings[setting.name] = setting.text;
  read.notes = translation.notes;
  read.problems = problems.lines;
  return read;
}

/// The file is named a.yaml.
inline Read read_yaml_text(const std::string& yaml) {
  Problems problems;
  problems.unknown = UnknownWords::refuse;
  Translation translation;
  try {
    translation = read_accelerate(parse_yaml(yaml, "a.yaml"), problems);
  } catch (const InputError& error) {
    problems.lines.push_back(error.what());
  }
  return read_of(translation, problems);
}

}  // namespace tessera::config::testing
