// A resumed run reports which of its inputs have changed.

#include <gtest/gtest.h>

#include <tessera/train/loop/run_basis.h>

#include <string>
#include <vector>

namespace tessera::train {
namespace {

using Lines = std::vector<std::string>;

RunBasis small_basis() {
  return {.processes = 2,
          .rows_per_step = 8,
          .training_data = "10 rows, contents a1",
          .validation_data = "",
          .base_model = "2 files, 5 bytes, contents b1"};
}

Value after_a_file(const RunBasis& basis) { return parse_json(dump_json(to_json(basis)), "stored"); }

TEST(RunBasis, NothingHasChangedInTheSameRun) {
  EXPECT_EQ(changed_since(after_a_file(small_basis()), small_basis()), Lines());
}

TEST(RunBasis, WhatNumbersDependOnIsToldWithBothValues) {
  RunBasis now = small_basis();
  now.processes = 4;
  EXPECT_EQ(changed_since(after_a_file(small_basis()), now), Lines()) << "the same rows on more processes";
  now.rows_per_step = 16;
  now.training_data = "12 rows, contents a2";
  now.validation_data = "1 row, contents c1";  // newly added
  now.base_model = "2 files, 5 bytes, contents b2";
  EXPECT_EQ(changed_since(after_a_file(small_basis()), now),
            (Lines{"rows per step 16 of 4 processes (was 8 of 2)",
                   "training data 12 rows, contents a2 (was 10 rows, contents a1)",
                   "base model of the adapters 2 files, 5 bytes, contents b2 (was 2 files, 5 bytes, contents b1)"}));
  now.processes = 1;
  EXPECT_EQ(changed_since(after_a_file(small_basis()), now).front(), "rows per step 16 of 1 process (was 8 of 2)");
}

TEST(RunBasis, WhateverAFileHoldsIsTaken) {
  for (const char* text : {"null", "3", "[]", "{}", R"({"rows_per_step": "x", "processes": 2})",
                           R"({"training_data": 4, "base_model": null})", R"({"rows_per_step": 3})"})
    EXPECT_EQ(changed_since(parse_json(text, "stored"), small_basis()), Lines()) << text;
}

}  // namespace
}  // namespace tessera::train
