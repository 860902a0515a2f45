// Schedules of tessera::Accelerator step as Accelerate's do: compared with the learning rates of the Python library
// itself.
#include <tests/faces/loop.h>

#include <tessera/base/file.h>
#include <tessera/faces/accelerator.h>

#include <torch/optim/schedulers/lr_scheduler.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>

namespace {

using namespace tessera;
using namespace tessera::testing;

using Rates = std::vector<int>;  // in thousandths, after each micro-batch

struct Case {
  int ranks, accumulation;
  bool split_batches, step_with_optimizer;
  Rates rates;
};

// The output of tests/parity/accelerate_schedules.py under accelerate 1.15.0 and torch 2.15.0 (the script documents how
// to run it).
const Rates kEach = {200, 400, 390, 380, 370, 360, 350, 340, 330, 320};
const Rates kEverySecond = {0, 200, 200, 400, 390, 390, 380, 380, 370, 360};
const std::vector<Case> kGolden = {
    {1, 1, false, true, kEach},
    {1, 1, false, false, kEach},
    {1, 1, true, true, kEach},
    {1, 1, true, false, kEach},
    {1, 2, false, true, kEverySecond},
    {1, 2, false, false, kEach},
    {1, 2, true, true, kEverySecond},
    {1, 2, true, false, kEach},
    {2, 1, false, true, {400, 380, 360, 340, 320, 300, 280, 260, 240, 220}},
    {2, 1, false, false, kEach},
    {2, 1, true, true, kEach},
    {2, 1, true, false, kEach},
    {2, 2, false, true, {0, 400, 400, 380, 360, 360, 340, 340, 320, 300}},
    {2, 2, false, false, kEach},
    {2, 2, true, true, kEverySecond},
    {2, 2, true, false, kEach},
    {3, 1, false, true, {390, 360, 330, 300, 270, 240, 210, 180, 150, 120}},
    {3, 1, false, false, kEach},
    {3, 1, true, true, kEach},
    {3, 1, true, false, kEach},
    {3, 2, false, true, {0, 390, 390, 360, 330, 330, 300, 300, 270, 240}},
    {3, 2, false, false, kEach},
    {3, 2, true, true, kEverySecond},
    {3, 2, true, false, kEach},
};

constexpr double kRate = 0.4;
constexpr int kWarmup = 2, kTotal = 42;

/// LibTorch version of Python's LambdaLR with transformers' linear schedule.
class LinearLR : public torch::optim::LRScheduler {
 public:
  explicit LinearLR(torch::optim::Optimizer& optimizer) : LRScheduler(optimizer) {
    for (auto& group : optimizer.param_groups()) group.options().set_lr(0);  // as Python's constructor does
  }

 protected:
  std::vector<double> get_lrs() override {
    const int step = static_cast<int>(step_count_) + 1;
    const double factor =
        step < kWarmup ? 1.0 * step / kWarmup : std::max(0.0, 1.0 * (kTotal - step) / (kTotal - kWarmup));
    return std::vector<double>(get_current_lrs().size(), kRate * factor);
  }
};

/// The script's two passes over five batches.
template <class Model, class Optimizer, class Scheduler>
Rates run(Accelerator& accelerator, Model& model, Optimizer& optimizer, DataLoader& loader, Scheduler& scheduler) {
  EXPECT_EQ(loader.size(), 5);
  Rates rates;
  for (int pass = 0; pass < 2; ++pass)
    for (const auto& batch : loader) {
      const auto scope = accelerator.accumulate(model);
      accelerator.backward(model(batch[0]).square().mean());
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
      rates.push_back(static_cast<int>(std::lround(1000 * scheduler.get_last_lr().at(0))));
    }
  return rates;
}

class ScheduleSteps : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ScheduleSteps, ::testing::Values(1, 2, 3));

