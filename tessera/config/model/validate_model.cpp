#include <tessera/config/model/validate_model.h>

#include <tessera/architectures/architecture.h>
#include <tessera/architectures/mesh_sizes.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/core/mesh.h>
#include <tessera/config/core/named_model.h>
#include <tessera/config/core/rule_checks.h>
#include <tessera/config/core/run_schedule.h>
#include <tessera/layout/stages.h>

#include <algorithm>
#include <optional>

namespace tessera::config {
namespace {

constexpr std::int64_t default_block_size = 1024;  // run_clm.py

bool cuts_blocks(const std::string& layout_text) {
  if (layout_text.empty() || layout_text == layout::layout_by_flops) return false;
  if (layout_text == layout::layout_by_half_blocks) return true;
  try {
    return layout::cuts_blocks(layout::parse_stage_layout(layout_text, layout::any_blocks, 0));
  } catch (const InputError&) {
    return false;  // reported by validate_mesh
  }
}

class ModelRules : RuleChecks {
 public:
  ModelRules(const Resolved& resolved, Problems& problems)
      : RuleChecks(resolved, problems),
        p_(resolved.values.parallel),
        source_(c_.model.model_name_or_path.empty() ? "config_name" : "model_name_or_path") {}

  void check() {
    if (!c_.data.eos_token.empty()) end_of_text();
    const std::optional<architectures::ModelSpec> model = read();
    if (!model) return;
    lengths(model->longest_sequence());
    wrapped_classes(*model);
    if (model->linear) linear_attention();
    const std::int64_t computed = c_.optimization.mtp_loss_scaling_factor > 0 ? model->depths : 0;
    if (computed > 0) computed_depths(computed);
    if (p_.tp_size * p_.cp_size > 1) mesh(*model);
    if (p_.pp_size > 1) {
      if (cuts_blocks(p_.pipeline_layout) && !model->blocks_can_be_cut()) halves(model->type);
      stages(model->layers, model->depths);
    }
  }

 private:
  /// nullopt if the settings name no model, or a missing one, which is reported elsewhere. Unknown families are refused
  /// here, before anything starts.
  std::optional<architectures::ModelSpec> read() {
    const ModelConfig& m = c_.model;
    const std::string folder = m.model_name_or_path, name = m.config_name;
    const bool loaded = !folder.empty();
    try {
      if (loaded) {
        const std::string file = path_join(folder, "config.json");
        if (!path_exists(file) || path_exists(path_join(folder, "adapter_config.json"))) return std::nullopt;
        return architectures::read_model(read_json(file));
      }
      const bool is_path = name.find('/') != std::string::npos || name.ends_with(".json") || is_directory(name);
      if (name.empty() || (is_path && !path_exists(is_directory(name) ? path_join(name, "config.json") : name)))
        return std::nullopt;
      return architectures::read_model(model_from_scratch(m));
    } catch (const InputError& error) {
      problem({source_, "config_overrides"}, error.what());
      return std::nullopt;
    }
  }

  /// A model learns to end its texts with the token named by the tokenizer and by its own configuration.
  void end_of_text() {
    const ModelConfig& m = c_.model;
    const std::string place = m.tokenizer_name.empty() ? m.model_name_or_path : m.tokenizer_name;
    const char* const source = place.empty()              ? "eos_token"
                               : m.tokenizer_name.empty() ? "model_name_or_path"
                                                          : "tokenizer_name";
    const std::size_t slash = is_directory(place) ? place.size() : place.rfind('/');
    const std::string file =
        path_join(slash == std::string::npos ? "." : place.substr(0, slash), "tokenizer_config.json");
    std::string own = place == "byte" || place.empty() ? "<|endoftext|>" : "";
    try {
      const Value json = own.empty() && path_exists(file) ? read_json(file) : Value::make_object();
      const Value* token = json.is_object() ? json.find("eos_token") : nullptr;
      if (token != nullptr && token->is_object()) token = token->find("content");
      if (token != nullptr && token->is_string()) own = token->as_string();
    } catch (const InputError& error) {
      return problem({"eos_token", source}, error.what());
    }
    if (own != c_.data.eos_token)
      problem({"eos_token", source}, said("eos_token"), " ", c_.data.eos_token,
              " is not the tokenizer's own end-of-text token (", own.empty() ? "it defines none" : own,
              "): set eos_token in its tokenizer_config.json and its id as eos_token_id in the model's config.json, or "
              "remove it");
  }

