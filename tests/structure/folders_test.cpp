/// \file
/// The folders of a layer are ordered, and a made-up tree with a cycle is caught.

#include <gtest/gtest.h>

#include <tests/paths.h>

#include "folder_rules.h"
#include "made_up_tree.h"
#include "tree.h"

namespace tessera::structure {
namespace {

using Lines = std::vector<std::string>;

TEST(Folders, HaveAnOrderInEachLayer) {
  // launch: agent, fleet and watch share the board; text and format: their parts read each other's files.
  const Lines unordered = {"launch", "text", "format", "train", "models"};
  for (const std::string& circle : folder_circles(tessera::testing::source_path(), unordered)) ADD_FAILURE() << circle;
}

TEST(Folders, NothingInDataAsksADatasetWhatItIs) {
  const std::string root = tessera::testing::source_path();
  for (const std::string& path : sources(root)) {
    if (!path.starts_with("tessera/data/")) continue;
    const Lines lines = lines_of(root, path);
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].find("dynamic_cast") != std::string::npos)
        ADD_FAILURE() << at(path, i) << "query a dataset through its interface (Dataset::complete), not by its type";
    }
  }
}

TEST(FolderRules, ACircleIsNamedWithItsFiles) {
  MadeUpTree tree;
  tree.add("tessera/comm/ring/a.h", "#include <tessera/comm/c10d/b.h>\n");
  tree.add("tessera/comm/c10d/b.cpp", "#include <tessera/comm/shm/c.h>\n");
  tree.add("tessera/comm/shm/c.h", "");
  EXPECT_EQ(folder_circles(tree.root()), Lines{});
  tree.add("tessera/comm/shm/c.cpp", "#include <tessera/comm/ring/a.h>\n");
  const Lines found = folder_circles(tree.root());
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0],
            "tessera/comm: c10d -> shm (tessera/comm/c10d/b.cpp) -> ring (tessera/comm/shm/c.cpp) -> c10d "
            "(tessera/comm/ring/a.h)");
  EXPECT_EQ(folder_circles(tree.root(), {"comm"}), Lines{});
}

TEST(FolderRules, HeadersOfTheLayerAreItsGroundAndSourcesItsFront) {
  MadeUpTree tree;
  tree.add("tessera/nn/linear.h", "");
  tree.add("tessera/nn/moe/experts.h", "#include <tessera/nn/linear.h>\n");
  tree.add("tessera/nn/linear.cpp", "#include <tessera/nn/moe/experts.h>\n");
  tree.add("tessera/nn/nn.h", "#include <tessera/nn/moe/experts.h>\n");
  EXPECT_EQ(folder_circles(tree.root()), Lines{});
  tree.add("tessera/nn/model.h", "#include <tessera/nn/moe/experts.h>\n");
  EXPECT_EQ(folder_circles(tree.root()).size(), 2u);
}

}  // namespace
}  // namespace tessera::structure
