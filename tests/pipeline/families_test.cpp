// Our families in stages, in double precision: gradients are those of one process under every schedule.
#include <tests/tensor/families.h>

#include <tessera/layout/schedule/table.h>
#include <tessera/parallel/pipeline/executor.h>

namespace {

using namespace tessera;
using namespace tessera::testing;
namespace schedule = layout::schedule;

class PipelineFamilies : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Family, PipelineFamilies,
                         ::testing::Values("gpt2", "llama_tied", "llama_untied", "qwen3", "gemma2", "gemma3", "phi3",
                                           "olmo", "cohere2", "gpt_neox", "phi", "opt", "bert"));

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
  const auto wanted = whole->named_parameters();
  run_ranks(2, [&](comm::World& world) {
    for (const schedule::ScheduleRow& row : schedule::schedules()) {
      const schedule::Schedule plan =
          schedule::make_schedule(row.name, {.ranks = 2, .stages_per_rank = 0, .micro_batches = batch_rows});
      const auto model = make(mine, at::kDouble, 0.1);
      const auto stages = layout::cut_evenly(model->shape().blocks, plan.stages());
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
      parallel::PipelineExecutor executor(std::move(options));
      double loss = 0;
      for (const at::Tensor& each : executor.run(plan)) loss += each.item<double>();
      if (world.rank() == plan.rank_of.back()) {
        EXPECT_NEAR(loss, wanted_loss, 1e-11 * wanted_loss) << row.name;
      }
      // A tied table that both ranks hold has a part of its gradient on each.
      const std::string tied = plan.rank_of.front() == plan.rank_of.back() ? "" : model->tied_parameter();
      for (const auto& parameter : model->named_parameters()) {
        at::Tensor gradient = parameter.value().grad().clone();
        if (parameter.key() == tied) world.group().all_reduce(gradient).wait();
        const at::Tensor& right = wanted[parameter.key()].grad();
        EXPECT_LE((gradient - right).abs().max().item<double>(), 1e-11 * right.abs().max().item<double>() + 1e-15)
            << row.name << ": " << parameter.key();
      }
    }
  });
}

}  // namespace
