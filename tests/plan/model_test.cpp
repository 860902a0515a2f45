// The planner's models: published parameter counts, sums, and refused models.

#include <tessera/architectures/presets.h>
#include <tessera/plan/presets.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <tessera/base/file.h>
#include <tests/error_of.h>

#include <set>

namespace tessera::plan {
namespace {

using testing::error_of;

// Numbers of elements of the checkpoints on huggingface.co (sums over their safetensors headers).
TEST(Model, PresetsHaveThePublishedNumbersOfParameters) {
  const std::pair<const char*, double> published[] = {
      {"gpt2", 124439808},          {"gpt2-xl", 1557611200},        {"bert-base", 109514298},
      {"llama-2-7b", 6738415616},   {"llama-2-13b", 13015864320},   {"llama-2-70b", 68976648192},
      {"llama-3-8b", 8030261248},   {"llama-3-70b", 70553706496},   {"llama-3-405b", 405853388800},
      {"llama-3.2-1b", 1235814400}, {"mistral-7b", 7241732096},     {"mixtral-8x7b", 46702792704},
      {"qwen2.5-7b", 7615616512},   {"qwen3-8b", 8190735360},       {"qwen3-30b-a3b", 30532122624},
      {"olmoe-1b-7b", 6919161856},  {"deepseek-v3", 671026419200.},
  };
  for (const auto& [name, count] : published)
    EXPECT_NEAR(parameter_count(find_model(name)), count, name == std::string("deepseek-v3") ? 20000 : 0) << name;
}

TEST(Model, EveryPresetIsRead) {
  for (const std::string& name : architectures::published_names()) {
    const Model model = find_model(name);
    EXPECT_EQ(model.name, name);
    EXPECT_LE(active_parameters(model), parameter_count(model)) << name;
    EXPECT_GE(model_flops_per_token(model, 2048), 6 * active_parameters(model)) << name;
  }
}

// Active parameters per token of a mixture of experts, as in its name: A22B, A3B; DeepSeek-V3's report: 37 B.
TEST(Model, MixturesMeetAPartOfTheirParameters) {
  EXPECT_NEAR(active_parameters(find_model("qwen3-235b-a22b")), 22e9, 1.2e9);
  EXPECT_NEAR(active_parameters(find_model("qwen3-30b-a3b")), 3e9, 0.4e9);
  EXPECT_NEAR(active_parameters(find_model("deepseek-v3")), 37e9, 1e9);
  EXPECT_NEAR(active_parameters(find_model("mixtral-8x7b")), 12.9e9, 0.3e9);
}

// The parts of the tensor-parallel ranks cover the whole; with fewer heads than ranks, heads are held several times,
// but each at least once.
RC_GTEST_PROP(Model, PartsAddUpToTheWhole, ()) {
  ModelNumbers numbers;
  numbers.layers = *rc::gen::inRange<std::int64_t>(1, 5);
  numbers.key_heads = *rc::gen::element<std::int64_t>(1, 2, 4);
  numbers.heads = numbers.key_heads * *rc::gen::element<std::int64_t>(1, 2, 4);
  numbers.hidden = numbers.heads * 2 * *rc::gen::inRange<std::int64_t>(1, 9);
  numbers.vocabulary = *rc::gen::inRange<std::int64_t>(10, 300);
  numbers.experts = *rc::gen::element<std::int64_t>(0, 4);
  numbers.gpt2 = numbers.experts == 0 && numbers.key_heads == numbers.heads && *rc::gen::arbitrary<bool>();
  const Model model = model_of_numbers(numbers);
  std::set<std::string> names;
  for (const Tensor& tensor : tensors(model)) {
    RC_ASSERT(names.insert(tensor.name).second);
    double before = tensor.numel();
    RC_ASSERT(elements_on_rank(tensor, 1) == before);
    for (const int tp : {2, 4, 8}) {
      const double part = elements_on_rank(tensor, tp);
      RC_ASSERT(part * tp >= tensor.numel());
      RC_ASSERT(part <= before);
      before = part;
    }
  }
}

TEST(Model, WhatIsWrongIsNamedWithItsPlace) {
  const auto refused = [](const std::string& json) {
    return error_of([&] { static_cast<void>(read_model(parse_json(json, "c.json"))); });
  };
  EXPECT_EQ(refused(R"({"model_type": "t5"})").substr(0, 45), "c.json:1:16: model type \"t5\" is not supported");
  EXPECT_NE(refused(R"({"hidden_size": 4})").find("neither model_type nor architectures"), std::string::npos);
  EXPECT_NE(refused(R"({"model_type": "gpt2", "n_layer": 0})").find("it must be in [1, "), std::string::npos);
  EXPECT_NE(refused(R"({"model_type": "gpt2", "n_layer": 1, "n_embd": 10, "n_head": 3})")
                .find("n_embd 10 is not a multiple of n_head 3"),
            std::string::npos);
  EXPECT_NE(error_of([] { static_cast<void>(find_model("gpt-3")); }).find("did you mean gpt3-175b?"),
            std::string::npos);
  EXPECT_NE(error_of([] { static_cast<void>(find_model("lama-3-8b")); }).find("did you mean llama-3-8b?"),
            std::string::npos);
}

TEST(Model, ComesFromAFileOrAFolder) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "config.json");
  write_file_atomically(path, dump_json(preset_config("llama-3.2-1b")));
  EXPECT_EQ(parameter_count(find_model(path)), 1235814400);
  EXPECT_EQ(parameter_count(find_model(folder.path())), 1235814400);
}

}  // namespace
}  // namespace tessera::plan
