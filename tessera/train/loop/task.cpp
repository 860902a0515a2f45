#include <tessera/train/loop/task.h>

#include <tessera/architectures/architecture.h>
#include <tessera/architectures/config_value.h>
#include <tessera/base/error.h>
#include <tessera/data/contents.h>
#include <tessera/data/fill_in_middle.h>
#include <tessera/data/labelled.h>
#include <tessera/data/objective_rows.h>
#include <tessera/text/companion_files.h>
#include <tessera/train/core/run_plan.h>
#include <tessera/train/loop/setup.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace tessera::train {
namespace {

/// config.json's label2id.
std::map<std::string, std::int64_t> classes_of(const Value& hf_config) {
  std::map<std::string, std::int64_t> classes;
  if (const Value* given = hf_config.find("label2id"); given && given->is_object())
    for (const auto& [name, number] : given->members()) classes.emplace(name, number.as_int());
  return classes;
}

Value with_classes(Value config, const std::vector<std::string>& names) {
  Value id2label = Value::make_object(), label2id = Value::make_object();
  for (std::size_t i = 0; i < names.size(); ++i) {
    id2label.set(std::to_string(i), Value::of(names[i]));
    label2id.set(names[i], Value::of(static_cast<std::int64_t>(i)));
  }
  config.set("id2label", std::move(id2label));
  config.set("label2id", std::move(label2id));
  return config;
}

const text::WordPieceTokenizer& wordpiece(const text::Tokenizer& tokenizer) {
  const auto* found = dynamic_cast<const text::WordPieceTokenizer*>(&text::without_companion_files(tokenizer));
  if (!found)
    throw InputError(
        "BERT needs its WordPiece tokenizer: name it with --tokenizer_name (a folder with tokenizer.json or "
        "vocab.txt)");
  return *found;
}

std::shared_ptr<const data::Dataset> with_objective(std::shared_ptr<const data::Dataset> rows,
                                                    const data::Objective& objective) {
  return rows ? std::make_shared<data::ObjectiveRows>(std::move(rows), objective) : nullptr;
}

}  // namespace

models::ConfigEdit task_edit(const DataConfig& data) {
  return [data](Value config) {
    const Value* type = config.find("model_type");
    if (!type || !type->is_string() || data.train_file.empty()) return config;
    const auto* classifier = architectures::architecture_for(type->as_string(), architectures::Task::row_class);
    const auto* masked = architectures::architecture_for(type->as_string(), architectures::Task::masked_token);
    if (!classifier || !masked) return config;
    const auto names = data::label_names(data.train_file, data.text_column_name);
    config.set("architectures", Value::make_array({Value::of((names ? classifier : masked)->architecture)}));
    if (!names) return config;
    const auto known = classes_of(config);
    const bool knows_all =
        std::all_of(names->begin(), names->end(), [&](const std::string& name) { return known.contains(name); });
    const bool numbered = names->front() == "LABEL_0" && known.size() >= names->size();
    return knows_all || numbered ? config : with_classes(std::move(config), *names);
  };
}

Value without_dropout(Value config) {
  const Value* const type = architectures::given(config, "model_type");
  // Families whose dropout defaults to a value above 0.
  static const std::map<std::string, std::vector<const char*>> unsaid = {
      {"gpt2", {"resid_pdrop", "embd_pdrop", "attn_pdrop"}},
      {"opt", {"dropout"}},
      {"megatron_gpt", {"hidden_dropout", "attention_dropout"}},
      {"bert", {"hidden_dropout_prob", "attention_probs_dropout_prob"}}};
  if (const auto own = unsaid.find(type ? type->as_string() : ""); own != unsaid.end())
    for (const char* key : own->second) config.set(key, Value::of(0.0));
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout", "hidden_dropout", "attention_dropout",
                          "residual_dropout", "embedding_dropout", "classifier_dropout"})
    if (architectures::given(config, key)) config.set(key, Value::of(0.0));
  if (const Value* text = architectures::given(config, "text_config"))
    config.set("text_config", without_dropout(*text));
  return config;
}