  /// Reports block class names that all belong to other families. There are three groups of names: GPT-2's, BERT's, and
  /// those of all other decoders.
  void wrapped_classes(const architectures::ModelSpec& model) {
    std::vector<std::string> given;
    for (const std::string& name : split(c_.sharding.transformer_layer_cls_to_wrap, ','))
      if (!trim(name).empty()) given.push_back(trim(name));
    const auto family_of = [](const std::string& name) {
      if (name == "GPT2Block" || name == "Gpt2Block") return std::string("gpt2");
      if (name == "BertLayer") return std::string("bert");
      return std::string(name.ends_with("DecoderLayer") || name == "GPTNeoXLayer" ? "decoder" : "");
    };
    using Family = architectures::Family;
    const std::string family = model.family == Family::gpt2   ? "gpt2"
                               : model.family == Family::bert ? "bert"
                                                              : "decoder";
    const auto is_another = [&](const std::string& name) {
      const std::string of = family_of(name);
      return !of.empty() && of != family;
    };
    if (given.empty() || !std::all_of(given.begin(), given.end(), is_another)) return;
    problem({"transformer_layer_cls_to_wrap", source_, "config_overrides"}, said("transformer_layer_cls_to_wrap"), " ",
            join(given, ","), ": a model of type \"", model.type,
            "\" has no such module: remove it, and the model's own blocks are wrapped");
  }

  /// Linear attention carries one state through all tokens of a row.
  void linear_attention() {
    if (p_.cp_size > 1)
      problem({"cp_size", source_, "config_overrides"}, said("cp_size"), " ", p_.cp_size,
              ": the model has linear attention, which carries a state along each row, so rows cannot be cut; remove "
              "it, or use --tp_size or --pp_size to cut the model");
    for (const char* name : {"reset_position_ids", "packing"})
      if (name == std::string_view("packing") ? c_.data.packing : c_.data.reset_position_ids)
        problem({name, source_, "config_overrides"}, said(name),
                ": the model has linear attention, whose state is not reset between documents; remove it");
  }

  void halves(const std::string& type) {
    problem({"pipeline_layout", source_, "config_overrides"}, said("pipeline_layout"),
            " cuts blocks, but those of a model of type \"", type,
            "\" cannot be cut, since its MLP does not follow its attention on the residual stream; use whole blocks (t "
            "instead of a and f, flops instead of half_blocks)");
  }

  /// Checks the settings of multi-token prediction; for its inputs see models/decoders/prediction.h.
  void computed_depths(std::int64_t depths) {
    const std::string rest = concat(" with mtp_num_layers ", depths, " of the model: ");
    const char* const remedy = ", or train without it: --mtp_loss_scaling_factor 0";
    if (p_.cp_size > 1)
      problem(
          {"cp_size", source_, "config_overrides"}, said("cp_size"), " ", p_.cp_size, rest,
          "multi-token prediction reads later tokens of the same row, which are on other processes; use --cp_size 1",
          remedy);
    if (c_.optimization.preference_loss != PreferenceLoss::none)
      problem({"preference_loss", source_, "config_overrides"}, said("preference_loss"), rest,
              "preference losses compare whole answers without multi-token prediction; remove it", remedy);
  }

