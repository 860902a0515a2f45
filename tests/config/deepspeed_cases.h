#pragma once
/// \file
/// Shared by the tests of DeepSpeed's JSON: reads a file and flags; returns settings, notes and problems.

#include <tessera/config/deepspeed/deepspeed.h>
#include <tessera/config/resolve/resolve.h>

#include <gtest/gtest.h>
#include <tessera/base/text.h>

#include <map>
#include <string>
#include <vector>

namespace tessera::config {

using Words = std::vector<std::string>;
using Texts = std::map<std::string, std::string>;

struct Outcome {
  Texts settings;
  Words notes, problems;
};

/// The result of reading the file with these flags; `WORLD_SIZE` among the flags acts as --num_processes.
inline Outcome read_case(const std::string& json, const Words& flags = {}) {
  const auto nothing = [](const std::string&) { return std::optional<std::string>(); };
  Problems problems;
  const Resolved so_far = resolve_flags(flags, problems, nothing);
  problems.unknown = UnknownWords::refuse;
  EXPECT_EQ(problems.lines, Words{}) << join(flags, " ");
  Translation read = read_deepspeed(json, so_far, problems);
  Outcome outcome;
  for (const FileSetting& setting : read.settings) outcome.settings[setting.name] = setting.text;
  if (const auto norm = outcome.settings.find("max_grad_norm");  // see ClipsOnlyWhereItsFileSaysSo
      json.find("gradient_clipping") == std::string::npos && norm != outcome.settings.end() && norm->second == "0")
    outcome.settings.erase(norm);
  outcome.notes = read.notes;
  std::erase_if(outcome.notes, [](const std::string& note) {
    return note.find("gradient_clipping is not set: gradients are not clipped") != std::string::npos;
  });
  outcome.problems = problems.lines;
  return outcome;
}

/// The settings of a valid file without ineffective keys.
inline Texts settings(const std::string& json, const Words& flags = {}) {
  const Outcome outcome = read_case(json, flags);
  EXPECT_EQ(outcome.problems, Words{}) << json;
  EXPECT_EQ(outcome.notes, Words{}) << json;
  return outcome.settings;
}

inline std::string problem_of(const std::string& json, const Words& flags = {}) {
  const Words lines = read_case(json, flags).problems;
  return lines.size() == 1 ? lines.front() : concat(lines.size(), " problems: ", join(lines, " | "));
}

inline std::string note_of(const std::string& json, const Words& flags = {}) {
  const Outcome outcome = read_case(json, flags);
  EXPECT_EQ(outcome.problems, Words{}) << json;
  return outcome.notes.size() == 1 ? outcome.notes.front()
                                   : concat(outcome.notes.size(), " notes: ", join(outcome.notes, " | "));
}

}  // namespace tessera::config
