// Measured times of batches under each schedule, with stages that sleep for a known time, equal for F, I and W.
#include <tests/pipeline/chain.h>

#include <torch/csrc/autograd/custom_function.h>

#include <chrono>
#include <thread>

namespace {

using namespace tessera;
using namespace tessera::testing;
using layout::schedule::Schedule;
using parallel::PipelineExecutor;
using parallel::PipelineOptions;

void rest(double ms) { std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms)); }

/// Sleeps for the same time in forward, in backward, and where linear maps compute their weight gradients.
struct Sleeper : torch::autograd::Function<Sleeper> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            double ms) {
    rest(ms);
    ctx->saved_data["ms"] = ms;
    if (const auto& late = nn::WeightGradients::current()) ctx->saved_data["late"] = c10::IValue::make_capsule(late);
    return x + 1;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& gradients) {
    const double ms = ctx->saved_data["ms"].toDouble();
    rest(ms);
    const auto form = [ms] {
      rest(ms);
      return std::vector<at::Tensor>{at::ones({1})};
    };
    if (const auto found = ctx->saved_data.find("late"); found != ctx->saved_data.end()) {
      const auto late = c10::static_intrusive_pointer_cast<nn::WeightGradients>(found->second.toCapsule());
      if (late->deferring()) {
        late->leave(1, 1, gradients[0], form);
        return {gradients[0], at::Tensor(), at::Tensor()};
      }
    }
    return {gradients[0], form()[0], at::Tensor()};
  }
};

const std::vector<const char*> names = {"gpipe", "1f1b", "interleaved", "zb-h1", "zbv"};

/// Schedules that should be equally fast may differ by up to 4 %.
bool in_order(const std::vector<double>& ms) {
  const double gpipe = ms[0], plain = ms[1], interleaved = ms[2], h1 = ms[3], zbv = ms[4];
  return zbv <= 1.04 * h1 && h1 < interleaved && interleaved < plain && plain <= 1.04 * gpipe && gpipe <= 1.04 * plain;
}

// Other processes may disturb the measurement, so the best of up to most_rounds rounds counts.
TEST(PipelineTimes, AreInTheOrderOfTheBubbles) {
  constexpr int ranks = 4, micro_batches = 8, most_rounds = 16;
  // F of a rank's part of the model, which may be several stages: much longer than the overhead
  const double ms = patience(6);
  const auto outcomes = run_ranks(ranks, [ms](comm::World& world) {
    const at::Tensor weight = at::ones({1}).requires_grad_();
    std::vector<double> best(names.size(), 1e9);
    for (int round = 0; round < most_rounds; ++round) {
      for (std::size_t i = 0; i < names.size(); ++i) {
        const Schedule schedule = layout::schedule::make_schedule(
            names[i], {.ranks = ranks, .stages_per_rank = 0, .micro_batches = micro_batches});
        const double each = ms * ranks / schedule.stages();
        PipelineOptions options;
        options.group = world.group();
        for (const int stage : stages_of(schedule, world.rank()))
          options.stages[stage] = {[&, stage, each](int, const at::Tensor& input) {
            const at::Tensor y = Sleeper::apply(stage == 0 ? at::zeros({1}) : input, weight, each);
            return stage + 1 == schedule.stages() ? y.sum() : y;
          }};
        PipelineExecutor executor(std::move(options));
        weight.mutable_grad().reset();
        world.group().barrier().wait();
        const auto begin = std::chrono::steady_clock::now();
        executor.run(schedule);
        world.group().barrier().wait();
        const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
        best[i] = std::min(best[i], took.count());
        EXPECT_EQ(weight.grad().item<float>(), static_cast<float>(schedule.stages() / ranks * micro_batches));
      }
      const at::Tensor enough = at::full({1}, in_order(best) ? 1 : 0, at::kLong);
      world.group().broadcast(enough, 0).wait();
      if (enough.item<std::int64_t>() == 1) break;
    }
    for (const double one : best) post(concat(one));
  });
  const auto& posted = outcomes[0].posted;
  ASSERT_EQ(posted.size(), names.size());
  std::vector<double> best;
  for (std::size_t i = 0; i < names.size(); ++i) {
    best.push_back(std::stod(posted[i]));
    std::printf("  %-12s %6.1f ms\n", names[i], best[i]);
  }
  std::printf("  %-12s %6.1f ms\n", "no bubble", 3 * ms * micro_batches);
  EXPECT_TRUE(in_order(best));
}

}  // namespace
