#include <tests/sharding/access_table.h>

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>

#include <limits>

namespace tessera::testing {
namespace {

using torch::optim::SGD;
using torch::optim::SGDOptions;

const std::string parts = "this rank's part of a gradient";
const std::string elsewhere = "the gradients of a sharded module are not in its own parameters";

/// Trains under SGD with momentum and calls `between` between backward and step.
std::function<void(Run&)> with_sgd(std::function<void(Run&)> between) {
  return [between = std::move(between)](Run& run) {
    run.wrap();
    SGD optimizer(run.parameters(), SGDOptions(0.1).momentum(0.9));
    train(run, optimizer, [&](int) { between(run); });
  };
}

template <class Optimizer, class Options>
std::function<void(Run&)> with(Options options) {
  return [options](Run& run) {
    run.wrap();
    Optimizer optimizer(run.parameters(), options);
    train(run, optimizer);
  };
}

/// Trains; the caller zeroes gradients with zero(run, optimizer).
std::function<void(Run&)> zeroed_by(std::function<void(Run&, SGD&)> zero) {
  return [zero = std::move(zero)](Run& run) {
    run.wrap();
    SGD optimizer(run.parameters(), SGDOptions(0.1));
    for (int step = 0; step < 4; ++step) {
      zero(run, optimizer);
      run.loss(step).backward();
      optimizer.step();
    }
  };
}

std::vector<Access> optimizers() {
  return {
      {"SGD with momentum", with_sgd([](Run&) {})},
      {"Adam", with<torch::optim::Adam>(torch::optim::AdamOptions(1e-2).amsgrad(true).weight_decay(0.1))},
      {"AdamW", with<torch::optim::AdamW>(torch::optim::AdamWOptions(1e-2))},
      {"RMSprop", with<torch::optim::RMSprop>(torch::optim::RMSpropOptions(1e-2).momentum(0.9).centered(true))},
      {"Adagrad", with<torch::optim::Adagrad>(torch::optim::AdagradOptions(1e-2))},
      {"LBFGS",
       [](Run& run) {
         run.wrap();
         torch::optim::LBFGS optimizer(run.parameters(), torch::optim::LBFGSOptions(0.5).max_iter(3));
         optimizer.step([&] {
           optimizer.zero_grad();
           at::Tensor loss = run.loss(0);
           loss.backward();
           return loss;
         });
       },
       "", parts},
      {"groups of parameters",
       [](Run& run) {
         run.wrap();
         const auto all = run.parameters();
         SGD optimizer({torch::optim::OptimizerParamGroup(
                            {all[0], all[1]}, std::make_unique<SGDOptions>(SGDOptions(0.1).weight_decay(0.1))),
                        torch::optim::OptimizerParamGroup({all[2], all[3], all[4]})},
                       SGDOptions(0.05));
         train(run, optimizer);
       }},
      {"add_param_group later",
       [](Run& run) {
         run.wrap();
         const auto all = run.parameters();
         SGD optimizer(std::vector<at::Tensor>{all[0], all[1], all[2]}, SGDOptions(0.1));
         train(run, optimizer);
         optimizer.add_param_group(torch::optim::OptimizerParamGroup({all[3], all[4]}));
         train(run, optimizer);
       }},
      {"an optimizer of module->parameters(), made before wrapping",
       [](Run& run) {
         SGD optimizer(run.net->parameters(), SGDOptions(0.1));
         run.wrap();
         train(run, optimizer);
       },
       "", "pass sharded.parameters() to optimizers"},
      {"an optimizer of module->parameters()",
       [](Run& run) {
         run.wrap();
         SGD optimizer(run.net->parameters(), SGDOptions(0.1));
         train(run, optimizer);
       },
       "", "pass sharded.parameters() to optimizers"},
      {"a step by hand on data()", with_sgd([](Run& run) {
         for (const at::Tensor& p : run.parameters()) p.data().sub_(0.1 * p.grad());
       })},
      {"a step by hand under NoGradGuard", with_sgd([](Run& run) {
         const at::NoGradGuard no_grad;
         for (at::Tensor p : run.parameters()) p -= 0.1 * p.grad();
       })},
      {"a step by hand on module->parameters()", with_sgd([](Run& run) {
         for (const at::Tensor& p : run.net->parameters()) p.data().sub_(0.1 * p.grad());
       }),
       "", elsewhere},
      {"two optimizers of halves",
       [](Run& run) {
         run.wrap();
         const auto all = run.parameters();
         SGD a(std::vector<at::Tensor>{all[0], all[1]}, SGDOptions(0.1));
         torch::optim::Adam b({all[2], all[3], all[4]}, torch::optim::AdamOptions(1e-2));
         for (int step = 0; step < 3; ++step) {
           a.zero_grad();
           b.zero_grad();
           run.loss(step).backward();
           a.step();
           b.step();
         }
       }},
  };
}

std::vector<Access> zeroing() {
  return {
      {"module->zero_grad()", zeroed_by([](Run& run, SGD&) { run.net->zero_grad(); })},
      {"module->zero_grad(false)", zeroed_by([](Run& run, SGD&) { run.net->zero_grad(false); }), "",
       "zero_grad(false)"},
      {"optimizer.zero_grad()", zeroed_by([](Run&, SGD& optimizer) { optimizer.zero_grad(); })},
      {"optimizer.zero_grad(false)", zeroed_by([](Run&, SGD& optimizer) { optimizer.zero_grad(false); })},
      {"zero_grad() of sub-modules", zeroed_by([](Run& run, SGD&) {
         run.net->first->zero_grad();
         run.net->second->zero_grad();
       })},
      {"mutable_grad().reset()", zeroed_by([](Run& run, SGD&) {
         for (const at::Tensor& p : run.parameters()) p.mutable_grad().reset();
       })},
      {"grad().zero_()", zeroed_by([](Run& run, SGD&) {
         for (const at::Tensor& p : run.parameters())
           if (p.grad().defined()) p.grad().zero_();
       })},
      {"no zeroing", zeroed_by([](Run&, SGD&) {})},
      {"Sharded::zero_grad()", zeroed_by([](Run& run, SGD& optimizer) {
         if (run.sharded)
           run.sharded->zero_grad();
         else
           optimizer.zero_grad();
       })},
      {"module->zero_grad() between two backwards of a step",
       [](Run& run) {
         run.wrap();
         SGD optimizer(run.parameters(), SGDOptions(0.1));
         for (int step = 0; step < 3; ++step) {
           run.loss(step).backward();
           run.net->zero_grad();
           run.loss(step + 10).backward();
           run.loss(step + 20).backward();
           optimizer.step();
           run.net->zero_grad();
         }
       }},
      {"module->zero_grad() during no_sync()",
       [](Run& run) {
         run.wrap();
         SGD optimizer(run.parameters(), SGDOptions(0.1));
         for (int step = 0; step < 3; ++step) {
           {
             std::optional<Sharded::NoSync> pause;
             if (run.sharded) pause.emplace(*run.sharded);
             run.loss(step).backward();
             run.net->zero_grad();
             run.loss(step + 10).backward();
           }
           run.loss(step + 20).backward();
           optimizer.step();
           optimizer.zero_grad();
           run.net->zero_grad();
         }
       }},
  };
}

std::vector<Access> clipping() {
  using torch::nn::utils::clip_grad_norm_;
  using torch::nn::utils::clip_grad_value_;
  return {
      {"torch's clip_grad_norm_", with_sgd([](Run& run) { clip_grad_norm_(run.parameters(), 0.1); }), "", parts},
      {"torch's clip_grad_norm_, maximum norm",
       with_sgd([](Run& run) { clip_grad_norm_(run.parameters(), 0.1, std::numeric_limits<double>::infinity()); }), "",
       parts},
      {"torch's clip_grad_norm_ of module->parameters()",
       with_sgd([](Run& run) { clip_grad_norm_(run.net->parameters(), 0.1); }), "", elsewhere},
      {"torch's clip_grad_value_", with_sgd([](Run& run) { clip_grad_value_(run.parameters(), 0.02); })},
      {"torch's clip_grad_value_ of module->parameters()",
       with_sgd([](Run& run) { clip_grad_value_(run.net->parameters(), 0.02); }), "", elsewhere},
      {"Sharded::clip_grad_norm", with_sgd([](Run& run) {
         if (run.sharded)
           run.sharded->clip_grad_norm(0.1);
         else
           clip_grad_norm_(run.parameters(), 0.1);
       })},
      {"a norm by hand", with_sgd([](Run& run) {
         double sum = 0;
         for (const at::Tensor& p : run.parameters()) sum += p.grad().norm().square().item<double>();
         for (const at::Tensor& p : run.parameters()) p.grad().mul_(0.1 / std::sqrt(sum));
       }),
       "", parts},
  };
}

std::vector<Access> gradients() {
  return {
      {"grad() scaled in place", with_sgd([](Run& run) {
         for (const at::Tensor& p : run.parameters()) p.grad().mul_(0.5);
       })},
      {"weight decay in grad()", with_sgd([](Run& run) {
         for (const at::Tensor& p : run.parameters()) p.grad().add_(p.detach(), 0.1);
       })},
      {"grad() assigned", with_sgd([](Run& run) {
         for (const at::Tensor& p : run.parameters()) p.mutable_grad() = p.grad() * 0.5;
       })},
      {"grad() assigned and added to by the next backward",
       [](Run& run) {
         run.wrap();
         SGD optimizer(run.parameters(), SGDOptions(0.1));
         for (int step = 0; step < 3; ++step) {
           run.loss(step).backward();
           for (const at::Tensor& p : run.parameters()) p.mutable_grad() = p.grad().clone() * 0.5;
           optimizer.step();
         }
       }},
      {"grad() made by hand, without a backward",
       [](Run& run) {
         run.wrap();
         SGD optimizer(run.parameters(), SGDOptions(0.1));
         for (const at::Tensor& p : run.parameters()) p.mutable_grad() = at::ones_like(p);
         optimizer.step();
         optimizer.zero_grad();
         train(run, optimizer);
       }},
      {"grad() of a module's own parameter read",
       with_sgd([](Run& run) { run.notes.push_back(run.net->scale.grad().sum()); }), "", elsewhere},
      {"grad() read whole", with_sgd([](Run& run) {
         for (std::size_t i = 0; i < run.parameters().size(); ++i)
           run.notes.push_back(run.whole(i, run.parameters()[i].grad()));
       })},
      {"sign of grad()", with_sgd([](Run& run) {
         for (const at::Tensor& p : run.parameters()) p.mutable_grad() = p.grad().sign();
       })},
      {"autograd::grad of the module's parameters",
       [](Run& run) {
         run.wrap();
         const Batch all = global_batch(0, 12);  // same on every rank: these gradients are not reduced
         const at::Tensor loss = (run.net->forward(all.x) - all.y).square().mean();
         for (const at::Tensor& g : torch::autograd::grad({loss}, run.net->parameters())) run.notes.push_back(g);
       }},
      {"a penalty on the gradient of the input",
       [](Run& run) {
         run.wrap();
         SGD optimizer(run.parameters(), SGDOptions(0.1));
         for (int step = 0; step < 3; ++step) {
           optimizer.zero_grad();
           const at::Tensor x = run.batch(step).x.clone().requires_grad_();
           const at::Tensor y = run.net->forward(x);
           const at::Tensor g = torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true)[0];
           (run.loss(step) + (g.norm(2, 1) - 1).square().mean()).backward();
           optimizer.step();
         }
       }},
      {"backward with create_graph",
       [](Run& run) {
         run.wrap();
         run.loss(0).backward({}, /*retain_graph=*/true, /*create_graph=*/true);
       },
       "create_graph"},
      {"backward twice over one graph",
       [](Run& run) {
         run.wrap();
         SGD optimizer(run.parameters(), SGDOptions(0.1));
         const at::Tensor loss = run.loss(0);
         loss.backward({}, /*retain_graph=*/true);
         loss.backward();
         optimizer.step();
       }},
      {"micro-batches without no_sync()",
       [](Run& run) {
         run.wrap();
         SGD optimizer(run.parameters(), SGDOptions(0.1));
         for (int step = 0; step < 6; ++step) {
           (run.loss(step) / 2).backward();
           if (step % 2 == 0) continue;
           optimizer.step();
           optimizer.zero_grad();
         }
       }},
      {"micro-batches with no_sync()",
       [](Run& run) {
         run.wrap();
         SGD optimizer(run.parameters(), SGDOptions(0.1));
         for (int step = 0; step < 6; ++step) {
           std::optional<Sharded::NoSync> pause;
           if (run.sharded && step % 2 == 0) pause.emplace(*run.sharded);
           (run.loss(step) / 2).backward();
           if (step % 2 == 0) continue;
           optimizer.step();
           optimizer.zero_grad();
         }
       }},
  };
}

}  // namespace

const std::vector<Access>& accesses_by_optimizers() {
  static const std::vector<Access> all = [] {
    std::vector<Access> rows;
    for (auto& some : {optimizers(), zeroing(), clipping(), gradients()})
      rows.insert(rows.end(), some.begin(), some.end());
    return rows;
  }();
  return all;
}

}  // namespace tessera::testing
