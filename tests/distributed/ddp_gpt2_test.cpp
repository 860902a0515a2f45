// GPT-2 with data parallelism as the Trainer uses it: gradients summed over ranks, losses scaled by the global number
// of scored tokens.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/models/load.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/ddp.h>
#include <tests/distributed/harness.h>
#include <tests/paths.h>

#include <optional>

namespace {

using namespace tessera;
using namespace tessera::testing;

constexpr std::int64_t rows = 12, tokens = 16;
constexpr int steps = 6;

struct Batch {
  at::Tensor ids, labels;  // int64 [rows, tokens]
};

// Uneven masks, so that ranks score different numbers of tokens.
Batch global_batch(int step, std::int64_t vocabulary) {
  at::manual_seed(1000 + static_cast<std::uint64_t>(step));
  Batch batch{at::randint(vocabulary, {rows, tokens}, at::kLong), {}};
  batch.labels = batch.ids.clone();
  for (std::int64_t row = 0; row < rows; row += 2) batch.labels[row].narrow(0, 3 + row / 2, 7).fill_(-100);
  return batch;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const models::CausalLm& model, bool adamw) {
  std::vector<optim::Slot> slots;
  for (const auto& p : model.named_parameters())
    slots.push_back({p.key(), p.value(), model.is_norm_or_bias(p.key()) ? 0.0 : 0.1});
  if (adamw) return optim::make_adamw(std::move(slots), {});
  return optim::make_sgd(std::move(slots), {.momentum = 0.9});
}

// Omits the key third of attention biases: its true gradient is zero, and Adam turns the rounding noise into steps.
at::Tensor compared(const std::string& name, const at::Tensor& parameter) {
  const at::Tensor p = parameter.detach().to(at::kDouble);
  if (!name.ends_with("attn.c_attn.bias")) return p;
  const std::int64_t d = p.size(0) / 3;
  return at::cat({p.narrow(0, 0, d), p.narrow(0, 2 * d, d)});
}

void compare(comm::World& world, bool adamw, int micro_batches) {
  const Value config = read_json(source_path("tests/fixtures/gpt2_tiny/config.json"));
  const auto alone = models::make_model(config, 5), job = models::make_model(config, 5);
  alone->eval();  // no dropout: its random numbers would differ
  job->eval();
  Ddp ddp(*job, {.first_bucket_mb = 0.005, .bucket_mb = 0.02, .reduction = comm::Reduction::sum});
  const auto rule = make_optimizer(*job, adamw), reference_rule = make_optimizer(*alone, adamw);
  double losses = 0, reference_losses = 0;
  for (int step = 0; step < steps; ++step) {
    const Batch batch = global_batch(step, job->vocab_size());
    const double scale = 1.0 / batch.labels.narrow(1, 1, tokens - 1).ne(-100).sum().item<double>();
    for (at::Tensor& p : alone->parameters()) p.mutable_grad().reset();
    const at::Tensor reference = alone->loss(batch.ids, batch.labels, scale);
    reference.backward();
    reference_losses += reference.item<double>();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& p : alone->parameters()) gradients.push_back(p.grad());
    const double norm = optim::gradient_norm(gradients);
    reference_rule->step(1e-3, optim::clip_coefficient(norm, 1));

    ddp.zero_grad();
    double local = 0;
    const std::int64_t share = rows / (world.size() * micro_batches);
    for (int m = 0; m < micro_batches; ++m) {
      std::optional<Ddp::NoSync> accumulate;
      if (m + 1 < micro_batches) accumulate.emplace(ddp);
      const std::int64_t first = (world.rank() * micro_batches + m) * share;
      const at::Tensor loss = job->loss(batch.ids.narrow(0, first, share), batch.labels.narrow(0, first, share), scale);
      loss.backward();
      local += loss.item<double>();
    }
    at::Tensor sum = at::full({1}, local, at::kDouble);
    world.group().all_reduce(sum).wait();
    losses += sum.item<double>();
    const double reduced_norm = ddp.clip_grad_norm(0);
    EXPECT_NEAR(reduced_norm / norm, 1, 1e-5) << "step " << step;
    rule->step(1e-3, optim::clip_coefficient(reduced_norm, 1));
  }
  ddp.check_replicas();
  EXPECT_NEAR(losses / reference_losses, 1, 1e-6);
  const auto expected = alone->named_parameters();
  for (const auto& p : job->named_parameters()) {
    const at::Tensor want = compared(p.key(), expected[p.key()]), got = compared(p.key(), p.value());
    if (adamw) {
      EXPECT_LE(((got - want).norm() / want.norm()).item<double>(), 1e-5) << p.key();
    } else {
      EXPECT_LE((got - want).abs().max().item<double>(), 1e-6) << p.key();
    }
  }
}

class DdpGpt2 : public ::testing::TestWithParam<int> {};  // ranks
INSTANTIATE_TEST_SUITE_P(Ranks, DdpGpt2, ::testing::Values(1, 2, 3, 4));

TEST_P(DdpGpt2, is_one_process) {
  run_ranks(GetParam(), [](comm::World& world) {
    compare(world, /*adamw=*/false, /*micro_batches=*/1);
    compare(world, /*adamw=*/true, world.size() == 4 ? 3 : 2);
  });
}

}  // namespace
