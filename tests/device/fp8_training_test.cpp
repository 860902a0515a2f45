// Eight-bit runs on the simulated device: they have the CPU's losses, use the intended kernels for products and
// rounding, and never wait on the host.
#include <tests/device/device_training.h>

namespace tessera::testing {
namespace {

class DeviceFp8Training : public DeviceTraining {
 protected:
  /// Adam's first steps are as long for small gradients as for large ones, so at a rate of 1e-2 any rounding changes
  /// losses considerably: llama's by 2e-3 between CPU and device, and by 5e-3 between bf16 and eight bits.
  DeviceFp8Training() { learning_rate_ = "1e-3"; }

  /// Bounds of losses. For fp32: an eighth of the change from bf16 to eight bits at a rate of 1e-3 (4e-4, here llama's
  /// second step). Half of that change if the device's results between the products are bf16 and the CPU's are not.
  static constexpr double wide = 5e-5, narrow = 2e-4;

  static Strings fp8(const std::string& recipe) {
    return {"--fp8_format", "hybrid", "--fp8_recipe", recipe, "--overwrite_output_dir"};
  }
};

// Without --bf16 the maps' results are fp32 on both sides and their operands have the same bits, until the order of a
// sum moves a number across the midpoint between two eight-bit values: then losses differ by that number's
// contribution.
TEST_F(DeviceFp8Training, BesideFloat32) {
  for (const char* recipe : {"delayed", "tensorwise"}) {
    expect_same(1, gpt2() + batch(2, 2, 4) + fp8(recipe), wide);
    expect_same(1, llama() + batch(2, 1, 4) + fp8(recipe), wide);
  }
}

TEST_F(DeviceFp8Training, BesideBf16) {
  for (const char* recipe : {"delayed", "tensorwise"}) {
    expect_same(1, llama() + batch(2, 2, 4) + fp8(recipe) + Strings{"--bf16"}, narrow);
    expect_same(1, gpt2() + batch(2, 2, 4) + fp8(recipe) + Strings{"--bf16"}, narrow);
  }
  const std::string operations = report("cuda");
  EXPECT_TRUE(contains(operations, "aten::_scaled_mm.out Float8_e4m3fn fast bytes ")) << "forward";
  EXPECT_TRUE(contains(operations, "aten::_scaled_mm.out Float8_e5m2 bytes ")) << "gradients";
  EXPECT_TRUE(contains(operations, "aten::_scaled_mm.out Float8_e4m3fn bytes ")) << "the gradient of [in, out]";
  EXPECT_TRUE(contains(operations, " fp8_cast bytes "));
  EXPECT_FALSE(contains(operations, "aminmax"));
  EXPECT_FALSE(contains(operations, "Float8_e4m3fn to Float8_e4m3fn")) << "a transpose was copied";
  EXPECT_FALSE(contains(operations, "Float8_e4m3fn to Float bytes")) << "a product was not in eight bits";
}

/// Three of a block's seven maps read one input, and two another: four inputs, seven weights, seven gradients.
TEST_F(DeviceFp8Training, MapsOfOneInputShareItsRounding) {
  const auto casts = [&](int steps) {
    const std::string name = concat("casts", steps);
    train(name, true, 1, llama() + batch(2, 1, steps) + fp8("delayed") + Strings{"--bf16", "--save_strategy", "no"});
    std::size_t calls = 0;
    for (const std::string& line : split(report(name), '\n'))
      if (line.starts_with("OPERATION x") && contains(line, " fp8_cast bytes "))
        calls += std::stoul(line.substr(std::string("OPERATION x").size()));
    return calls;
  };
  EXPECT_EQ(casts(4) - casts(3), 2U * (4 + 7 + 7));
}

TEST_F(DeviceFp8Training, EightBitsAct) {
  const Strings bf16 = llama() + batch(2, 2, 2) + Strings{"--bf16", "--save_strategy", "no"};
  const Run without = train("bf16", true, 1, bf16), with = train("eight", true, 1, bf16 + fp8("delayed"));
  EXPECT_GT(std::abs(with.losses.at(2) - without.losses.at(2)), narrow * without.losses.at(2));
}

TEST_F(DeviceFp8Training, Sharded) {
  const Strings sharded = {"--bf16", "--fsdp", "full_shard"}, checkpointing = {"--gradient_checkpointing"};
  expect_same(2, llama() + batch(2, 1, 4) + fp8("delayed") + sharded, narrow);
  expect_same(2, gpt2() + batch(2, 1, 4) + fp8("tensorwise") + sharded + checkpointing, narrow);
}

TEST_F(DeviceFp8Training, CutOverTensorParallelRanks) {
  expect_same(2, llama() + batch(2, 1, 4) + fp8("delayed") + Strings{"--bf16", "--tp_size", "2"}, narrow);
}

TEST_F(DeviceFp8Training, TheHostWaitsForNothing) {
  EXPECT_EQ(waits_per_step("delayed", llama() + fp8("delayed") + Strings{"--bf16"}), 0U);
  EXPECT_EQ(waits_per_step("tensorwise", gpt2() + fp8("tensorwise") + Strings{"--bf16"}), 0U);
}

}  // namespace
}  // namespace tessera::testing
