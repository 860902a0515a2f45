#pragma once
/// \file
/// The training task of the faces' tests, and the plain loop in one process that serves as the reference.

#include <tests/distributed/ddp_models.h>
#include <tests/distributed/harness.h>

#include <tessera/optim/norm.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/fully_shard.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tessera::testing {

using Weights = std::map<std::string, at::Tensor>;

constexpr std::int64_t all_rows = 24;  ///< rows of a step's batch: divisible by 1, 2, 3, 4, 6, 8, 12

/// The same values in every process.
inline std::shared_ptr<SimpleModel> make_net() {
  at::manual_seed(7);
  return std::make_shared<SimpleModel>();
}

/// Micro-batch i of V of a step.
inline Batch micro_batch(int step, std::int64_t i, std::int64_t V) { return part(global_batch(step, all_rows), i, V); }

struct Plain {
  std::vector<double> losses, norms;  ///< one per step: the mean over micro-batches; before clipping
  Weights weights;
};

/// Adds the gradients of V micro-batches, each divided by V, in order; clips to norm 1; applies AdamW.
inline Plain train_plain(std::int64_t V, int steps, const std::function<double(const at::Tensor&)>& decay,
                         const std::function<double(int)>& rate) {
  const auto net = make_net();
  const auto parameters = net->named_parameters();
  std::vector<optim::Slot> slots;
  for (const auto& p : parameters)
    slots.push_back({.name = p.key(), .parameter = p.value(), .weight_decay = decay(p.value())});
  const auto optimizer = optim::make_adamw(slots, {});
  Plain plain;
  for (int step = 0; step < steps; ++step) {
    std::vector<at::Tensor> sums;
    double loss_sum = 0;
    for (std::int64_t i = 0; i < V; ++i) {
      net->zero_grad();
      const at::Tensor loss = mean_loss(*net, micro_batch(step, i, V));
      loss.backward();
      loss_sum += loss.item<double>();
      for (std::size_t j = 0; j < parameters.size(); ++j) {
        at::Tensor grad = parameters[j].value().grad().clone();
        if (V > 1) grad.mul_(1.0 / static_cast<double>(V));
        if (i == 0)
          sums.push_back(grad);
        else
          sums[j].add_(grad);
      }
    }
    for (std::size_t j = 0; j < parameters.size(); ++j) at::Tensor(parameters[j].value()).mutable_grad() = sums[j];
    plain.losses.push_back(loss_sum / static_cast<double>(V));
    plain.norms.push_back(optim::gradient_norm(sums));
    optimizer->step(rate(step), optim::clip_coefficient(plain.norms.back(), 1.0));
  }
  for (const auto& p : parameters) plain.weights[p.key()] = p.value().detach().clone();
  return plain;
}
inline double decay_all(const at::Tensor&) { return 0.01; }

/// Whole weights, on every rank. Collective.
inline Weights weights_of(Sharded& sharded) {
  Weights weights;
  sharded.visit_parameters([&](const std::string& name, const at::Tensor& value) { weights[name] = value.clone(); });
  return weights;
}

inline void expect_same_bits(const Weights& got, const Weights& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (const auto& [name, value] : want)
    EXPECT_TRUE(at::equal(got.at(name), value))
        << what << ": " << name << " differs by " << (got.at(name) - value).abs().max().item<double>();
}
inline void expect_close(const Weights& got, const Weights& want, double bound, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (const auto& [name, value] : want)
    EXPECT_LE((got.at(name) - value).masked_fill(got.at(name) == value, 0).abs().max().item<double>(), bound)
        << what << ": " << name;  // equal infinities count as close
}

}  // namespace tessera::testing
