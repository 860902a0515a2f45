/// \file
/// The real tree obeys the rules of text_rules.h, and a made-up tree that breaks one is caught.

#include <gtest/gtest.h>

#include <tests/paths.h>

#include "made_up_tree.h"
#include "text_rules.h"

namespace tessera::structure {
namespace {

using Violations = std::vector<std::string>;

void expect_nothing(const Violations& violations) {
  for (const std::string& violation : violations) ADD_FAILURE() << violation;
}

TEST(Text, NoLineIsTooWide) { expect_nothing(wide_lines(tessera::testing::source_path())); }

TEST(Text, NoFolderIsCrowded) { expect_nothing(crowded_folders(tessera::testing::source_path())); }

TEST(TextRules, ColumnsAreCodePoints) {
  std::string accents;
  for (int i = 0; i < 120; ++i) accents += "\u00e9";
  MadeUpTree tree;
  tree.add("tessera/a.cpp", accents + "\n");
  EXPECT_TRUE(wide_lines(tree.root()).empty());
  tree.add("tools/a.sh", "| " + std::string(200, 'x') + " |\n\n" + std::string(121, 'x') + "\n");
  EXPECT_EQ(wide_lines(tree.root()), Violations{"tools/a.sh:3: 121 columns; a line has at most 120"});
}

TEST(TextRules, AFolderHoldsFiftyFiles) {
  MadeUpTree tree;
  for (int i = 0; i < 50; ++i) tree.add("tests/x/f" + std::to_string(i) + ".cpp", "");
  tree.add("tests/x/inner/more.cpp", "");
  EXPECT_TRUE(crowded_folders(tree.root()).empty());
  tree.add("tests/x/one_more.py", "");
  EXPECT_EQ(crowded_folders(tree.root()).size(), 1u);
}

TEST(TextRules, AnEmptyTreeIsNotAPass) {
  MadeUpTree tree;
  EXPECT_THROW(wide_lines(tree.root()), std::runtime_error);
}

}  // namespace
}  // namespace tessera::structure
