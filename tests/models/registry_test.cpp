// The registry's entries for each family: classes of blocks, the architecture of a task, the shape for the memory
// formulas.
#include <gtest/gtest.h>
#include <tessera/architectures/architecture.h>
#include <tessera/base/error.h>
#include <tessera/base/value.h>
#include <tessera/layout/units.h>
#include <tessera/models/load.h>
#include <tessera/models/registry.h>
#include <tests/own_folder.h>

namespace {

using namespace tessera;

TEST(Registry, hugging_faces_classes_find_our_blocks) {
  layout::WrapPolicy policy{.kind = layout::WrapPolicy::Kind::by_class, .class_aliases = models::block_class_aliases()};
  layout::ModuleTree tree;
  tree.modules = {{.name = "", .type = "tessera::models::Llama", .parent = 0, .parameters = {}},
                  {.name = "layers.0", .type = "tessera::models::LlamaDecoderLayer", .parent = 0, .parameters = {0}}};
  tree.parameters = {{"layers.0.weight", {4}}};
  for (const char* name :
       {"LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer", "Qwen3DecoderLayer", "Gemma2DecoderLayer",
        "Gemma3DecoderLayer", "Phi3DecoderLayer", "Olmo2DecoderLayer", "GPTNeoXLayer"}) {
    policy.classes = {name};
    EXPECT_EQ(layout::make_units(tree, policy).size(), 2u) << name;
  }
  tree.modules[1].type = "tessera::models::Gpt2Block";
  policy.classes = {"GPT2Block"};
  EXPECT_EQ(layout::make_units(tree, policy).size(), 2u);
  policy.classes = {"BertLayer"};
  EXPECT_THROW(layout::make_units(tree, policy), InputError);
}

TEST(Registry, a_task_chooses_among_the_architectures_of_a_type) {
  using architectures::architecture_for, architectures::Task;
  EXPECT_STREQ(architecture_for("bert", Task::row_class)->architecture, "BertForSequenceClassification");
  EXPECT_STREQ(architecture_for("bert", Task::masked_token)->architecture, "BertForMaskedLM");
  EXPECT_STREQ(architecture_for("gpt2", Task::next_token)->architecture, "GPT2LMHeadModel");
  EXPECT_EQ(architecture_for("gpt2", Task::row_class), nullptr);
}

TEST(Registry, shapes_are_the_configurations) {
  const auto shape = [](const char* preset) { return models::make_language_model(models::preset(preset), 1)->shape(); };
  const layout::DecoderShape gpt2 = shape("gpt2-tiny"), llama = shape("llama-tiny");
  EXPECT_EQ(gpt2.blocks, 4);
  EXPECT_EQ(gpt2.width, 256);
  EXPECT_EQ(gpt2.inner, 4 * 256);
  EXPECT_EQ(gpt2.key_value_width, 256);
  EXPECT_FALSE(gpt2.gated);
  EXPECT_EQ(llama.blocks, 4);
  EXPECT_EQ(llama.width, 256);
  EXPECT_EQ(llama.inner, 688);
  EXPECT_EQ(llama.key_value_width, 2 * 64);
  EXPECT_TRUE(llama.gated);
}

}  // namespace
