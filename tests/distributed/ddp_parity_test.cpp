// Data parallelism on 1 to 4 processes against one process on the same global batches (docs/strategies.md).
#include "ddp_models.h"

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <tessera/optim/optimizer.h>
#include <tessera/parallel/ddp.h>
#include <tests/distributed/harness.h>

namespace {

using namespace tessera;
using namespace tessera::testing;

constexpr int steps = 8;
constexpr std::int64_t rows = 24;  // divides by 4 ranks x 2 micro-batches and by 3 x 2

enum class Rule { sgd, adamw };

std::unique_ptr<optim::Optimizer> make_optimizer(torch::nn::Module& model, Rule rule) {
  std::vector<optim::Slot> slots;
  std::set<const void*> seen;
  for (const auto& p : model.named_parameters())
    if (p.value().requires_grad() && seen.insert(p.value().unsafeGetTensorImpl()).second)
      slots.push_back({p.key(), p.value(), p.value().dim() > 1 ? 0.01 : 0.0});
  if (rule == Rule::adamw) return optim::make_adamw(std::move(slots), {});
  return optim::make_sgd(std::move(slots), {.momentum = 0.9});
}

template <class M>
std::unique_ptr<M> make_model(std::uint64_t seed, at::ScalarType dtype) {
  at::manual_seed(seed);
  auto model = std::make_unique<M>();
  model->to(dtype);
  return model;
}

struct Case {
  Rule rule = Rule::sgd;
  at::ScalarType dtype = at::kFloat;
  int micro_batches = 1;
  comm::Reduction reduction = comm::Reduction::mean;
  double bucket_mb = 25;
};

// Trains M twice on the calling rank, with the job and alone on all data, and compares.
template <class M>
void compare(comm::World& world, const Case& c) {
  const auto alone = make_model<M>(7, c.dtype);
  const auto job = make_model<M>(100 + static_cast<std::uint64_t>(world.rank()), c.dtype);
  if (world.rank() == 0) {  // only rank 0 starts like the reference; Ddp must broadcast its parameters
    const at::NoGradGuard no_grad;
    const auto from = alone->parameters(), to = job->parameters();
    for (std::size_t i = 0; i < to.size(); ++i) at::Tensor(to[i]).copy_(from[i]);
  }
  Ddp ddp(*job, {.first_bucket_mb = c.bucket_mb / 4, .bucket_mb = c.bucket_mb, .reduction = c.reduction});
  const auto rule = make_optimizer(*job, c.rule), reference_rule = make_optimizer(*alone, c.rule);
  const double lr = c.rule == Rule::sgd ? 0.05 : 2e-3;
  const double weight =
      c.reduction == comm::Reduction::mean ? 1.0 / c.micro_batches : 1.0 / (c.micro_batches * world.size());
  double losses = 0, reference_losses = 0;
  for (int step = 0; step < steps; ++step) {
    const Batch batch = global_batch(step, rows, c.dtype);
    for (at::Tensor& p : alone->parameters()) p.mutable_grad().reset();
    const at::Tensor reference = mean_loss(*alone, batch);
    reference.backward();
    reference_losses += reference.item<double>();
    const double reference_norm = [&] {
      std::vector<at::Tensor> gradients;
      std::set<const void*> seen;
      for (const at::Tensor& p : alone->parameters())
        if (p.grad().defined() && seen.insert(p.unsafeGetTensorImpl()).second) gradients.push_back(p.grad());
      return optim::gradient_norm(gradients);
    }();
    reference_rule->step(lr, optim::clip_coefficient(reference_norm, 0.5));

    ddp.zero_grad();
    const Batch mine = part(batch, world.rank(), world.size());
    double local = 0;
    for (int m = 0; m < c.micro_batches; ++m) {
      std::optional<Ddp::NoSync> accumulate;
      if (m + 1 < c.micro_batches) accumulate.emplace(ddp);
      const at::Tensor loss = mean_loss(*job, part(mine, m, c.micro_batches)) * weight;
      loss.backward();
      local += loss.item<double>();
    }
    at::Tensor sum = at::full({1}, c.reduction == comm::Reduction::mean ? local / world.size() : local, at::kDouble);
    world.group().all_reduce(sum).wait();
    losses += sum.item<double>();
    EXPECT_NEAR(ddp.clip_grad_norm(0.5) / reference_norm, 1, c.dtype == at::kDouble ? 1e-12 : 1e-5);
    rule->step(lr);
  }
  ddp.check_replicas();
  EXPECT_NEAR(losses / reference_losses, 1, c.dtype == at::kDouble ? 1e-13 : 1e-6);
  const auto expected = alone->named_parameters();
  for (const auto& p : job->named_parameters()) {
    const at::Tensor want = expected[p.key()].detach().to(at::kDouble), got = p.value().detach().to(at::kDouble);
    if (c.dtype == at::kDouble) {
      EXPECT_LE((got - want).abs().max().item<double>(), 1e-11) << p.key();
    } else if (c.rule == Rule::sgd) {
      EXPECT_LE((got - want).abs().max().item<double>(), 1e-6) << p.key();
    } else {
      EXPECT_LE(((got - want).norm() / want.norm()).item<double>(), 1e-5) << p.key();
    }
  }
}

class DdpParity : public ::testing::TestWithParam<int> {};  // ranks
INSTANTIATE_TEST_SUITE_P(Ranks, DdpParity, ::testing::Values(1, 2, 3, 4));

TEST_P(DdpParity, sgd) {
  run_ranks(GetParam(), [](comm::World& world) {
    compare<SimpleModel>(world, {});
    compare<SharedModel>(world, {});
    compare<ConvModel>(world, {});
    compare<SequenceModel>(world, {});
  });
}

TEST_P(DdpParity, sgd_with_accumulation) {
  run_ranks(GetParam(), [](comm::World& world) {
    compare<SimpleModel>(world, {.micro_batches = 2});
    compare<SharedModel>(world, {.micro_batches = 2, .bucket_mb = 1e-4});
  });
}

TEST_P(DdpParity, sgd_with_sums_and_small_buckets) {
  run_ranks(GetParam(), [](comm::World& world) {
    compare<SimpleModel>(world, {.reduction = comm::Reduction::sum, .bucket_mb = 1e-4});
    compare<SequenceModel>(world, {.micro_batches = 2, .reduction = comm::Reduction::sum, .bucket_mb = 1e-4});
  });
}

TEST_P(DdpParity, adamw) {
  run_ranks(GetParam(), [](comm::World& world) {
    compare<SimpleModel>(world, {.rule = Rule::adamw});
    compare<SharedModel>(world, {.rule = Rule::adamw, .micro_batches = 2});
  });
}

TEST_P(DdpParity, float64) {
  run_ranks(GetParam(), [](comm::World& world) {
    compare<SimpleModel>(world, {.dtype = at::kDouble});
    compare<SharedModel>(world, {.rule = Rule::adamw, .dtype = at::kDouble, .micro_batches = 2});
    compare<SequenceModel>(world, {.dtype = at::kDouble, .bucket_mb = 1e-4});
  });
}

// The user's own loop: LibTorch's optimizer, and both ways of zeroing gradients.
TEST_P(DdpParity, torch_optim) {
  run_ranks(GetParam(), [](comm::World& world) {
    for (const bool set_to_none : {true, false}) {
      const auto alone = make_model<SimpleModel>(7, at::kFloat), job = make_model<SimpleModel>(7, at::kFloat);
      Ddp ddp(*job);
      torch::optim::SGD optimizer(job->parameters(), 0.05), reference(alone->parameters(), 0.05);
      for (int step = 0; step < steps; ++step) {
        const Batch batch = global_batch(step, rows);
        optimizer.zero_grad(set_to_none);
        mean_loss(*job, part(batch, world.rank(), world.size())).backward();
        optimizer.step();
        reference.zero_grad();
        mean_loss(*alone, batch).backward();
        reference.step();
      }
      const auto want = alone->parameters(), got = job->parameters();
      for (std::size_t i = 0; i < want.size(); ++i)
        EXPECT_LE((got[i] - want[i]).abs().max().item<double>(), 1e-6)
            << "parameter " << i << ", set_to_none " << set_to_none;
      ddp.check_replicas();
    }
  });
}

}  // namespace
