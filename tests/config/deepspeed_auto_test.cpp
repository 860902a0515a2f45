// "auto" values, against the result of transformers' HfTrainerDeepSpeedConfig on the same files
// (tests/parity/deepspeed_auto.py).

#include "deepspeed_cases.h"

#include <tessera/base/file.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/overrides.h>
#include <tessera/config/deepspeed/deepspeed_reading.h>
#include <tessera/config/resolve/resolve.h>
#include <tests/paths.h>

#include <algorithm>

namespace tessera::config {
namespace {

const Value* at(const Value& root, const std::string& path) {
  const Value* node = &root;
  for (const std::string& name : split(path, '.')) {
    node = node->is_object() ? node->find(name) : nullptr;
    if (node == nullptr) return nullptr;
  }
  return node;
}

/// The settings of the run as flags.
Words flags_of(const Value& theirs, const std::string& model_folder) {
  Words flags = {"--num_processes", concat(theirs.at("world").as_int())};
  if (!model_folder.empty()) flags.insert(flags.end(), {"--model_name_or_path", model_folder});
  for (const auto& [name, value] : theirs.at("run").members())
    flags.insert(flags.end(), {concat("--", name), *as_text(value, false)});
  return flags;
}

/// "- ds optimizer.params.lr=0.0001 vs hf learning_rate=0.0003" with numbers and booleans in canonical form.
std::string canonical(const std::string& mismatch) {
  std::string out;
  for (const std::string& word : split(mismatch, ' ')) {
    const std::size_t equals = word.find('=');
    std::string value = equals == std::string::npos ? word : word.substr(equals + 1), end;
    std::string begin = equals == std::string::npos ? std::string() : word.substr(0, equals + 1);
    if (value.starts_with("[")) begin += "[", value.erase(0, 1);
    while (value.ends_with(",") || value.ends_with("]")) end = value.back() + end, value.pop_back();
    const auto number = parse_real(value);
    out += concat(out.empty() ? "" : " ", begin, number ? format_real(*number) : to_lower(value), end);
  }
  return out;
}

class DeepspeedAuto : public ::testing::Test {
 protected:
  const Value cases_ = read_json(tessera::testing::source_path("tests/fixtures/deepspeed/auto.json"));
  const TemporaryFolder folder_;

