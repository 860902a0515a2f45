#pragma once
/// \file
/// What the parts of the Megatron front end share: the arguments as typed, by name. Internal to this folder.

#include <tessera/config/megatron/megatron_args.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::config {

/// A row of the table, and what the argument does to its setting.
struct MegatronRow {
  enum class Act : unsigned char {
    elsewhere,  ///< what is read in megatron_args.cpp or megatron_model.cpp
    standing,   ///< the same of a switch, which no value follows
    constant,   ///< a switch: the setting gets `text`
    value,      ///< the setting gets the value as it stands
  };
  KeyRow key_row;
  Act act = Act::elsewhere;
  std::string_view text = {};
};
/// nullptr: there is none of its own (it may belong to a family: find_megatron_key).
const MegatronRow* find_megatron_row(std::string_view name);

/// What of the arguments shares one answer with others: megatron_families.cpp.
std::vector<KeyRow> megatron_families();

class MegatronArguments {
 public:
  struct Given {
    std::string flag;                 ///< as typed, without its value
    std::vector<std::string> values;  ///< none: a switch
    SourcePos where = {};             ///< in a file of arguments

    SourcePos position() const { return where.file ? where : flag_position(flag); }
  };

  MegatronArguments(Translator& to, Problems& problems) : to_(to), problems_(problems) {}

  /// A second, different value for one name counts, as in argparse, with a note.
  void add(const std::string& name, Given given);

  const Given* find(std::string_view name) const;
  /// As if it had not been given.
  void forget(std::string_view name);
  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// The only value; nullopt when the argument is not given or was found wrong.
  std::optional<std::string> text(std::string_view name);
  std::optional<std::int64_t> whole(std::string_view name, std::int64_t least);
  std::optional<double> real(std::string_view name, double least);
  /// The value in lower case, which must be one of `words`.
  std::optional<std::string> word(std::string_view name, std::initializer_list<std::string_view> words);
  const std::map<std::string, Given>& all() const { return given_; }

  /// The setting gets the text, with the argument as its origin. A wrong value is a problem.
  void give(std::string_view name, std::string_view setting, const std::string& text);
  /// "--flag WHAT" among the problems.
  void problem(std::string_view name, const std::string& what, std::initializer_list<std::string_view> doubtful = {});
  void note(std::string_view name, const std::string& what);

 private:
  Translator& to_;
  Problems& problems_;
  std::map<std::string, Given> given_;
  const std::vector<std::string> said_ = {"", ""};  ///< in place of values that are wrong, which has been said
};

/// The processes of the pipeline; gives them, their stages and their schedule: megatron_pipeline.cpp. 1 after a
/// complaint about their number. `schedule_given`: by a name of ours, which counts.
std::int64_t translate_megatron_pipeline(MegatronArguments& arguments, bool schedule_given);

/// --recompute-granularity and what belongs to it: megatron_recompute.cpp.
void translate_megatron_recompute(MegatronArguments& arguments);

/// --optimizer and what belongs to it: megatron_optimizer.cpp.
void translate_megatron_optimizer(MegatronArguments& arguments);

/// Whether --load names nothing that a run could continue from: no folder, or an empty one. As in Megatron the run
/// begins anew then. A folder of --save may hold what a run that has just begun has written.
bool loads_nothing(MegatronArguments& arguments);
/// --load -> resume_from_checkpoint: megatron_load.cpp.
void translate_megatron_load(MegatronArguments& arguments);

/// --data-path, --split and the evaluations: megatron_data.cpp.
void translate_megatron_data(MegatronArguments& arguments);

/// Members of a config.json with their values as JSON, in the order in which they were set.
using MegatronMembers = std::vector<std::pair<std::string, std::string>>;
void set_member(MegatronMembers& members, const std::string& key, const std::string& value);

/// The family of transformers that has what the arguments ask for.
struct MegatronFamily {
  const char* preset = nullptr;    ///< architectures/presets.h; nullptr: there is none
  const char* argument = nullptr;  ///< then: because of this one,
  std::string why = {};            ///< for this reason (what follows the argument)
  bool built = true;  ///< the model can be built in Megatron's own manner (architectures/families/megatron_gpt.cpp)
};
/// Whether experts are chosen by Sinkhorn's method (nn/moe/sinkhorn.h).
bool megatron_sinkhorn(MegatronArguments& arguments);
/// The family among those in Llama's manner: experts, latent attention, norms or biases of queries and keys.
MegatronFamily megatron_llama_family(MegatronArguments& arguments);
/// Sets what that family has beyond Llama's members.
void translate_megatron_family(MegatronArguments& arguments, std::string_view preset, MegatronMembers& members);
/// Which of so many layers have linear attention, by --linear-attention-freq: all but every N-th, or as a list says.
std::vector<bool> megatron_linear_layers(MegatronArguments& arguments, std::int64_t layers);
/// Sets the latent attention of a megatron_gpt.
void translate_megatron_latents(MegatronArguments& arguments, MegatronMembers& members);
/// Sets the experts of a megatron_gpt.
void translate_megatron_gpt_experts(MegatronArguments& arguments, MegatronMembers& members);
/// How the load of experts is kept even: settings, also of a model whose shape others say (`model_given`).
void translate_megatron_balance(MegatronArguments& arguments, bool model_given);

/// --num-layers and all else that describes a model: config_name and config_overrides.
void translate_megatron_model(MegatronArguments& arguments, bool config_name_given, bool overrides_given);

}  // namespace tessera::config
