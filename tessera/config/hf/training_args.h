#pragma once
/// \file
/// config/hf/: Hugging Face's Trainer as a front end: the arguments of TrainingArguments (transformers 4 and 5) and of
/// its scripts (run_clm.py, run_mlm.py), as flags and in files.
///
/// Names and meanings: transformers/training_args.py and hf_argparser.py of 4.57 and 5.23. Most arguments are settings
/// of ours by the same name (fields.h); training_args_rows() says what becomes of every one. An ignored or refused
/// argument that is given as what it is by default (push_to_hub: false) is passed over: files that transformers wrote
/// hold all of them.

#include <tessera/config/core/translation.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::config {

/// Every argument, and "accelerator_config.split_batches": the keys of those that are objects.
std::span<const KeyRow> training_args_rows();

/// Whether a command line gives a boolean, one word, several words, or an object (JSON, or the path of a file with it).
enum class ArgumentShape { word, boolean, words, object };

/// The program of a name that TRL and others (ms-swift) have: no default is taken over, TRL's are only named.
inline constexpr std::string_view trl_or_another = "TRL or another";

struct TrainingArgument {
  KeyRow row;
  ArgumentShape shape = ArgumentShape::word;
  std::string_view unset = {};    ///< ignored, refused: the values that ask for nothing, between bars: "-1|0"
  std::string_view program = {};  ///< that alone has it: its defaults hold where nothing else is said
};
/// The argument of that name (underscores); nullptr when transformers has none.
const TrainingArgument* find_training_argument(std::string_view name);

/// The argument or setting that an unknown name (underscores) may stand for: what other programs call it, or the
/// nearest; of Megatron's arguments, too, when it is among them.
std::optional<std::string> meant_by(const std::string& name, bool among_megatron = false);

/// The argument of transformers, TRL or a script that begins with `name`, as argparse completes it; nullopt: there is
/// none, or several arguments or settings begin so.
std::optional<std::string> completed(std::string_view name);

/// What has no effect, and why.
struct WithoutEffect {
  std::string what;  ///< "--dataloader_num_workers", "dataloader_num_workers (line 4)"
  std::string why;
};

/// What an argument with a value asks for.
struct ArgumentMeaning {
  std::vector<std::pair<std::string, std::string>> settings;  ///< ours, with the text that a flag would give
  std::vector<std::pair<std::string, std::string>> implied;   ///< the same, where nothing else says otherwise
  std::string_view program = {};              ///< whose defaults `implied` are; empty: the argument's own
  std::string_view off = {};                  ///< the setting that stays 0, whatever else gives it
  std::vector<WithoutEffect> without_effect;  ///< parts of it; `what` is empty when it is all of it
  std::string problem;                        ///< follows its name: ": nothing is uploaded: ...", " is 'x'; ..."
};
/// `text`: the words joined by blanks or commas, or JSON of an object (or a file's name). Does not check values of
/// settings against their rules.
ArgumentMeaning meaning_of(const TrainingArgument& argument, const std::string& text);

/// One warning for all of them, those with one reason together: "--a, --b: why; --c: why". Empty for none.
std::string without_effect_note(const std::vector<WithoutEffect>& list);

/// What such an argument, given as `name`, adds to Resolved::implied.
std::vector<Implied> implied_by(const TrainingArgument& argument, const ArgumentMeaning& meaning,
                                const std::string& name, const Origin& origin);
/// Gives the settings of `resolved.implied` that nobody has given; apply() may still overwrite them.
void apply_implied(Resolved& resolved);
/// Says in a note which of them hold; bf16 does not beside an fp16 that was given since.
void settle_implied(Resolved& resolved);

/// One member of such a file.
struct FileArgument {
  std::string key;
  Value value;
};
/// The same for members that were found in a file of another form (tessera_file.h).
Translation read_file_arguments(const std::string& path, const std::vector<FileArgument>& arguments,
                                const Resolved& so_far, Problems& problems);

/// The words of a .args file (HfArgumentParser's): between blanks and line ends, with quotes and backslashes as in a
/// shell, and comments from a word that begins with '#' to the end of the line. They stand before the typed ones, which
/// beat them. An unreadable file, an open quote or more than 256 KiB is a problem.
std::vector<FileWord> read_file_words(const std::string& path, Problems& problems);
/// The same for its text. Throws InputError.
std::vector<FileWord> split_file_words(std::string_view text, const std::string& path);

/// A file of settings of at most 256 KiB, JSON or (.yaml, .yml) YAML. Throws InputError; `flag` names who asked for it.
/// `repeated`: see parse_yaml (base/yaml.h).
Value read_settings_file(const std::string& path, const std::string& flag,
                         std::vector<std::string>* repeated = nullptr);

/// --compat, when it is given: settings that nothing has given get that version's defaults. Where v4 and v5 differ in
/// what words mean, see sharding.h.
void apply_compat(Resolved& resolved);

/// The defaults of a program (TRL, Qwen, LLaVA) that an argument of it (text: its value) brings.
std::vector<std::pair<std::string, std::string>> defaults_beside(std::string_view program, std::string_view argument,
                                                                 const std::string& text);

/// Where the defaults of transformers 4 and 5, and ours, differ.
struct CompatDefault {
  std::string_view setting, v4, v5;
};
std::span<const CompatDefault> compat_defaults();

}  // namespace tessera::config
