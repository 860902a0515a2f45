// Our families in stages, in double precision: the gradients equal those of one process under every schedule.
#include <tests/error_of.h>
#include <tests/tensor/families.h>

#include <tessera/layout/schedule/table.h>
#include <tessera/parallel/pipeline/executor.h>

namespace {

using namespace tessera;
using namespace tessera::testing;
namespace schedule = layout::schedule;

/// A cut with as many boundaries as possible inside blocks.
std::vector<layout::StagePart> between_halves(std::int64_t blocks, int stages) {
  std::vector<std::int64_t> halves;
  for (const layout::StagePart& part : layout::cut_evenly(2 * blocks, stages)) halves.push_back(part.blocks);
  if (halves.front() % 2 == 0) {
    ++halves.front();
    --halves.back();
  }
  return layout::parts_of_halves(halves);
}

class PipelineFamilies : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Family, PipelineFamilies,
                         ::testing::Values("gpt2", "llama_tied", "llama_untied", "llama_mtp", "llama_mtp_tied", "qwen3",
                                           "gemma2", "gemma3", "phi3", "olmo", "cohere2", "helium", "ernie4_5",
                                           "gpt_neox", "phi", "opt", "bert"));

TEST_P(PipelineFamilies, gradients_in_double_precision) {
  const Family& mine = family(GetParam());
  const auto batches_of = [](const models::LanguageModel& model) {
    std::vector<data::Batch> batches;
    for (std::int64_t row = 0; row < batch_rows; ++row) batches.push_back(batch_of(model, 0, row, 1));
    return batches;
  };
  const auto scale_of = [](const models::LanguageModel& model) {
    return 1.0 / static_cast<double>(scored(batch_of(model, 0, 0, batch_rows), model));
  };
  const auto whole = make(mine, at::kDouble, /*dropout=*/0.1);
  double wanted_loss = 0;
  for (const data::Batch& batch : batches_of(*whole)) {
    const at::Tensor loss = whole->loss(batch, scale_of(*whole));
    wanted_loss += loss.item<double>();
    loss.backward();
  }
  const std::vector<at::Tensor> whole_losses = whole->take_prediction_losses();
  ASSERT_EQ(whole_losses.size(), static_cast<std::size_t>(whole->prediction_depths()));
  const auto wanted = whole->named_parameters();
  double once = 0, twice = 0;  // number of elements of the model, and of the tied table, if any
  for (const auto& parameter : wanted) {
    once += static_cast<double>(parameter.value().numel());
    if (parameter.key() == whole->tied_parameter()) twice = static_cast<double>(parameter.value().numel());
  }
  run_ranks(2, [&](comm::World& world) {
    const auto check = [&](const schedule::ScheduleRow& row, bool with_halves) {
      const schedule::Schedule plan =
          schedule::make_schedule(row.name, {.ranks = 2, .stages_per_rank = 0, .micro_batches = batch_rows});
      const auto model = make(mine, at::kDouble, 0.1);
      const auto stages = with_halves ? between_halves(model->shape().blocks, plan.stages())
                                      : layout::cut_evenly(model->shape().blocks, plan.stages());
      const std::vector<data::Batch> batches = batches_of(*model);
      const double scale = scale_of(*model);
      std::vector<layout::StagePart> own;
      parallel::PipelineOptions options{.group = world.group()};
      for (const int stage : stages_of(plan, world.rank())) {
        own.push_back(stages[static_cast<std::size_t>(stage)]);
        options.stages[stage].forward = [&, part = own.back()](int i, const at::Tensor& input) {
          return model->run_stage(batches[static_cast<std::size_t>(i)], part, input, scale);
        };
      }
      model->keep_stages(own);
      at::Tensor elements = at::zeros({1}, at::kDouble);
      for (const at::Tensor& parameter : model->parameters()) elements += static_cast<double>(parameter.numel());
      world.group().all_reduce(elements).wait();
      EXPECT_EQ(elements.item<double>(), once + (plan.rank_of.front() == plan.rank_of.back() ? 0 : twice))
          << row.name << ": one rank has it, the other does not";
      parallel::PipelineExecutor executor(std::move(options));
      double loss = 0;
      for (const at::Tensor& each : executor.run(plan)) loss += each.item<double>();
      if (world.rank() == plan.rank_of.back()) {
        EXPECT_NEAR(loss, wanted_loss, 1e-11 * wanted_loss) << row.name;
      }
      const std::vector<at::Tensor> told = model->take_prediction_losses();
      EXPECT_EQ(told.size(), world.rank() == plan.rank_of.back() ? whole_losses.size() : 0U) << row.name;
      for (std::size_t i = 0; i < told.size(); ++i) {
        const double right = whole_losses[i].item<double>();
        EXPECT_NEAR(told[i].item<double>(), right, 1e-11 * right) << row.name;
      }
      // If two ranks hold a tied table, each has a part of its gradient.
      const std::string tied = plan.rank_of.front() == plan.rank_of.back() ? "" : model->tied_parameter();
      for (const auto& parameter : model->named_parameters()) {
        at::Tensor gradient = parameter.value().grad().clone();
        if (parameter.key() == tied) world.group().all_reduce(gradient).wait();
        const at::Tensor& right = wanted[parameter.key()].grad();
        EXPECT_LE((gradient - right).abs().max().item<double>(), 1e-11 * right.abs().max().item<double>() + 1e-15)
            << row.name << (with_halves ? ", cut blocks: " : ": ") << parameter.key();
      }
    };
    for (const schedule::ScheduleRow& row : schedule::schedules()) check(row, false);
    if (!whole->blocks_can_be_cut()) return;
    for (const schedule::ScheduleRow& row : schedule::schedules())
      if (std::string_view(row.name) != "gpipe" && std::string_view(row.name) != "looped_bfs") check(row, true);
  });
}

TEST_P(PipelineFamilies, blocks_that_cannot_be_cut_are_refused) {
  const auto model = make(family(GetParam()), at::kDouble, 0);
  const std::int64_t halves = 2 * model->shape().blocks;
  const std::string error = error_of([&] { model->keep_stages({layout::parts_of_halves({halves - 1, 1}).front()}); });
  if (model->blocks_can_be_cut())
    EXPECT_EQ(error, "");
  else
    EXPECT_NE(error.find("cannot be cut: its MLP does not follow its attention"), std::string::npos) << error;
}

}  // namespace
