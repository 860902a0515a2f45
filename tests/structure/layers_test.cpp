/// \file
/// The real tree obeys the rules of layer_rules.h; and a made-up tree that breaks one is caught, at the right line.

#include <gtest/gtest.h>

#include <tessera/base/file.h>
#include <tests/paths.h>
#include <stdexcept>

#include "layer_rules.h"
#include "made_up_tree.h"

namespace tessera::structure {
namespace {

TEST(Layers, TheTreeObeysTheRules) {
  for (const std::string& violation : check_tree(tessera::testing::source_path())) ADD_FAILURE() << violation;
}

/// The violations of a tree that holds only this file.
std::vector<std::string> violations_of(const std::string& path, const std::string& text) {
  MadeUpTree tree;
  tree.add(path, text);
  return check_tree(tree.root());
}

void expect_one(const std::string& path, const std::string& text, const std::string& begin, const std::string& rule) {
  const auto found = violations_of(path, text);
  ASSERT_EQ(found.size(), 1u) << path << ": " << text;
  EXPECT_TRUE(found[0].starts_with(begin)) << found[0];
  EXPECT_NE(found[0].find(rule), std::string::npos) << found[0];
}

void expect_none(const std::string& path, const std::string& text) {
  for (const std::string& violation : violations_of(path, text)) ADD_FAILURE() << violation;
}

TEST(LayerRules, ArrowsGoDown) {
  expect_none("tessera/train/a.cpp",
              "#include <tessera/models/b.h>\n#include <tessera/base/error.h>\n#include <tessera/train/c.h>\n");
  expect_none("tessera/kernels/cpu/a.cpp", "#include <tessera/kernels/cpu/b.h>\n#include <tessera/layout/flat.h>\n");
  expect_one("tessera/nn/a.h", "#pragma once\n\n#include <tessera/train/b.h>\n",
             "tessera/nn/a.h:3: <tessera/train/b.h>: ", "an include arrow only goes down: train is above nn");
  expect_one("tessera/base/a.cpp", "#include <tessera/layout/flat.h>\n",
             "tessera/base/a.cpp:1: ", "layout is above base");
  expect_one("tessera/layout/a.cpp", "  #  include \"tessera/text/b.h\"\n",
             "tessera/layout/a.cpp:1: ", "text is above layout");
  expect_one("tessera/comm/a.cu", "#include <tessera/nn/b.h>\n", "tessera/comm/a.cu:1: ", "nn is above comm");
}

TEST(LayerRules, FeaturesOfARunAreAlone) {
  const std::string folder = "tessera/train/features/";
  expect_none(folder + "a.cpp",
              "#include <tessera/train/features/a.h>\n#include <tessera/train/features/run_feature.h>\n");
  expect_none(folder + "features.cpp",
              "#include <tessera/train/features/a.h>\n#include <tessera/train/features/b.h>\n");
  expect_one(folder + "a.cpp", "#include <tessera/train/features/b.h>\n", folder + "a.cpp:1: ", "knows another one");
  expect_one(folder + "a.cpp", "#include <tessera/train/loop/setup.h>\n", folder + "a.cpp:1: ", "do not know the loop");
}

TEST(LayerRules, EachLayerMayIncludeExactlyItselfAndThoseBelow) {
  const std::vector<std::string> order = {"base",       "layout", "text",     "format", "corpus", "config", "launch",
                                          "storage",    "plan",   "kernels",  "wire",   "comm",   "nn",     "data",
                                          "checkpoint", "optim",  "parallel", "models", "train"};
  for (std::size_t from = 0; from < order.size(); ++from) {
    for (std::size_t to = 0; to < order.size(); ++to) {
      const auto found =
          violations_of("tessera/" + order[from] + "/x.cpp", "#include <tessera/" + order[to] + "/y.h>\n");
      const bool forbidden = order[from] == "checkpoint" && order[to] == "launch";
      EXPECT_EQ(found.empty(), to <= from && !forbidden) << order[from] << " -> " << order[to];
    }
  }
}

TEST(LayerRules, TheCInterfaceIsForOthers) {
  expect_none("tessera/c/a.cpp", "#include <tessera/wire/b.h>\n#include <tessera/c/b.h>\n");
  expect_one("tessera/comm/a.cpp", "#include <tessera/c/b.h>\n", "tessera/comm/a.cpp:1: ", "no layer includes it");
  expect_one("tessera/c/a.cpp", "#include <tessera/comm/b.h>\n", "tessera/c/a.cpp:1: ", "comm is above c");
}

TEST(LayerRules, QuotedIncludesAreResolvedBesideTheFile) {
  MadeUpTree tree;
  tree.add("tessera/base/a.cpp", "#include \"b.h\"\n");
  tree.add("tessera/base/b.h", "#pragma once\n");
  EXPECT_TRUE(check_tree(tree.root()).empty());
  expect_one("tessera/base/a.cpp", "#include \"../train/b.h\"\n", "tessera/base/a.cpp:1: ", "without '..'");
}

TEST(LayerRules, TorchFreeMeansTorchFree) {
  for (const char* header : {"ATen/core/Tensor.h", "torch/nn/module.h", "c10/core/Device.h", "caffe2/x.h"}) {
    const std::string text = std::string("#include <") + header + ">\n";
    for (const char* layer : {"base", "layout", "text", "format", "corpus", "config", "launch", "storage", "plan",
                              "kernels/cpu", "kernels/cuda", "wire", "c"}) {
      expect_one(std::string("tessera/") + layer + "/a.cpp", text,
                 std::string("tessera/") + layer + "/a.cpp:1: ", "LibTorch's headers are not");
    }
    expect_one("tools/tessera/main.cpp", text, "tools/tessera/main.cpp:1: ", "LibTorch's headers are not");
    expect_none("tessera/comm/a.cpp", text);
    expect_none("tools/tessera/torch/a.cpp", text);
  }
  expect_one("tools/tessera/main.cpp", "#include <tessera/train/a.h>\n",
             "tools/tessera/main.cpp:1: ", "the program is torch-free");
  expect_none("tools/tessera/main.cpp",
              "#include <tessera/launch/agent/launcher.h>\n#include <tools/tessera/commands.h>\n");
  expect_none("tools/tessera/torch/a.cpp", "#include <tessera/train/a.h>\n");
}

TEST(LayerRules, HeadersThatHaveTheirPlace) {
  expect_one("tessera/models/a.h", "#include <torch/torch.h>\n", "tessera/models/a.h:1: ", "torch/torch.h costs");
  expect_one("tessera/comm/a.cpp", "#include <gloo/context.h>\n",
             "tessera/comm/a.cpp:1: ", "only tessera/comm/gloo.cpp");
  expect_one("tessera/comm/a.cpp", "#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>\n",
             "tessera/comm/a.cpp:1: ", "only tessera/comm/gloo.cpp");
  expect_none("tessera/comm/gloo.cpp", "#include <gloo/context.h>\n");
  expect_one("tessera/base/a.cpp", "#include <fmt/format.h>\n", "tessera/base/a.cpp:1: ", "another fmt");
}

TEST(LayerRules, NeitherToolsNorTestsNorTheUmbrella) {
  expect_one("tessera/base/a.cpp", "#include <tools/tessera/commands.h>\n",
             "tessera/base/a.cpp:1: ", "does not include the tools");
  expect_one("tessera/train/a.cpp", "#include <tests/launch/agent.h>\n",
             "tessera/train/a.cpp:1: ", "does not include tests");
  expect_one("tessera/train/a.cpp", "#include <tessera/tessera.h>\n", "tessera/train/a.cpp:1: ", "for users");
  expect_none("tessera/faces.h", "#include <tessera/faces/a.h>\n");
  expect_none("tessera/faces/a.h", "#include <tessera/train/a.h>\n");
  expect_one("tessera/train/a.cpp", "#include <tessera/faces/a.h>\n",
             "tessera/train/a.cpp:1: ", "faces is above train");
  expect_one("tessera/faces/a.cpp", "#include <tessera/faces.h>\n", "tessera/faces/a.cpp:1: ", "for users");
  expect_none("tessera/tessera.h", "#include <tessera/train/a.h>\n#include <tessera/base/error.h>\n");
}

TEST(LayerRules, AnUnknownLayerIsCaught) {
  expect_one("tessera/wizardry/a.cpp", "", "tessera/wizardry/a.cpp:1: ", "unknown layer");
  expect_one("tessera/train/a.cpp", "#include <tessera/wizardry/a.h>\n", "tessera/train/a.cpp:1: ", "unknown layer");
}

TEST(LayerRules, CommentsAreNoIncludes) {
  expect_none("tessera/base/a.cpp",
              "// #include <tessera/train/b.h>\n/*\n#include <tessera/train/b.h>\n*/\n/// text /* here\nint x;\n");
  expect_one("tessera/base/a.cpp", "/* one line */\n/// a glob: a/*.h\n#include <tessera/train/b.h>\n",
             "tessera/base/a.cpp:3: ", "above base");
}

TEST(LayerRules, AnEmptyTreeIsNotAPass) {
  const TemporaryFolder folder;
  EXPECT_THROW(check_tree(folder.path()), std::runtime_error);
}

}  // namespace
}  // namespace tessera::structure