  Words run_flags(const Value& c) const {
    write_file_atomically(path_join(folder_.path(), "config.json"), dump_json(c.at("model")));
    return flags_of(c, folder_.path());
  }
};

TEST_F(DeepspeedAuto, FilledAsTransformersFills) {
  int compared = 0;
  for (const Value& c : cases_.items()) {
    SCOPED_TRACE(c.at("name").as_string());
    Problems problems;
    Resolved run =
        resolve_flags(run_flags(c), problems, [](const std::string&) { return std::optional<std::string>(); });
    Translation read = read_deepspeed(dump_json(c.at("config"), -1), run, problems);
    if (!c.at("complaint").is_null() || !c.at("mismatches").items().empty()) continue;
    ASSERT_EQ(problems.lines, Words{});
    apply(std::move(read), run);
    const OptimizationConfig& o = run.values.optimization;
    const ShardingConfig& s = run.values.sharding;
    const Value& filled = c.at("filled");
    const auto same = [&](const std::string& path, double ours) {
      const Value* theirs = at(filled, path);
      if (theirs == nullptr) return;
      ++compared;
      EXPECT_EQ(theirs->kind() == Value::Kind::boolean ? theirs->as_bool() : theirs->as_real(), ours) << path;
    };
    same("train_micro_batch_size_per_gpu", static_cast<double>(o.per_device_train_batch_size));
    same("gradient_accumulation_steps", static_cast<double>(o.gradient_accumulation_steps));
    same("train_batch_size", static_cast<double>(o.per_device_train_batch_size * o.gradient_accumulation_steps *
                                                 run.values.parallel.num_processes));
    same("gradient_clipping", o.max_grad_norm);
    same("optimizer.params.lr", o.learning_rate);
    same("optimizer.params.eps", o.adam_epsilon);
    same("optimizer.params.weight_decay", o.weight_decay);
    same("fp16.enabled", o.fp16);
    same("bf16.enabled", o.bf16);
    same("zero_optimization.reduce_bucket_size", static_cast<double>(s.reduce_bucket_size));
    if (const Value* betas = at(filled, "optimizer.params.betas")) {
      EXPECT_EQ(betas->items()[0].as_real(), o.adam_beta1);
      EXPECT_EQ(betas->items()[1].as_real(), o.adam_beta2);
    }
    if (const Value* threshold = at(filled, "zero_optimization.stage3_param_persistence_threshold");
        threshold && threshold->is_number())
      same("zero_optimization.stage3_param_persistence_threshold", static_cast<double>(s.persistence_threshold));
    if (const Value* bucket = at(filled, "zero_optimization.stage3_prefetch_bucket_size");
        bucket && bucket->is_number()) {
      const auto values = deepspeed::values_of(*deepspeed::hidden_size_of(c.at("model")));
      same("zero_optimization.stage3_prefetch_bucket_size", static_cast<double>(values.prefetch_bucket_size));
    }
    // values that stay "auto" here are those that the schedule takes from the run
    for (const auto& [key, argument] : parse_overrides(o.lr_scheduler_kwargs)) {
      const Value& theirs = *at(filled, concat("scheduler.params.", key));
      const double of_run = key == "warmup_max_lr"      ? o.learning_rate
                            : key == "warmup_num_steps" ? static_cast<double>(std::max<std::int64_t>(1, o.warmup_steps))
                                                        : static_cast<double>(o.max_steps);
      EXPECT_EQ(theirs.as_real(), argument.is_string() ? of_run : argument.as_real()) << key;
      ++compared;
    }
    if (const Value* triple = c.find("triple")) {
      EXPECT_EQ(triple->items()[0].as_int(), o.per_device_train_batch_size * o.gradient_accumulation_steps);
      EXPECT_EQ(triple->items()[1].as_int(), o.per_device_train_batch_size);
      EXPECT_EQ(triple->items()[2].as_int(), o.gradient_accumulation_steps);
    }
  }
  EXPECT_GT(compared, 70);
}

TEST_F(DeepspeedAuto, MismatchesAreTransformers) {
  int compared = 0;
  for (const Value& c : cases_.items()) {
    SCOPED_TRACE(c.at("name").as_string());
    Words theirs, ours;
    for (const Value& line : c.at("mismatches").items()) theirs.push_back(canonical(line.as_string()));
    if (theirs.empty()) continue;
    for (const std::string& line : read_case(dump_json(c.at("config"), -1), run_flags(c)).problems) {
      const std::size_t begin = line.find("- ds "), end = line.find(" (", line.find("=", line.find(" vs hf ")));
      ASSERT_NE(begin, std::string::npos) << line;
      ours.push_back(canonical(line.substr(begin, end - begin)));
    }
    // transformers also compares the product when its factors differ; we name only the factors
    std::erase_if(theirs, [&](const std::string& line) {
      return theirs.size() > 1 && line.starts_with("- ds train_batch_size=");
    });
    std::sort(theirs.begin(), theirs.end());
    std::sort(ours.begin(), ours.end());
    EXPECT_EQ(ours, theirs);
    compared += static_cast<int>(theirs.size());
  }
  EXPECT_GE(compared, 11);
}

TEST_F(DeepspeedAuto, ComplaintWithoutHiddenSize) {
  int compared = 0;
  for (const Value& c : cases_.items()) {
    if (c.at("complaint").is_null()) continue;
    SCOPED_TRACE(c.at("name").as_string());
    std::string theirs = c.at("complaint").as_string();
    std::erase_if(theirs, [](char x) { return x == '[' || x == ']' || x == '\''; });  // a Python list
    const std::string ours = problem_of(dump_json(c.at("config"), -1), run_flags(c));
    ++compared;
    std::string said = ours.substr(ours.find("The model"));
    std::erase(said, '\'');
    std::erase(theirs, '\'');
    EXPECT_EQ(said, theirs);
  }
  EXPECT_EQ(compared, 1);
}

TEST(DeepspeedHiddenSize, OfTheRunsModel) {
  using deepspeed::hidden_size_of;
  ModelConfig model;
  EXPECT_EQ(hidden_size_of(model, {}), std::nullopt);  // the model is unknown
  model.config_name = "gpt2";
  EXPECT_EQ(hidden_size_of(model, {}), 768);
  model.config_overrides = "n_embd=96,n_layer=2";
  EXPECT_EQ(hidden_size_of(model, {}), 96);
  model = {};
  model.config_name = "llama-tiny";
  EXPECT_EQ(hidden_size_of(model, {}), 256);
  model.config_name = "no/such/config.json";
  EXPECT_EQ(hidden_size_of(model, {}), std::nullopt);
  EXPECT_EQ(
      settings(
          R"({"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
                         "stage3_param_persistence_threshold": "auto"}})",
          {"--config_name", "gpt2-tiny"}),
      (Texts{{"zero_stage", "3"},
             {"overlap_comm", "true"},
             {"reduce_bucket_size", "65536"},
             {"persistence_threshold", "2560"}}));
}

}  // namespace
}  // namespace tessera::config
