#pragma once
/// \file
/// Reads flags and files of TrainingArguments for tests.

#include <gtest/gtest.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/hf/training_args.h>
#include <tessera/config/kinds/args_file.h>
#include <tessera/config/resolve/flag_reader.h>
#include <tessera/config/resolve/resolve.h>

#include <string>
#include <vector>

namespace tessera::config {

using Strings = std::vector<std::string>;

struct Read {
  Resolved resolved;
  Problems problems;

  Value value(std::string_view setting) const { return find_field(setting)->get(resolved.values); }
  std::string origin(std::string_view setting) const { return resolved.origin(setting).str(); }
  std::string only_note() const {
    return resolved.notes.size() == 1 ? resolved.notes.front()
                                      : concat(resolved.notes.size(), " notes: ", join(resolved.notes, " | "));
  }
  std::string only_problem() const {
    return problems.lines.size() == 1 ? problems.lines.front()
                                      : concat(problems.lines.size(), " problems: ", join(problems.lines, " | "));
  }
};

inline Read fresh() { return {}; }

inline Read flags(const Strings& words) {
  Read read = fresh();
  FlagReader(read.resolved, read.problems).read(typed_words(words));
  apply_implied(read.resolved);
  settle_implied(read.resolved);
  return read;
}

class TrainingArguments : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    const std::string path = path_join(folder_.path(), name);
    write_file_atomically(path, text);
    return path;
  }
  static Read read_file(const std::string& path) {
    Read read = fresh();
    apply(read_training_args_file(path, read.resolved, read.problems), read.resolved);
    apply_implied(read.resolved);
    settle_implied(read.resolved);
    return read;
  }
  /// The message without the folder's path.
  std::string bare(std::string text) const {
    const std::string prefix = folder_.path() + "/";
    for (std::size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix))
      text.erase(at, prefix.size());
    return text;
  }
  TemporaryFolder folder_;
};

}  // namespace tessera::config
