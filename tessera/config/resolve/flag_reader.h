#pragma once
/// \file
/// The command line of `tessera train`, and the .args file that it may name: flags become settings.

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
  /// `beside_megatron`: the words are what is left of Megatron's arguments.
  FlagReader(Resolved& resolved, Problems& problems, bool beside_megatron = false)
      : resolved_(resolved), problems_(problems), beside_megatron_(beside_megatron) {}

  /// The given words, then those of the .args file they name, which the given ones beat.
  void read(std::vector<FileWord> given);

 private:
  void read_words(std::vector<FileWord> words);
  /// What must be known before the first word is read: --unknown, and whose the unknown ones are.
  void look_ahead();
  void read_one();
  void positional(const FileWord& word);
  bool value_follows() const;
  /// The value of a flag from the words after it; false: it is missing, which has been said.
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
  std::vector<FileWord> words_;  ///< being read
  std::size_t next_ = 0;
  SourcePos where_;  ///< the flag being read; no file: typed
  std::map<std::string, std::pair<std::string, std::string>>
      given_;  ///< setting -> flag as typed, text; of the words being read
  std::set<std::string> typed_settings_, typed_names_, names_;
  std::vector<WithoutEffect> without_effect_;
  std::string bare_deepspeed_;  ///< DeepSpeed's own switch --deepspeed, which its --deepspeed_config explains
  const bool beside_megatron_;
  std::size_t unknown_ = 0, looked_up_ = 0;
  bool passes_over_ = false;  ///< --unknown warn
  bool strict_ = false;       ///< --unknown refuse
  bool foreign_ = false;      ///< the words are another program's, which has been said
  std::vector<std::string> passed_over_;
};

}  // namespace tessera::config
