#pragma once
/// \file
/// Common parts of the Megatron front end: the arguments as typed, by name. Internal to this folder.

#include <tessera/config/megatron/megatron_args.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::config {

/// A row of the table, and the argument's effect on its setting.
struct MegatronRow {
  enum class Act : unsigned char {
    elsewhere,  ///< read in megatron_args.cpp or megatron_model.cpp
    standing,   ///< the same for a switch, which takes no value
    constant,   ///< a switch: the setting gets `text`
    value,      ///< the setting gets the value unchanged
  };
  KeyRow key_row;
  Act act = Act::elsewhere;
  std::string_view text = {};
};
/// nullptr: no row of its own (it may belong to a family: find_megatron_key).
const MegatronRow* find_megatron_row(std::string_view name);

/// Rows for groups of arguments that are all handled alike: megatron_families.cpp.
std::vector<KeyRow> megatron_families();

class MegatronArguments {
 public:
  struct Given {
    std::string flag;                 ///< as typed, without its value
    std::vector<std::string> values;  ///< empty: a switch
    SourcePos where = {};             ///< position in a file of arguments

    SourcePos position() const { return where.file ? where : flag_position(flag); }
  };

  MegatronArguments(Translator& to, Problems& problems) : to_(to), problems_(problems) {}

  /// Adds an argument. A later, different value for the same name replaces the first, as in argparse, and adds a note.
  void add(const std::string& name, Given given);

  const Given* find(std::string_view name) const;
  /// Removes the argument, as if it had not been given.
  void forget(std::string_view name);
  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// Returns the single value; nullopt if the argument is absent or invalid.
  std::optional<std::string> text(std::string_view name);
  std::optional<std::int64_t> whole(std::string_view name, std::int64_t least);
  std::optional<double> real(std::string_view name, double least);
  /// The value in lower case; must be one of `words`.
  std::optional<std::string> word(std::string_view name, std::initializer_list<std::string_view> words);
  const std::map<std::string, Given>& all() const { return given_; }

  /// Sets the setting, with the argument as its origin. An invalid value is a problem.
  void give(std::string_view name, std::string_view setting, const std::string& text);
  /// Adds "--flag WHAT" to the problems.
  void problem(std::string_view name, const std::string& what, std::initializer_list<std::string_view> doubtful = {});
  void note(std::string_view name, const std::string& what);

 private:
  Translator& to_;
  Problems& problems_;
  std::map<std::string, Given> given_;
  const std::vector<std::string> said_ = {"", ""};  ///< replaces invalid values, which have been reported
};

/// Number of pipeline processes; also sets their stages and schedule: megatron_pipeline.cpp. Returns 1 after reporting
/// an invalid number. `schedule_given`: our own setting names a schedule, which takes precedence.
std::int64_t translate_megatron_pipeline(MegatronArguments& arguments, bool schedule_given);

/// Translates --recompute-granularity and related arguments: megatron_recompute.cpp.
void translate_megatron_recompute(MegatronArguments& arguments);

/// Translates --optimizer and related arguments: megatron_optimizer.cpp.
void translate_megatron_optimizer(MegatronArguments& arguments);

/// Whether --load names nothing to resume from: no folder, or an empty one. As in Megatron, the run then starts from
/// scratch. If it is also the folder of --save, files of a run that has just started do not count.
bool loads_nothing(MegatronArguments& arguments);
/// --load -> resume_from_checkpoint: megatron_load.cpp.
void translate_megatron_load(MegatronArguments& arguments);

/// Translates --data-path, --split and the evaluations: megatron_data.cpp.
void translate_megatron_data(MegatronArguments& arguments);

/// Members of a config.json with their values as JSON, in the order in which they were set.
using MegatronMembers = std::vector<std::pair<std::string, std::string>>;
void set_member(MegatronMembers& members, const std::string& key, const std::string& value);

/// The transformers family that matches the arguments.
struct MegatronFamily {
  const char* preset = nullptr;    ///< architectures/presets.h; nullptr: none
  const char* argument = nullptr;  ///< without a preset: the argument that rules it out,
  std::string why = {};            ///< and the reason (text that follows the argument)
  bool built = true;               ///< can be built as Megatron's own model (architectures/families/megatron_gpt.cpp)
};
/// Whether experts are chosen with Sinkhorn's method (nn/moe/sinkhorn.h).
bool megatron_sinkhorn(MegatronArguments& arguments);
/// Selects the family among Llama's relatives, by experts, latent attention, and norms or biases of queries and keys.
MegatronFamily megatron_llama_family(MegatronArguments& arguments);
/// Sets the members that this family has in addition to Llama's.
void translate_megatron_family(MegatronArguments& arguments, std::string_view preset, MegatronMembers& members);
/// Returns which of `layers` layers have linear attention, from --linear-attention-freq: all but every N-th, or given
/// by a list.
std::vector<bool> megatron_linear_layers(MegatronArguments& arguments, std::int64_t layers);
/// Sets the latent attention of a megatron_gpt.
void translate_megatron_latents(MegatronArguments& arguments, MegatronMembers& members);
/// Sets the experts of a megatron_gpt.
void translate_megatron_gpt_experts(MegatronArguments& arguments, MegatronMembers& members);
/// Sets how expert load is balanced, also for a model whose shape other settings give (`model_given`).
void translate_megatron_balance(MegatronArguments& arguments, bool model_given);

/// Translates --num-layers and all other arguments that describe a model: config_name and config_overrides.
void translate_megatron_model(MegatronArguments& arguments, bool config_name_given, bool overrides_given);

}  // namespace tessera::config
