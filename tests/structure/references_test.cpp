/// \file
/// Every reference in documents and comments exists, and a made-up tree with stale references is caught.

#include <gtest/gtest.h>

#include <tests/paths.h>

#include "made_up_tree.h"
#include "references.h"

namespace tessera::structure {
namespace {

TEST(References, NoneIsStale) {
  for (const std::string& stale : stale_references(tessera::testing::source_path())) ADD_FAILURE() << stale;
}

class ReferenceRules : public ::testing::Test {
 protected:
  ReferenceRules() {
    tree_.add("Makefile", "build: deps\n\ttrue\n");
    tree_.add("tessera/base/file.h", "#pragma once\n");
    tree_.add("docs/page.md", "text\n");
  }
  std::vector<std::string> of_document(const std::string& text) {
    tree_.add("docs/other.md", text + "\n");
    return stale_references(tree_.root());
  }
  std::vector<std::string> of_comment(const std::string& text) {
    tree_.add("tessera/base/a.cpp", "int x;  // " + text + "\n");
    return stale_references(tree_.root());
  }
  MadeUpTree tree_;
};

TEST_F(ReferenceRules, WhatIsThereMayBeNamed) {
  EXPECT_EQ(of_document("`tessera/base/file.h`, base/file.h, file.h, tessera/base, `make build`, [page](page.md#part), "
                        "[x](https://example.org/y.h), tests/FOLDER_tests, tessera/NAME/*.cpp, torch/torch.h, "
                        "h.0.weight, <tessera/base/file.h>."),
            std::vector<std::string>{});
  EXPECT_EQ(of_comment("base/file.h says why; see docs/page.md."), std::vector<std::string>{});
}

TEST_F(ReferenceRules, WhatIsNotThereIsNamed) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(of_document("`tessera/base/gone.h`"), Lines{"docs/other.md:1: tessera/base/gone.h is not there"});
  EXPECT_EQ(of_document("x\n`make gone`"), Lines{"docs/other.md:2: make has no target gone"});
  EXPECT_EQ(of_document("`make gone64-now`"), Lines{"docs/other.md:1: make has no target gone64-now"});
  EXPECT_EQ(of_document("[x](gone.md)"), Lines{"docs/other.md:1: the link gone.md leads nowhere"});
  EXPECT_EQ(of_document("run gone_tests"), Lines{"docs/other.md:1: gone_tests: there is no folder of such tests"});
  EXPECT_EQ(of_document("DESIGN.md"), Lines{"docs/other.md:1: DESIGN.md: readers have docs/ only"});
  of_document("text");
  EXPECT_EQ(of_comment("see base/gone.h"), Lines{"tessera/base/a.cpp:1: base/gone.h is not there"});
  EXPECT_EQ(of_comment("see gone.cpp"), Lines{"tessera/base/a.cpp:1: gone.cpp: no file of the tree has this name"});
}

}  // namespace
}  // namespace tessera::structure
