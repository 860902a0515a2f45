#pragma once
/// \file
/// Reads the command line of `tessera train`, and a .args file that it names, into settings.

#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/hf/training_args.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tessera::config {

class FlagReader {
 public:
  /// `beside_megatron`: the words are what remains after Megatron's arguments were removed.
  FlagReader(Resolved& resolved, Problems& problems, bool beside_megatron = false)
      : resolved_(resolved), problems_(problems), beside_megatron_(beside_megatron) {}

  /// Reads the given words and those of the .args file they name; the given ones take precedence.
  void read(std::vector<FileWord> given);

 private:
  void read_words(std::vector<FileWord> words);
  /// Determines, before the first word is read, --unknown and the program that unknown words belong to.
  void look_ahead();
  void read_one();
  void positional(const FileWord& word);
  bool value_follows() const;
  /// Reads a flag's value from the words after it. Returns false if it is missing, after reporting that.
  bool take_value(const std::string& flag, const TrainingArgument* argument, const Field* field, std::string& text);
  void follow(const TrainingArgument& argument, const std::string& flag, const std::string& text);
  void store(std::string_view setting, const std::string& flag, const std::string& text);
  void unknown(const std::string& flag, bool has_value);
  std::optional<std::string> meant(const std::string& name) const;
  void finish();

  /// "--flag", or "run.args:3: --flag".
  std::string said(const std::string& flag) const;
  template <class... Parts>
  void problem(const std::string& flag, const Parts&... parts) {
    problems_.lines.push_back(concat(said(flag), parts...));
  }

  Resolved& resolved_;
  Problems& problems_;
  std::vector<FileWord> words_;  ///< the words being read
  std::size_t next_ = 0;
  SourcePos where_;  ///< position of the flag being read; without a file: typed
  std::map<std::string, std::pair<std::string, std::string>>
      given_;  ///< setting -> (flag as typed, its text), for the words being read
  std::set<std::string> typed_settings_, typed_names_, names_;
  std::vector<WithoutEffect> without_effect_;
  std::string bare_deepspeed_;  ///< DeepSpeed's own switch --deepspeed, which goes with its --deepspeed_config
  const bool beside_megatron_;
  std::size_t unknown_ = 0, looked_up_ = 0;
  bool passes_over_ = false;  ///< --unknown warn
  bool strict_ = false;       ///< --unknown refuse
  bool foreign_ = false;      ///< the words belong to another program, which has been reported
  std::vector<std::string> passed_over_;
};

}  // namespace tessera::config