TEST_P(ScheduleSteps, are_those_of_accelerate) {
  run_ranks(GetParam(), [](comm::World& world) {
    int cases = 0;
    for (const Case& one : kGolden) {
      if (one.ranks != world.size()) continue;
      ++cases;
      const AcceleratorOptions options{.gradient_accumulation_steps = one.accumulation,
                                       .split_batches = one.split_batches,
                                       .step_scheduler_with_optimizer = one.step_with_optimizer};
      const DataLoader data(tensor_rows({at::ones({one.split_batches ? 60 : 20 * world.size(), 12})}),
                            {.batch_size = one.split_batches ? 12 : 4});
      const std::string what = concat(one.ranks, " ranks, accumulation ", one.accumulation, ", split_batches ",
                                      one.split_batches, ", step_with_optimizer ", one.step_with_optimizer);
      {
        Accelerator accelerator(options);
        const auto net = make_net();
        torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(kRate));
        LinearLR linear(sgd);
        auto [model, optimizer, loader, scheduler] = accelerator.prepare(net, sgd, data, linear);
        EXPECT_EQ(run(accelerator, model, optimizer, loader, scheduler), one.rates) << what << ", LibTorch's";
      }
      {
        Accelerator accelerator(options);
        auto [model, optimizer, loader] =
            accelerator.prepare(make_net(), OptimizerSettings{.name = "sgd", .lr = kRate}, data);
        // created once loader.size() is known, so prepared separately
        auto scheduler = accelerator.prepare(
            optim::Schedule{.type = ScheduleType::linear, .warmup_steps = kWarmup, .total_steps = kTotal});
        EXPECT_EQ(run(accelerator, model, optimizer, loader, scheduler), one.rates) << what;
      }
    }
    EXPECT_EQ(cases, 8);
  });
}

TEST(Schedules, prepared_alone_belong_to_the_first_model_without_one) {
  run_ranks(1, [](comm::World&) {
    const optim::Schedule falling{.type = ScheduleType::linear, .total_steps = 10};
    Accelerator accelerator;
    EXPECT_THROW(accelerator.prepare(falling), InputError) << "no model was prepared";
    auto [first, first_optimizer] = accelerator.prepare(make_net(), OptimizerSettings{.lr = 1});
    auto [second, second_optimizer] = accelerator.prepare(make_net(), OptimizerSettings{.lr = 2});
    auto first_scheduler = accelerator.prepare(falling), second_scheduler = accelerator.prepare(falling);
    second_scheduler.step();
    EXPECT_EQ(first_scheduler.get_last_lr(), std::vector<double>{1});
    EXPECT_EQ(second_scheduler.get_last_lr(), std::vector<double>{1.8});
    EXPECT_EQ(second_optimizer.learning_rates(), std::vector<double>{1.8});
    EXPECT_THROW(accelerator.prepare(falling), InputError) << "each has one";
    EXPECT_THROW(accelerator.prepare(make_net(), OptimizerSettings{},
                                     optim::Schedule{.type = ScheduleType::reduce_lr_on_plateau}),
                 InputError);
    EXPECT_THROW(accelerator.prepare(falling), InputError) << "the refused call prepared no model";
  });
}

TEST(Schedules, of_torch_that_are_past_what_was_saved_are_refused) {
  const TemporaryFolder folder;
  run_ranks(1, [&](comm::World&) {
    const auto net = make_net();
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(1.0));
    torch::optim::StepLR halving(sgd, 2, 0.5);
    Accelerator accelerator;
    auto [model, optimizer, scheduler] = accelerator.prepare(net, sgd, halving);
    const auto go = [&accelerator, &optimizer = optimizer, &model = model, &scheduler = scheduler](int steps) {
      for (int i = 0; i < steps; ++i) {
        accelerator.backward(model(at::ones({4, 12})).square().mean() * 1e-6);
        optimizer.step();
        scheduler.step();
        optimizer.zero_grad();
      }
    };
    const std::string state = path_join(folder.path(), "state");
    go(2);
    accelerator.save_state(state);
    accelerator.load_state(state);
    go(7);
    const auto rate = scheduler.get_last_lr();
    EXPECT_THROW(accelerator.load_state(state), InputError);
    EXPECT_EQ(scheduler.get_last_lr(), rate) << "nothing was loaded";
  });
}

}  // namespace
