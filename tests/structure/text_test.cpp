/// \file
/// The real tree obeys the rules of text_rules.h, and a made-up tree that breaks one is caught.

#include <gtest/gtest.h>

#include <tests/paths.h>

#include "made_up_tree.h"
#include "size_rules.h"
#include "text_rules.h"

namespace tessera::structure {
namespace {

using Violations = std::vector<std::string>;

void expect_nothing(const Violations& violations) {
  for (const std::string& violation : violations) ADD_FAILURE() << violation;
}

TEST(Text, NoLineIsTooWide) { expect_nothing(wide_lines(tessera::testing::source_path())); }

TEST(Text, LongFilesGiveAReason) { expect_nothing(long_files(tessera::testing::source_path())); }

TEST(Text, NoFolderIsCrowded) { expect_nothing(crowded_folders(tessera::testing::source_path())); }

TEST(Text, EachFolderSaysWhatItIsFor) { expect_nothing(unexplained_folders(tessera::testing::source_path())); }

TEST(Text, CommentsSayWhatTheySpeakOf) { expect_nothing(headless_comments(tessera::testing::source_path())); }

TEST(Text, FilesAreReadWithoutStrayExceptions) { expect_nothing(throwing_readers(tessera::testing::source_path())); }

TEST(Text, SixWalksOfFiveFiles) { expect_nothing(wrong_walks(tessera::testing::source_path())); }

TEST(Sizes, PartsOfARunAreSmall) {
  expect_nothing(long_functions(tessera::testing::source_path()));
  expect_nothing(large_classes(tessera::testing::source_path()));
}

TEST(SizeRules, LongFunctionsAndLargeClassesAreFound) {
  const auto lines = [](int count, const std::string& line) {
    std::string text;
    for (int i = 0; i < count; ++i) text += line + "\n";
    return text;
  };
  MadeUpTree tree;
  tree.add("tessera/train/a.cpp", "namespace a {\nint f() {\n" + lines(58, "  x();\n") + "}\n}  // namespace a\n");
  tree.add("tessera/nn/b.cpp", "int f() {\n" + lines(100, "  x();") + "}\n");
  EXPECT_EQ(long_functions(tree.root()).size(), 1u) << "empty lines count";
  tree.add("tessera/train/a.cpp", "int f() {\n" + lines(58, "  x();") + "}\n");
  EXPECT_TRUE(long_functions(tree.root()).empty());
  tree.add("tessera/train/a.cpp", "class A {\n  int f() {\n" + lines(59, "    x();") + "  }\n};\n");
  EXPECT_EQ(long_functions(tree.root()),
            Violations{"tessera/train/a.cpp:2: a function of 61 lines; a part of a run has at most 60"});

  tree.add("tessera/train/b.h", "class B : public A {\n public:\n  int f(int x_);\n\n private:\n" +
                                    lines(9, "  int a_ = 1, b_;") + "  C c_{};\n  D d_;  // e_;\n};\n");
  EXPECT_TRUE(large_classes(tree.root()).empty());
  tree.add("tessera/train/b.h", "class B {\n" + lines(10, "  int a_ = 1, b_;") + "  std::optional<int> c_;\n};\n");
  EXPECT_EQ(large_classes(tree.root()),
            Violations{"tessera/train/b.h:1: a class of 21 data members; a part of a run has at most 20"});
}

TEST(TextRules, AWalkHasAtMostFiveFiles) {
  MadeUpTree tree;
  std::string walks;
  for (int i = 0; i < 6; ++i) walks += "### Walk: a thing\n1. `tessera/f0.h`, `tessera/f0.cpp` begin.\n";
  for (int i = 0; i < 6; ++i) tree.add("tessera/f" + std::to_string(i) + ".h", "");
  tree.add("tessera/f0.cpp", "");
  tree.add("CONTRIBUTING.md", walks);
  EXPECT_TRUE(wrong_walks(tree.root()).empty());
  for (int i = 1; i < 6; ++i) walks += "2. `tessera/f" + std::to_string(i) + ".h`\n";
  tree.add("CONTRIBUTING.md", walks);
  EXPECT_EQ(wrong_walks(tree.root()).size(), 1u);
  tree.add("CONTRIBUTING.md", "### Walk: alone\n`tessera/f1.h`\n");
  EXPECT_EQ(wrong_walks(tree.root()).size(), 1u);
}

TEST(TextRules, LongFilesGiveAReason) {
  MadeUpTree tree;
  std::string body;
  for (int i = 0; i < 600; ++i) body += "int x" + std::to_string(i) + ";\n";
  tree.add("tests/a.cpp", body);
  EXPECT_EQ(long_files(tree.root()), Violations{});
  tree.add("tests/a.cpp", body + "int y;\n");
  ASSERT_EQ(long_files(tree.root()).size(), 1u);
  EXPECT_EQ(long_files(tree.root())[0].find("tests/a.cpp:601: the file has 601 lines"), 0u);
  tree.add("tests/a.cpp",
           "#pragma once\n/// \\file\n/// A table. Long because: every entry stands on a line.\n\n" + body);
  EXPECT_EQ(long_files(tree.root()), Violations{});
  tree.add("tests/a.cpp", "int y;\n// Long because: too late\n" + body);
  EXPECT_EQ(long_files(tree.root()).size(), 1u);
}

TEST(TextRules, AFolderIsExplainedByAHeader) {
  MadeUpTree tree;
  tree.add("tessera/nn/a.h", "#pragma once\n/// \\file\n/// See nn/: not it.\n#include <b>\n/// nn/: too late.\n");
  EXPECT_EQ(unexplained_folders(tree.root()).size(), 1u);
  tree.add("tessera/nn/b.h", "#pragma once\n/// \\file\n/// nn/: operations.\n");
  EXPECT_TRUE(unexplained_folders(tree.root()).empty());
}

TEST(TextRules, CommentsSayWhatTheySpeakOf) {
  MadeUpTree tree;
  tree.add("tessera/a.h", "int x;  ///< bytes\n        ///< of all ranks\n/// The sum\n/// of all.\nint of = 1;\n");
  EXPECT_TRUE(headless_comments(tree.root()).empty());
  tree.add("tessera/a.h", "int x;  ///< of all ranks\n\n/// Of all.\nint y;\n");
  EXPECT_EQ(headless_comments(tree.root()).size(), 2u);
}

TEST(TextRules, ReadersThatThrowAreFound) {
  MadeUpTree tree;
  tree.add("tessera/launch/a.cpp", "f();\nreturn {std::istreambuf_iterator<char>(in), {}};\n");
  tree.add("tests/a.cpp", "return {std::istreambuf_iterator<char>(in), {}};\n");
  EXPECT_EQ(throwing_readers(tree.root()),
            Violations{"tessera/launch/a.cpp:2: use read_file() or read_file_or_empty() of tessera/base/file.h"});
}

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
