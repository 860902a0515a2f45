// A vision-language model under every strategy: the weights equal those of one process even if only some ranks have
// images in a step.
#include <tests/sharding/job.h>

#include <tessera/base/file.h>
#include <tests/paths.h>

namespace {

using namespace tessera;
using namespace tessera::testing;

constexpr std::int64_t image_token = 66, image_tokens = 4, length = 8;

/// In even steps each row of the first half has an image; in odd steps no row has one.
data::Batch rows_of(int step, std::int64_t i, std::int64_t n) {
  at::Generator generator = at::detail::getDefaultCPUGenerator().clone();
  generator.set_current_seed(900 + static_cast<std::uint64_t>(step));
  at::Tensor ids = at::randint(0, image_token, {task_rows, length}, generator, at::kLong);
  const at::Tensor pixels = at::randn({task_rows / 2, 3, 8, 8}, generator);
  const std::int64_t with_images = step % 2 == 0 ? task_rows / 2 : 0;
  ids.narrow(0, 0, with_images).narrow(1, 1, image_tokens).fill_(image_token);
  const std::int64_t rows = task_rows / n, first = i * rows;
  data::Batch batch;
  batch.ids = ids.narrow(0, first, rows);
  batch.labels = batch.ids.masked_fill(batch.ids.eq(image_token), -100);
  if (const std::int64_t own = std::clamp<std::int64_t>(with_images - first, 0, rows); own > 0)
    batch.images = pixels.narrow(0, first, own);
  return batch;
}

Trained make_llava(at::ScalarType) {
  const auto model = models::load_language_folder(source_path("tests/fixtures/llava_tiny"));
  return {model, [model = model.get()](int step, std::int64_t i, std::int64_t n) {
            const data::Batch batch = rows_of(step, i, n);
            return model->loss(batch, 1.0 / static_cast<double>(batch.ids.size(0) * (length - 1)));
          }};
}

const Task llava{"llava", make_llava, {"LlamaDecoderLayer", "ClipEncoderLayer"}, false};

TEST(ShardedLlava, every_strategy_has_the_bits_of_one_process) {
  constexpr int ranks = 2, steps = 4;
  const Record alone = train_alone(llava, Rule::adamw, ranks, steps);
  const auto begin = make_llava(at::kFloat).module->named_parameters();
  EXPECT_TRUE(at::equal(alone.weights.at("vision_tower.vision_model.pre_layrnorm.weight"),
                        begin["vision_tower.vision_model.pre_layrnorm.weight"]));
  EXPECT_FALSE(at::equal(alone.weights.at("multi_modal_projector.linear_1.weight"),
                         begin["multi_modal_projector.linear_1.weight"]));
  run_ranks(ranks, [&](comm::World& world) {
    for (const Form& form : forms()) {
      ShardingOptions options{.strategy = form.strategy, .shard_group_size = form.group(ranks), .reshard_alone = true};
      options.wrap = by_class(llava.units);
      options.logical_shards = ranks;
      const Record got = train_job(world, llava, std::move(options), {.rule = Rule::adamw, .steps = steps});
      expect_same_bits(world, got, alone, form.name);
    }
  });
}

}  // namespace
