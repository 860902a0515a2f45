#pragma once
/// \file
/// config/hf/: Hugging Face's Trainer as a front end: the arguments of TrainingArguments (transformers 4 and 5) and of
/// its scripts (run_clm.py, run_mlm.py), as flags and in files.
///
/// Names and meanings: transformers/training_args.py and hf_argparser.py of 4.57 and 5.23. Most arguments are settings
/// of ours with the same name (fields.h); training_args_rows() specifies how each one is handled. An ignored or refused
/// argument that has its default value (push_to_hub: false) is skipped, since files written by transformers contain all
/// arguments.

#include <tessera/config/core/translation.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::config {

/// Every argument, and the keys of object arguments: "accelerator_config.split_batches".
std::span<const KeyRow> training_args_rows();

/// The form of an argument on a command line: one word, a boolean, several words, or an object (JSON, or a file's
/// path).
enum class ArgumentShape { word, boolean, words, object };

/// Stands for the program of names that TRL shares with others (ms-swift): a note mentions TRL's defaults, which are
/// not applied.
inline constexpr std::string_view trl_or_another = "TRL or another";

struct TrainingArgument {
  KeyRow row;
  ArgumentShape shape = ArgumentShape::word;
  std::string_view unset = {};    ///< ignored, refused: values without effect, separated by '|': "-1|0"
  std::string_view program = {};  ///< the only program that has it; its defaults apply to settings not given otherwise
};
/// The argument with that name (underscores); nullptr if transformers has none.
const TrainingArgument* find_training_argument(std::string_view name);

/// The argument or setting that an unknown name (underscores) may mean: another program's synonym, or the nearest name;
/// with `among_megatron`, Megatron's arguments are candidates, too.
std::optional<std::string> meant_by(const std::string& name, bool among_megatron = false);

/// The argument of transformers, TRL or a script that begins with `name`, as completed by argparse; nullopt if none
/// does, or several arguments or settings do.
std::optional<std::string> completed(std::string_view name);

/// An argument without effect, and the reason.
struct WithoutEffect {
  std::string what;  ///< "--dataloader_num_workers", "dataloader_num_workers (line 4)"
  std::string why;
};

/// The settings that an argument and its value stand for.
struct ArgumentMeaning {
  std::vector<std::pair<std::string, std::string>> settings;  ///< our settings, with a flag's text
  std::vector<std::pair<std::string, std::string>> implied;   ///< the same, used unless given otherwise
  std::string_view program = {};              ///< program whose defaults `implied` contains; empty: the argument's own
  std::string_view off = {};                  ///< setting that stays 0, regardless of other sources
  std::vector<WithoutEffect> without_effect;  ///< parts of the value without effect; an empty `what` means all of it
  /// appended to the argument's name: ": nothing is uploaded: ...", " is 'x'; ..."
  std::string problem;
};
/// `text`: the words joined by blanks or commas, or JSON of an object (or a file's name). Does not check the settings'
/// rules.
ArgumentMeaning meaning_of(const TrainingArgument& argument, const std::string& text);

/// One warning for the whole list, grouped by reason: "--a, --b: why; --c: why". Empty for an empty list.
std::string without_effect_note(const std::vector<WithoutEffect>& list);

/// The entries that this argument, given as `name`, adds to Resolved::implied.
std::vector<Implied> implied_by(const TrainingArgument& argument, const ArgumentMeaning& meaning,
                                const std::string& name, const Origin& origin);
/// Sets those settings of `resolved.implied` that are not given; apply() may overwrite them later.
void apply_implied(Resolved& resolved);
/// Adds a note about the implied settings in effect; an implied bf16 is dropped if fp16 has been given since.
void settle_implied(Resolved& resolved);

/// A member of a file of arguments.
struct FileArgument {
  std::string key;
  Value value;
};
/// Translates such members, also when they were found in a file of a different form (tessera_file.h).
Translation read_file_arguments(const std::string& path, const std::vector<FileArgument>& arguments,
                                const Resolved& so_far, Problems& problems);

/// Returns the words of a .args file, as HfArgumentParser reads it: blanks and line ends separate words, quotes and
/// backslashes work as in a shell, and a word that begins with '#' starts a comment that ends with the line. They are
/// placed before the typed words, which take precedence. An unreadable file, an unterminated quote or more than 256 KiB
/// is a problem.
std::vector<FileWord> read_file_words(const std::string& path, Problems& problems);
/// The same for a file's text. Throws InputError.
std::vector<FileWord> split_file_words(std::string_view text, const std::string& path);

/// Reads a settings file of at most 256 KiB, JSON or (.yaml, .yml) YAML. Throws InputError; `flag` is the flag that
/// named the file. `repeated`: see parse_yaml (base/yaml.h).
Value read_settings_file(const std::string& path, const std::string& flag,
                         std::vector<std::string>* repeated = nullptr);

/// If --compat is given, sets that version's defaults for settings not given. For words whose meaning differs between
/// v4 and v5, see sharding.h.
void apply_compat(Resolved& resolved);

/// The defaults of a program (TRL, Qwen, LLaVA) that come with one of its arguments; `text`: its value.
std::vector<std::pair<std::string, std::string>> defaults_beside(std::string_view program, std::string_view argument,
                                                                 const std::string& text);

/// A default that differs between transformers 4, transformers 5 and ours.
struct CompatDefault {
  std::string_view setting, v4, v5;
};
std::span<const CompatDefault> compat_defaults();

}  // namespace tessera::config
