// A failure during the setup of a run ends every rank with the same exit code; one rank reports it; nothing is written.

#include "harness.h"

#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/train/loop/setup.h>
#include <tessera/train/loop/trainer.h>

namespace tessera::testing {
namespace {

TEST(Agree, AllIsWell) {
  run_ranks(3, [](comm::World& world) {
    bool ran = false;
    comm::run_on_all_ranks(world.group(), [&] { ran = true; });
    EXPECT_TRUE(ran);
  });
}

TEST(Agree, SumsOfNumbersAreTheSameOnEveryRank) {
  run_ranks(3, [](comm::World& world) {
    const int rank = world.rank();
    std::vector<double> reals = {0.5 + rank, 0x1p900, rank == 1 ? -2.25 : 0};
    comm::all_reduce_numbers(world.group(), reals);
    EXPECT_EQ(reals, (std::vector<double>{4.5, 0x3p900, -2.25}));
    std::vector<std::int64_t> wide = {(std::int64_t{1} << 60) + rank, -rank};  // a double would lose the low digits
    comm::all_reduce_numbers(world.group(), wide);
    EXPECT_EQ(wide, (std::vector<std::int64_t>{3 * (std::int64_t{1} << 60) + 3, -3}));
    std::vector<std::int32_t> narrow = {rank + 1};
    comm::all_reduce_numbers(world.group(), narrow);
    EXPECT_EQ(narrow, (std::vector<std::int32_t>{6}));
    std::vector<double> none;
    comm::all_reduce_numbers(world.group(), none);
    EXPECT_TRUE(none.empty());
    const comm::Group pair = world.new_group({0, 2}, "pair");  // rank 1 keeps its own values
    std::vector<double> half = {0.25 * rank};
    if (rank != 1) comm::all_reduce_numbers(pair, half);
    EXPECT_EQ(half.front(), rank == 1 ? 0.25 : 0.5);
  });
}

TEST(Agree, TheLowestFailingRankSpeaksForAll) {
  run_ranks(4, [](comm::World& world) {
    try {
      comm::run_on_all_ranks(world.group(), [&] {
        if (world.rank() == 1) throw InputError("rank 1 has no such file");
        if (world.rank() == 3) throw std::runtime_error("something else");
      });
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::bad_input);
      EXPECT_STREQ(error.what(), world.rank() == 1 ? "rank 1 has no such file" : "");
    }
    // The group still works.
    at::Tensor one = at::ones({1});
    world.group().all_reduce(one).wait();
    EXPECT_EQ(one.item<float>(), 4);
  });
}

TEST(Agree, AFileThatOneRankLacksStopsAllOfThemBeforeTheyWrite) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "a line of text\n";
  const std::string file = path_join(folder.path(), "text.txt"), output = path_join(folder.path(), "out");
  write_file_atomically(file, text);
  run_ranks(3, [&](comm::World& world) {
    RunConfig config;
    config.model.config_name = "gpt2-tiny";
    config.model.config_overrides =
        "n_layer=1,n_embd=16,n_head=1,vocab_size=257,n_positions=16,bos_token_id=256,eos_token_id=256";
    config.model.tokenizer_name = "byte";
    config.data.train_file = world.rank() == 2 ? file + ".elsewhere.txt" : file;
    config.data.block_size = 16;
    config.optimization.per_device_train_batch_size = 1;
    config.optimization.max_steps = 1;
    config.output.output_dir = output;
    try {
      train::train(config, Value::make_object());
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::bad_input);
      EXPECT_EQ(std::string(error.what()).empty(), world.rank() != 2) << error.what();
    }
  });
  EXPECT_FALSE(path_exists(output));
}

}  // namespace
}  // namespace tessera::testing