Value with_dropout_of(const Value& config, const Value& before) {
  const Value without = without_dropout(before);
  Value result = Value::make_object();
  for (const auto& [key, value] : config.members()) {
    const Value *const old = before.find(key), *const none = without.find(key);
    const bool changed = none != nullptr && (old == nullptr || dump_json(*none) != dump_json(*old));
    if (key == "text_config" && value.is_object())
      result.set(key, with_dropout_of(value, old != nullptr ? *old : before));
    else if (!changed)
      result.set(key, value);
    else if (old != nullptr)  // otherwise the key is omitted, and the family's default applies again
      result.set(key, *old);
  }
  return result;
}

data::Datasets open_task_datasets(const RunConfig& config, const models::LanguageModel& model,
                                  const std::shared_ptr<const text::Tokenizer>& shared_tokenizer,
                                  std::int64_t block_size, bool want_validation, const data::ReadProgress& progress) {
  const text::Tokenizer& tokenizer = *shared_tokenizer;
  data::Objective objective;
  objective.kind = model.objective();
  if (config.data.mock_data && objective.kind != data::Objective::Kind::next_token)
    throw InputError(
        "--mock_data generates counting texts for causal language models; use --train_file with this model");
  if (config.data.fim_data && objective.kind != data::Objective::Kind::next_token)
    throw InputError(
        "--fim_data rearranges texts for models that continue them, but this model already reads both sides: remove "
        "it");
  data::Datasets datasets;
  const bool pairs = config.optimization.preference_loss != PreferenceLoss::none;
  if (pairs && objective.kind != data::Objective::Kind::next_token)
    throw InputError(
        concat("--preference_loss compares the answers of causal language models; this model is not causal: "
               "remove it"));
  if (objective.kind == data::Objective::Kind::row_class) {
    if (config.data.streaming)
      throw InputError("--streaming is for texts and examples, not for texts with labels: remove it");
    const std::int64_t most = config.data.max_seq_length > 0 ? config.data.max_seq_length : block_size;
    datasets = data::open_labelled(config.data, wordpiece(tokenizer), most, classes_of(model.hf_config()),
                                   model.num_labels(), want_validation);
  } else {
    datasets = data::open_datasets(config.data, tokenizer, block_size, model.vocab_size(), want_validation, progress,
                                   tokenizer_place(config.model), sampling_seed(config), pairs, model.image_input());
  }
  datasets.train_contents = data::describe_contents(*datasets.train);
  if (datasets.validation) datasets.validation_contents = data::describe_contents(*datasets.validation);
  if (config.data.fim_data) {
    const data::FillInMiddle how = data::fill_in_middle(config.data, tokenizer, sampling_seed(config));
    for (auto* rows : {&datasets.train, &datasets.validation})
      if (*rows) *rows = data::rows_to_fill(std::move(*rows), how, shared_tokenizer);
  }
  if (objective.kind == data::Objective::Kind::next_token) return datasets;
  if (objective.kind == data::Objective::Kind::masked_token) {
    const text::WordPieceTokenizer& words = wordpiece(tokenizer);
    if (!words.special().mask)
      throw InputError("the tokenizer has no mask token ([MASK]), which masked language modelling needs");
    if (config.data.packing)
      throw InputError("--packing: several examples in one row are for causal language models; remove it");
    objective.probability = config.data.mlm_probability;
    objective.mask_id = *words.special().mask;
    objective.vocab_size = words.vocab_size();
    objective.seed = static_cast<std::uint64_t>(config.optimization.seed);
    for (std::int64_t id = 0; id < words.vocab_size(); ++id)
      objective.special.push_back(words.is_special(static_cast<std::int32_t>(id)));
  }
  datasets.train = with_objective(std::move(datasets.train), objective);
  datasets.validation = with_objective(std::move(datasets.validation), objective);
  return datasets;
}

}  // namespace tessera::train
