#pragma once
/// \file
/// The common part of all front ends (TrainingArguments, accelerate's YAML and environment, DeepSpeed's JSON,
/// fsdp_config, our own file): they translate another system's keys into our settings (fields.h) and have no other
/// effect.
///
/// A front end is a table of KeyRow (from which docs/configuration.md and the tests' rows are generated) and a reader
/// that walks a Value with a Translator. All problems of a file are collected, each with file and line; nothing is
/// ignored silently.

#include <tessera/base/value.h>
#include <tessera/config/core/origin.h>
#include <tessera/config/core/problems.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::config {

struct Resolved;

/// How a key of another system is handled.
enum class Effect {
  acts,     ///< becomes the setting (or settings) named in its row
  ignored,  ///< accepted without effect, for the reason in the row; causes a warning
  refused,  ///< an error, with the reason and the remedy in the row
};

struct KeyRow {
  std::string_view key;      ///< spelled as in its system, with dots below a section: "zero_optimization.stage"
  std::string_view setting;  ///< our setting (fields.h), the first if there are several; empty unless it acts
  Effect effect = Effect::acts;
  std::string_view why = {};  ///< ignored, refused: the reason (and remedy); acts: special behaviour, if any
};

/// A setting from a file or an environment variable.
struct FileSetting {
  std::string name;   ///< the field (fields.h)
  std::string text;   ///< the value as a flag's text
  std::string key;    ///< spelled as in the source
  SourcePos where;    ///< the value, an environment variable or a flag
  bool wins = false;  ///< overrides other sources, flags included, as in the system it comes from
};

/// A word of a command line; without a file in `where` it was typed.
struct FileWord {
  std::string text;
  SourcePos where = {};
};
std::vector<FileWord> typed_words(const std::vector<std::string>& words);

struct Translation {
  std::vector<FileSetting> settings;  ///< in the order of the file, each field once
  std::vector<Implied> implied;
  std::vector<std::string> notes;  ///< "fsdp.json:4: use_orig_params has no effect: ...": warnings
};

/// "fsdp.json:14"; without a line: "environment FSDP_VERSION" for a variable, "--num-layers" for a flag; without a
/// file: "(program)".
std::string file_and_line(const SourcePos& where);
SourcePos environment_position(const std::string& variable);
/// The variable in `environment`, or in the process's own environment if that is empty.
std::optional<std::string> look_up(const GetEnvironment& environment, const std::string& variable);
SourcePos flag_position(const std::string& flag);

/// A scalar, or a list of words joined by commas, as the text of a flag; nullopt for objects and other lists.
/// `integer`: 1e8, "1e8" and 100000000.0 become "100000000" (YAML 1.1 reads 1e8 as text).
std::optional<std::string> as_text(const Value& value, bool integer);
/// Whether the value is false, "no", "NO", "off" or 0 in any spelling: YAML 1.1's readings of an unquoted no.
bool means_no(const Value& value);
/// Whether the value counts as not given: null, "none", "null" or "".
bool means_nothing(const Value& value);

class Translator {
 public:
  explicit Translator(Problems& problems) : problems_(problems) {}

  /// Sets the setting, checked by its rule. A second key with the same value is accepted; a different value is a
  /// problem.
  void give(std::string_view setting, const std::string& key, const Value& value);
  void give(std::string_view setting, const std::string& key, const std::string& text, const SourcePos& where);
  /// Makes the value given to `setting` override flags.
  void let_win(std::string_view setting);
  /// The text given to `setting` so far.
  std::optional<std::string> given(std::string_view setting) const;

  /// Adds "FILE:LINE:COLUMN: ..." to the problems; the settings in `doubtful` are not checked further.
  void problem(const SourcePos& where, const std::string& what, std::initializer_list<std::string_view> doubtful = {});
  /// Adds the warning "FILE:LINE: KEY has no effect: WHY".
  void ignored(const Value& value, const std::string& key, std::string_view why);
  /// Adds a warning "FILE:LINE: ...".
  void note(const SourcePos& where, const std::string& what);
  /// Adds the problem "unknown key KEY; did you mean ...?", which suggests one of `rows` (their part after the
  /// section's dot, when `section` is given).
  void unknown(const std::string& key, const Value& value, std::span<const KeyRow> rows, std::string_view section = {});

  /// The row of section.key; nullptr if absent.
  static const KeyRow* find(std::span<const KeyRow> rows, std::string_view section, std::string_view key);
  /// Applies the row: sets, ignores or refuses the value. Null values are skipped.
  void follow(const KeyRow& row, const std::string& key, const Value& value);

  Translation take() { return std::move(out_); }

 private:
  Problems& problems_;
  Translation out_;
};

/// Sets each translated value that no stronger source has given, or that wins, with file and line as its origin;
/// appends notes. Settings implied by an argument that a stronger source gave are dropped.
void apply(Translation translation, Resolved& resolved);

}  // namespace tessera::config
