#include <tessera/layout/units.h>

#include <tessera/base/error.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace tessera::layout {
namespace {

/// root{wte[100] h{0{attn[40] mlp[60]} 1{attn[40] mlp[60]}} ln[2] head = wte}
ModuleTree transformer(bool tied) {
  ModuleTree tree;
  const auto parameter = [&](const std::string& name, std::int64_t numel) {
    tree.parameters.push_back({name, {numel}});
    return tree.parameters.size() - 1;
  };
  const auto module = [&](const std::string& name, const std::string& type, std::size_t parent,
                          std::vector<std::size_t> parameters, bool container = false) {
    tree.modules.push_back({name, type, parent, std::move(parameters), container});
    return tree.modules.size() - 1;
  };
  module("", "Gpt", 0, {});
  const std::size_t wte = parameter("wte.weight", 100);
  module("wte", "torch::nn::EmbeddingImpl", 0, {wte});
  const std::size_t h = module("h", "torch::nn::ModuleListImpl", 0, {}, true);
  for (const std::string name : {"h.0", "h.1"}) {
    const std::size_t block = module(name, "tessera::models::Gpt2BlockImpl", h, {});
    module(name + ".attn", "AttentionImpl", block, {parameter(name + ".attn.weight", 40)});
    module(name + ".mlp", "MlpImpl", block, {parameter(name + ".mlp.weight", 60)});
  }
  module("ln_f", "torch::nn::LayerNormImpl", 0, {parameter("ln_f.weight", 2)});
  module("lm_head", "torch::nn::LinearImpl", 0, {tied ? wte : parameter("lm_head.weight", 100)});
  return tree;
}

std::map<std::string, std::set<std::string>> by_name(const ModuleTree& tree, const std::vector<Unit>& units) {
  std::map<std::string, std::set<std::string>> out;
  for (const Unit& unit : units)
    for (const std::size_t parameter : unit.parameters) out[unit.name].insert(tree.parameters[parameter].name);
  return out;
}

WrapPolicy policy_of(WrapPolicy::Kind kind) {
  WrapPolicy policy;
  policy.kind = kind;
  return policy;
}

using Names = std::map<std::string, std::set<std::string>>;

TEST(Units, WithoutAPolicyTheRootHoldsAll) {
  const ModuleTree tree = transformer(false);
  const auto units = make_units(tree, {});
  ASSERT_EQ(units.size(), 1u);
  EXPECT_EQ(units[0].name, "root");
  EXPECT_EQ(units[0].parameters.size(), tree.parameters.size());
}

TEST(Units, BlocksByClassAndByHuggingFacesName) {
  const ModuleTree tree = transformer(true);
  WrapPolicy policy = policy_of(WrapPolicy::Kind::by_class);
  const Names expected = {{"root", {"wte.weight", "ln_f.weight"}},
                          {"h.0", {"h.0.attn.weight", "h.0.mlp.weight"}},
                          {"h.1", {"h.1.attn.weight", "h.1.mlp.weight"}}};
  policy.classes = {"Gpt2Block"};
  EXPECT_EQ(by_name(tree, make_units(tree, policy)), expected);
  policy.classes = {"GPT2Block"};
  policy.class_aliases = {{"GPT2Block", "Gpt2Block"}};
  EXPECT_EQ(by_name(tree, make_units(tree, policy)), expected);
  policy.classes = {"BertLayer", "GPT2Block"};  // one match is enough, as in accelerate
  EXPECT_EQ(by_name(tree, make_units(tree, policy)), expected);
  EXPECT_EQ(missing_classes(tree, policy), std::vector<std::string>{"BertLayer"});
}

TEST(Units, ATiedParameterBelongsToTheUnitAroundAllItsUses) {
  const ModuleTree tree = transformer(true);
  WrapPolicy policy = policy_of(WrapPolicy::Kind::by_name);
  policy.names = {"wte", "lm_head", "h.0"};
  const auto units = by_name(tree, make_units(tree, policy));
  EXPECT_TRUE(units.at("root").contains("wte.weight"));
  EXPECT_FALSE(units.contains("wte")) << "no parameters remain for it";
  EXPECT_FALSE(units.contains("lm_head"));
}

TEST(Units, AnInnerUnitTakesItsParametersOut) {
  const ModuleTree tree = transformer(false);
  WrapPolicy policy = policy_of(WrapPolicy::Kind::by_regex);
  policy.pattern = R"(h\.\d+|h\.0\.mlp)";
  const auto units = by_name(tree, make_units(tree, policy));
  EXPECT_EQ(units.at("h.0"), std::set<std::string>{"h.0.attn.weight"});
  EXPECT_EQ(units.at("h.0.mlp"), std::set<std::string>{"h.0.mlp.weight"});
  EXPECT_EQ(units.at("h.1").size(), 2u);
}

TEST(Units, BySizeAsFsdp) {
  const ModuleTree tree = transformer(false);
  WrapPolicy policy = policy_of(WrapPolicy::Kind::by_size);
  policy.min_num_params = 90;  // units: embedding, both blocks (100 each), head; not the list of 200
  EXPECT_EQ(by_name(tree, make_units(tree, policy)), (Names{{"root", {"ln_f.weight"}},
                                                            {"wte", {"wte.weight"}},
                                                            {"h.0", {"h.0.attn.weight", "h.0.mlp.weight"}},
                                                            {"h.1", {"h.1.attn.weight", "h.1.mlp.weight"}},
                                                            {"lm_head", {"lm_head.weight"}}}));
  policy.min_num_params = 50;  // the feed-forward layers are units; 40 elements of attention remain in each block
  const auto units = by_name(tree, make_units(tree, policy));
  EXPECT_TRUE(units.contains("h.0.mlp"));
  EXPECT_FALSE(units.contains("h.0"));
  EXPECT_TRUE(units.at("root").contains("h.0.attn.weight"));
}

TEST(Units, IgnoredModulesAreInNoUnit) {
  const ModuleTree tree = transformer(false);
  WrapPolicy policy = policy_of(WrapPolicy::Kind::by_class);
  policy.classes = {"Gpt2Block"};
  policy.ignored_modules = {"h.1", "wte"};
  EXPECT_EQ(by_name(tree, make_units(tree, policy)),
            (Names{{"root", {"ln_f.weight", "lm_head.weight"}}, {"h.0", {"h.0.attn.weight", "h.0.mlp.weight"}}}));
}

void expect_error(const ModuleTree& tree, const WrapPolicy& policy, const std::string& part) {
  try {
    make_units(tree, policy);
    ADD_FAILURE() << "no error with '" << part << "'";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Units, WhatFitsNothingIsNamed) {
  const ModuleTree tree = transformer(false);
  WrapPolicy policy = policy_of(WrapPolicy::Kind::by_class);
  policy.classes = {"LlamaDecoderLayer"};
  expect_error(tree, policy,
               "no module of class 'LlamaDecoderLayer' to wrap; the model has Gpt, Embedding, ModuleList, Gpt2Block");
  policy.classes = {"LlamaDecoderLayer", "BertLayer"};
  expect_error(tree, policy, "no module of class 'LlamaDecoderLayer' or 'BertLayer' to wrap");
  policy = policy_of(WrapPolicy::Kind::by_name);
  policy.names = {"h.O"};
  expect_error(tree, policy, "did you mean 'h.0'?");
  policy = policy_of(WrapPolicy::Kind::by_regex);
  policy.pattern = "layers.*";
  expect_error(tree, policy, "matches no module");
  policy.pattern = "(";
  expect_error(tree, policy, "not a regular expression");
  policy = policy_of(WrapPolicy::Kind::by_size);
  policy.min_num_params = 0;
  expect_error(tree, policy, "at least 1");
  policy = {};
  policy.ignored_modules = {"ln_g"};
  expect_error(tree, policy, "'ln_f'");
  expect_error({}, {}, "without modules");
}

// Hugging Face's guide uses one list for two models.
TEST(Units, AClassOfAnotherModelIsPassedOver) {
  const ModuleTree tree = transformer(false);
  WrapPolicy policy = policy_of(WrapPolicy::Kind::by_class), own = policy;
  own.classes = {"Gpt2Block"};
  policy.classes = {"LlamaDecoderLayer", "Gpt2Block", "BertLayer"};
  EXPECT_EQ(by_name(tree, make_units(tree, policy)), by_name(tree, make_units(tree, own)));
  EXPECT_EQ(missing_classes(tree, policy), (std::vector<std::string>{"LlamaDecoderLayer", "BertLayer"}));
  EXPECT_EQ(missing_classes(tree, own), std::vector<std::string>{});
  policy.kind = WrapPolicy::Kind::none;
  EXPECT_EQ(missing_classes(tree, policy), std::vector<std::string>{});
}

TEST(Units, ShortClassNames) {
  EXPECT_EQ(short_class_name("tessera::models::LlamaBlockImpl"), "LlamaBlock");
  EXPECT_EQ(short_class_name("transformers.models.bert.modeling_bert.BertLayer"), "BertLayer");
  EXPECT_EQ(short_class_name("ns::Pair<ns::A, ns::B>"), "Pair");
  EXPECT_EQ(short_class_name("Impl"), "Impl");
}

/// Random trees, any policy: every parameter is in exactly one unit, and that unit's module is above all its uses.
RC_GTEST_PROP(Units, EveryParameterIsInOneUnitAboveAllItsUses, ()) {
  ModuleTree tree;
  const int modules = *rc::gen::inRange(1, 15), parameters = *rc::gen::inRange(0, 20);
  for (int i = 0; i < modules; ++i) {
    ModuleEntry entry;
    entry.parent = i == 0 ? 0 : static_cast<std::size_t>(*rc::gen::inRange(0, i));
    entry.name = i == 0 ? "" : "m" + std::to_string(i);
    entry.type = *rc::gen::element<std::string>("A", "B", "C");
    tree.modules.push_back(entry);
  }
  for (int i = 0; i < parameters; ++i) {
    tree.parameters.push_back({"p" + std::to_string(i), {*rc::gen::inRange<std::int64_t>(0, 50)}});
    const int uses = *rc::gen::inRange(1, 4);
    for (int use = 0; use < uses; ++use)
      tree.modules[static_cast<std::size_t>(*rc::gen::inRange(0, modules))].parameters.push_back(
          static_cast<std::size_t>(i));
  }
  WrapPolicy policy =
      policy_of(*rc::gen::element(WrapPolicy::Kind::none, WrapPolicy::Kind::by_size, WrapPolicy::Kind::by_regex));
  policy.min_num_params = *rc::gen::inRange<std::int64_t>(1, 60);
  policy.pattern = *rc::gen::element<std::string>(".*", "m?[0-4]*|m1.");
  const auto units = make_units(tree, policy);

  const auto is_above = [&](std::size_t top, std::size_t module) {
    while (module != top && module != 0) module = tree.modules[module].parent;
    return module == top;
  };
  std::vector<int> seen(tree.parameters.size(), 0);
  RC_ASSERT(units.at(0).name == "root");
  for (const Unit& unit : units) {
    RC_ASSERT(std::is_sorted(unit.parameters.begin(), unit.parameters.end()));
    for (const std::size_t parameter : unit.parameters) {
      ++seen[parameter];
      for (std::size_t i = 0; i < tree.modules.size(); ++i) {
        const auto& own = tree.modules[i].parameters;
        if (std::find(own.begin(), own.end(), parameter) != own.end()) RC_ASSERT(is_above(unit.module, i));
      }
    }
  }
  for (const int count : seen) RC_ASSERT(count == 1);
}

}  // namespace
}  // namespace tessera::layout