  void lengths(std::int64_t positions) {
    if (positions == 0) return;
    try {
      (void)choose_block_size(c_.data, positions);
    } catch (const InputError& error) {
      const bool implied = c_.data.max_seq_length > positions && !origin("max_seq_length").is_given();
      problem({"block_size", "max_seq_length", source_, "config_overrides"}, error.what(),
              implied
                  ? concat(" by max_length: ", c_.data.max_seq_length, " is ", origin("max_seq_length"), ", not yours")
                  : "");
    }
  }

  void mesh(const architectures::ModelSpec& model) {
    const auto processes = static_cast<int>(p_.num_processes);
    if (processes == 0 || !mesh_problem(c_, processes, processes).empty()) return;
    layout::MeshUse use{.sequence_parallel = p_.sequence_parallel && p_.tp_size > 1,
                        .method = p_.cp_comm_type,
                        .head_ranks = static_cast<int>(p_.cp_a2a_size)};
    // Blocks of a stream are cut as they are; examples, and sequences cut by context parallelism, are padded.
    const std::string file = to_lower(c_.data.train_file);
    const std::int64_t positions = model.longest_sequence();
    if (use.sequence_parallel && p_.cp_size == 1 && positions > 0 &&
        (c_.data.mock_data || file.ends_with(".txt") || file.ends_with(".bin")))
      use.sequence = c_.data.block_size > 0 ? c_.data.block_size : std::min(default_block_size, positions);
    for (const layout::MeshProblem& wrong :
         layout::mesh_problems(run_mesh(c_, processes, processes), architectures::mesh_sizes(model), use))
      problem({"tp_size", "cp_size", "cp_comm_type", "cp_a2a_size", "sequence_parallel", "num_processes", "block_size",
               source_, "config_overrides"},
              wrong.text);
  }

  /// Checks that every pipeline process gets a part. Stages of equal cost are cut once the model exists.
  void stages(std::int64_t blocks, std::int64_t depths) {
    if (blocks < 1 || blocks > layout::most_blocks_in_layout || layout::is_layout_word(p_.pipeline_layout)) return;
    std::vector<int> rank_of;
    std::vector<layout::StagePart> parts;
    try {
      rank_of = ranks_of_stages(c_);
      if (!p_.pipeline_layout.empty()) parts = layout::parse_stage_layout(p_.pipeline_layout, layout::any_blocks, 0);
      if (!parts.empty() && parts.size() != rank_of.size()) return;
    } catch (const InputError&) {
      return;  // reported by validate_mesh
    }
    try {
      const auto count = static_cast<int>(rank_of.size());
      const std::int64_t computed = c_.optimization.mtp_loss_scaling_factor > 0 ? depths : 0;
      parts = parts.empty() ? layout::cut_evenly(blocks, count, 0, static_cast<double>(computed))
                            : layout::parse_stage_layout(p_.pipeline_layout, blocks, count, depths);
      check_shares(parts, rank_of);
    } catch (const InputError& error) {
      problem(
          {"pp_size", "pipeline_layout", "pipeline_schedule", "pipeline_stages_per_rank", source_, "config_overrides"},
          error.what());
    }
  }

  const ParallelConfig& p_;
  const char* source_;  ///< the setting that names the model
};

}  // namespace

std::int64_t choose_block_size(const DataConfig& data, std::int64_t positions) {
  if (data.max_seq_length > positions)
    throw InputError(concat("--max_seq_length ", data.max_seq_length, " is longer than the model's ", positions,
                            " positions: lower it"));
  const std::int64_t asked = data.block_size;
  if (asked == 0) return std::min(default_block_size, positions);
  if (asked > positions)
    throw InputError(
        concat("--block_size ", asked, " is longer than the model's ", positions,
               " positions: lower it, or raise n_positions (--config_overrides) of a model trained from scratch"));
  if (asked < 2)
    throw InputError(
        concat("--block_size ", asked, ": a block needs at least 2 tokens, since the first one is not scored"));
  return asked;
}

void validate_model(const Resolved& resolved, Problems& problems) { ModelRules(resolved, problems).check(); }

}  // namespace tessera::config
