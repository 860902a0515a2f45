// tessera checkpoint on folders with sharded optimizer states, one file per rank.

#include "program.h"

namespace tessera::testing {
namespace {

class ShardedCheckpoint : public ToolTest {
 protected:
  /// The same run on two processes, saved in parts, and on one process, saved whole: the bits are equal because of the
  /// fixed order.
  ShardedCheckpoint() {
    const Strings order = {"--deterministic_reduce", "--logical_shards", "2"};
    run("parts", order + Strings{"--num_processes", "2", "--fsdp", "full_shard auto_wrap"});
    run("whole", order + Strings{"--save_state_dict_type", "full"});
  }
  void run(const std::string& output, const Strings& more) const {
    const auto done =
        tessera(training(output, Strings{"--per_device_train_batch_size", "3", "--max_steps", "2"} + more));
    EXPECT_EQ(done.exit_code, 0) << done.err;
  }
  std::string checkpoint(const std::string& output) const { return path_join(at(output), "checkpoint-2"); }
};

TEST_F(ShardedCheckpoint, IsInspectedComparedAndMerged) {
  const std::string parts = checkpoint("parts"), whole = checkpoint("whole");
  ASSERT_TRUE(path_exists(path_join(parts, "optimizer-00002-of-00002.safetensors")));
  ASSERT_TRUE(path_exists(path_join(whole, "optimizer.safetensors")));

  const auto text = tessera({"checkpoint", "inspect", parts});
  EXPECT_TRUE(contains(text.out, "in pieces, 2 files")) << text.out << text.err;
  EXPECT_TRUE(contains(text.out, "2 ranks; any number can resume it")) << text.out;
  EXPECT_TRUE(contains(text.out, "trained with full_shard on 2 ranks")) << text.out;
  const Value in_parts = parse_json(tessera({"checkpoint", "inspect", parts, "--json"}).out, ""),
              in_one = parse_json(tessera({"checkpoint", "inspect", whole, "--json"}).out, "");
  EXPECT_EQ(in_parts.at("ranks").as_int(), 2);
  EXPECT_EQ(in_one.find("ranks"), nullptr);
  EXPECT_EQ(in_parts.at("mesh").at("shard_ranks").as_int(), 2);
  EXPECT_EQ(in_parts.at("configuration").at("optimization").at("max_steps").as_int(), 2);
  for (const char* key : {"optimizer_tensors", "optimizer_bytes", "parameters", "tensors", "step"})
    EXPECT_EQ(in_parts.at(key).as_int(), in_one.at(key).as_int()) << key;

  const auto equal = tessera({"checkpoint", "diff", parts, whole});
  EXPECT_EQ(equal.exit_code, 0) << equal.out << equal.err;
  EXPECT_TRUE(contains(equal.out, "optimizer state: ")) << equal.out;

  const auto merged = tessera({"checkpoint", "merge", parts, at("merged")});
  ASSERT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_TRUE(read_file(path_join(at("merged"), "model.safetensors")) ==
              read_file(path_join(whole, "model.safetensors")));

  // Changes one number in one part.
  const std::string file = path_join(parts, "optimizer-00002-of-00002.safetensors");
  std::string bytes = read_file(file);
  bytes.back() ^= 0x40;
  write_file_atomically(file, bytes);
  const auto different = tessera({"checkpoint", "diff", parts, whole});
  EXPECT_EQ(different.exit_code, 1) << different.out;
  EXPECT_TRUE(contains(different.out, "tensors, 1 different")) << different.out;
  EXPECT_TRUE(contains(different.out, "1 of ")) << different.out;

  remove_tree(file);
  const auto missing = tessera({"checkpoint", "diff", parts, whole});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_TRUE(contains(missing.err, "optimizer-00002-of-00002.safetensors")) << missing.err;
}

}  // namespace
}  // namespace tessera::testing
