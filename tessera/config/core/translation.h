#pragma once
/// \file
/// What every front end (TrainingArguments, accelerate's YAML and environment, DeepSpeed's JSON, fsdp_config, our own
/// file) does: it translates keys of another system into settings of ours (fields.h), and acts on nothing.
///
/// A front end is a table of KeyRow (which also makes docs/configuration.md and the tests' rows) and a reader that
/// walks a Value with a Translator. All problems of a file are collected, each with file and line; nothing is dropped
/// without a word.

#include <tessera/base/value.h>
#include <tessera/config/core/origin.h>
#include <tessera/config/core/problems.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::config {

struct Resolved;

/// What becomes of a key of another system.
enum class Effect {
  acts,     ///< it becomes the setting (or settings) named in its row
  ignored,  ///< accepted; has nothing to do here, for the reason in the row: named in a warning when it is given
  refused,  ///< an error, for the reason and with the remedy in the row
};

struct KeyRow {
  std::string_view key;      ///< as it is written there, with dots below a section: "zero_optimization.stage"
  std::string_view setting;  ///< ours (fields.h); of several, the first; empty when it does not act
  Effect effect = Effect::acts;
  std::string_view why =
      {};  ///< ignored, refused: the reason (and the remedy); acts: what is special about it, if anything
};

/// One setting that a file or an environment variable gives.
struct FileSetting {
  std::string name;   ///< the field (fields.h)
  std::string text;   ///< as a flag would give it
  std::string key;    ///< as it is spelled there
  SourcePos where;    ///< the value, an environment variable or a flag
  bool wins = false;  ///< over what was given elsewhere, flags included: the system it comes from decides so
};

/// A word of a command line: typed, when its place names no file.
struct FileWord {
  std::string text;
  SourcePos where = {};
};
std::vector<FileWord> typed_words(const std::vector<std::string>& words);

struct Translation {
  std::vector<FileSetting> settings;  ///< in the order of the file, each field once
  std::vector<Implied> implied;
  std::vector<std::string> notes;  ///< "fsdp.json:4: use_orig_params has no effect: ...": each worth a warning
};

/// "fsdp.json:14"; without a line "environment FSDP_VERSION" of a variable, "--num-layers" of a flag; "(program)"
/// without a file.
std::string file_and_line(const SourcePos& where);
SourcePos environment_position(const std::string& variable);
/// The variable in `environment`, or in the process's own when that is empty.
std::optional<std::string> look_up(const GetEnvironment& environment, const std::string& variable);
SourcePos flag_position(const std::string& flag);

/// A scalar, or a list of words joined by commas, as the text of a flag; nullopt for objects and other lists.
/// `integer`: 1e8, "1e8" and 100000000.0 become "100000000" (YAML 1.1 reads 1e8 as text).
std::optional<std::string> as_text(const Value& value, bool integer);
/// false, "no", "NO", "off", 0 in any spelling: what YAML 1.1 makes of an unquoted no.
bool means_no(const Value& value);
/// Null, "none", "null", "": not given.
bool means_nothing(const Value& value);

class Translator {
 public:
  explicit Translator(Problems& problems) : problems_(problems) {}

  /// The setting gets the value, checked by its rule. A second key that says the same is fine; one that says otherwise
  /// is a problem.
  void give(std::string_view setting, const std::string& key, const Value& value);
  void give(std::string_view setting, const std::string& key, const std::string& text, const SourcePos& where);
  /// Makes what `setting` has been given win over flags.
  void let_win(std::string_view setting);
  /// The text that `setting` has been given so far.
  std::optional<std::string> given(std::string_view setting) const;

  /// "FILE:LINE:COLUMN: ..." among the problems; the settings named in `doubtful` are not judged any further.
  void problem(const SourcePos& where, const std::string& what, std::initializer_list<std::string_view> doubtful = {});
  /// "FILE:LINE: KEY has no effect: WHY".
  void ignored(const Value& value, const std::string& key, std::string_view why);
  /// A warning in other words: "FILE:LINE: ...".
  void note(const SourcePos& where, const std::string& what);
  /// "unknown key KEY; did you mean ...?" among `rows` (their part after the section's dot, when `section` is given).
  void unknown(const std::string& key, const Value& value, std::span<const KeyRow> rows, std::string_view section = {});

  /// The row of section.key; nullptr when there is none.
  static const KeyRow* find(std::span<const KeyRow> rows, std::string_view section, std::string_view key);
  /// Does what the row says by itself: gives, ignores or refuses the value. Null values are passed over.
  void follow(const KeyRow& row, const std::string& key, const Value& value);

  Translation take() { return std::move(out_); }

 private:
  Problems& problems_;
  Translation out_;
};

/// Settings that nothing stronger has given yet, and those that win, get the translation's values, with file and line
/// as their origin; notes are appended. What is implied beside an argument that something stronger gave is left out.
void apply(Translation translation, Resolved& resolved);

}  // namespace tessera::config
