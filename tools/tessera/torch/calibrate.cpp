/// \file
/// tessera plan calibrate, inside a rank: times the operations of training on all ranks at once, in turns until the
/// time is over, so that other activity on the machine affects all figures equally. Rank 0 writes the lower quartile of
/// every figure's turns, which is robust to bursts of other work, and their spread.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/base/terminal.h>
#include <tessera/base/value.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/comm/world.h>
#include <tessera/models/load.h>
#include <tessera/nn/attention.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/linear.h>
#include <tessera/nn/rms_norm.h>
#include <tessera/nn/swiglu.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/plan/reference_step.h>

#include "bench_operation.h"
#include "tool.h"

namespace tessera::tool {
namespace {

struct Turn {
  double forward = 0, backward = 0;  ///< seconds; backward 0: the operation has no backward pass
};

/// One or two figures for one size.
struct Probe {
  std::string forward, backward;  ///< names in the hardware file; for exchanges the collective's name
  int ranks = 0;                  ///< ranks in each group of an exchange; 0: not an exchange
  double size = 0;
  std::function<Turn()> turn;
  std::vector<double> forwards{}, backwards{};
};

at::Tensor numbers(at::IntArrayRef shape) { return at::randn(shape) * 0.1; }
using Shapes = std::vector<std::vector<std::int64_t>>;
at::Tensor trained(at::IntArrayRef shape) { return numbers(shape).requires_grad_(true); }

/// Operands for timing one operation. In a training step no operation finds the previous step's weights in a cache, and
/// no backward finds its forward's operands there, because other layers ran in between. So an operation is timed as a
/// chain of layers, forwards and then backwards in reverse, each with its own operands, which together exceed the
/// caches. A forward's input from the previous layer has just been written, as in training.
class Chain {
 public:
  /// Operands of one operation: `hot`, just written by the previous layer, and `cold`, its weights.
  Chain(Shapes hot, Shapes cold) : hot_(std::move(hot)), cold_(std::move(cold)) {
    for (const auto* shapes : {&hot_, &cold_})
      for (const auto& shape : *shapes) bytes_ += 4 * c10::multiply_integers(shape);
    layers_ = std::clamp<std::int64_t>(chain_bytes / bytes_, 2, 64);
  }

  /// `make(operands)` runs the operation on the operands: first the hot ones, then the cold ones.
  template <class Make>
  Turn timed(const Make& make) {
    if (layers_of_operands_.empty()) allocate();
    Turn sum;
    std::vector<at::Tensor> results;
    for (std::vector<at::Tensor>& operands : layers_of_operands_) {
      for (std::size_t i = 0; i < hot_.size(); ++i) operands[i].detach().mul_(1);
      const std::int64_t begin = monotonic_ns();
      results.push_back(make(operands));
      sum.forward += seconds_since(begin);
    }
    while (!results.empty()) {
      const at::Tensor y = std::move(results.back());
      results.pop_back();
      const at::Tensor gradient = at::ones_like(y);
      const std::int64_t begin = monotonic_ns();
      y.backward(gradient);
      sum.backward += seconds_since(begin);
    }
    const auto layers = static_cast<double>(layers_of_operands_.size());
    for (std::vector<at::Tensor>& operands : layers_of_operands_)
      for (at::Tensor& t : operands) t.mutable_grad().reset();
    return {sum.forward / layers, sum.backward / layers};
  }

 private:
  static constexpr std::int64_t chain_bytes = 12 << 20;

  void allocate() {
    for (std::int64_t layer = 0; layer < layers_; ++layer) {
      std::vector<at::Tensor>& operands = layers_of_operands_.emplace_back();
      for (const auto* shapes : {&hot_, &cold_})
        for (const auto& shape : *shapes) operands.push_back(trained(shape));
    }
  }

  Shapes hot_, cold_;
  std::int64_t bytes_ = 0, layers_ = 0;
  std::vector<std::vector<at::Tensor>> layers_of_operands_;
};

/// Runs `body` in that precision, as training does.
template <class Body>
at::Tensor computed(bool bf16, const Body& body) {
  const nn::Autocast guard(bf16, c10::DeviceType::CPU);
  return body();
}

void add_products(std::vector<Probe>& probes, bool bf16) {
  // Tokens, inputs and outputs of products in a narrow block, a wide block, a block cut by tensor parallelism, and an
  // output head.
  static constexpr std::int64_t shapes[][3] = {{64, 128, 128},    {256, 128, 128},  {256, 256, 256},
                                               {512, 384, 192},   {1024, 192, 384}, {512, 512, 512},
                                               {1024, 384, 1024}, {1024, 768, 768}, {256, 512, 4096}};
  for (const auto& [tokens, in, out] : shapes) {
    auto chain = std::make_shared<Chain>(Shapes{{tokens, in}}, Shapes{{out, in}});
    const std::string name = bf16 ? "product_bf16" : "product_fp32";
    probes.push_back({name, name + "_backward", 0, 2.0 * static_cast<double>(tokens * in * out), [=] {
                        return chain->timed([&](const std::vector<at::Tensor>& of) {
                          return computed(bf16, [&] { return nn::linear(of[0], of[1], {}, nn::WeightLayout::out_in); });
                        });
                      }});
  }
}

void add_attention(std::vector<Probe>& probes, bool bf16) {
  static constexpr std::int64_t shapes[][3] = {{1, 64, 2}, {4, 128, 4}, {4, 256, 6}, {2, 512, 8}, {1, 1024, 8}};
  for (const auto& [rows, tokens, heads] : shapes) {
    const std::vector<std::int64_t> shape = {rows, tokens, heads, 64};
    auto chain = std::make_shared<Chain>(Shapes{shape, shape, shape}, Shapes{});
    const std::string name = bf16 ? "attention_bf16" : "attention_fp32";
    const double seen = static_cast<double>(tokens) / 2;
    const double flop = 4 * static_cast<double>(rows * tokens * heads) * 64 * seen;
    probes.push_back({name, name + "_backward", 0, flop, [=] {
                        return chain->timed([&](const std::vector<at::Tensor>& of) {
                          return computed(bf16,
                                          [&] { return nn::attention(of[0], of[1], of[2], {}, {.scale = 0.125}); });
                        });
                      }});
  }
}

void add_passes(std::vector<Probe>& probes) {
  for (const std::int64_t tokens : {16, 128, 1024, 8192}) {
    const std::int64_t width = 512;
    const std::vector<std::int64_t> shape = {tokens, width};
    auto normed = std::make_shared<Chain>(Shapes{shape, shape}, Shapes{{width}});
    auto gated = std::make_shared<Chain>(Shapes{shape, shape}, Shapes{});
    const double tensor = 4.0 * static_cast<double>(tokens * width);
    probes.push_back({"norm", "norm_backward", 0, 4 * tensor, [=] {
                        return normed->timed([&](const std::vector<at::Tensor>& of) {
                          return nn::add_rms_norm(of[0], of[1], of[2], 1e-5).normed;
                        });
                      }});
    probes.push_back(
        {"gate", "gate_backward", 0, 3 * tensor,
         [=] { return gated->timed([&](const std::vector<at::Tensor>& of) { return nn::swiglu(of[0], of[1]); }); }});
  }
  for (const std::int64_t elements : {std::int64_t{1} << 16, std::int64_t{1} << 20, std::int64_t{1} << 22}) {
    const at::Tensor p = trained({elements});
    p.mutable_grad() = numbers({elements});
    std::shared_ptr<optim::Optimizer> optimizer = optim::make_adamw({{"p", p, 0.1, 1.0}}, {0.9, 0.95, 1e-8});
    // Counted as in plan/time.cpp: the norm reads the gradient; the update reads it, and reads and writes the rest.
    probes.push_back({"update", "", 0, 32.0 * static_cast<double>(elements), [=] {
                        const std::int64_t begin = monotonic_ns();
                        const at::Tensor norm = p.grad().norm();
                        optimizer->step(1e-6);
                        return Turn{seconds_since(begin), 0};
                      }});
  }
}

/// A whole model whose operations the other probes time individually (plan/reference_step.h), trained by all processes
/// like a real run.
class ReferenceRun {
 public:
  ReferenceRun()
      : model_(models::make_model(plan::reference_config(), 1)),
        sharded_(*model_, {.strategy = Strategy::ddp}),
        optimizer_(optim::make_adamw(sharded_.slots(), {0.9, 0.95, 1e-8})) {
    model_->train();
    batch_.ids = at::randint(model_->vocab_size(), {plan::reference_rows, plan::reference_tokens}, at::kLong);
    batch_.labels = batch_.ids;
    batch_.scored_tokens = plan::reference_rows * (plan::reference_tokens - 1);
  }

  /// Seconds per step.
  double step(bool bf16) {
    const std::int64_t begin = monotonic_ns();
    sharded_.zero_grad();
    const double scale = 1 / static_cast<double>(batch_.scored_tokens);
    computed(bf16, [&] { return model_->loss(batch_, scale); }).backward();
    sharded_.clip_grad_norm(1);
    optimizer_->step(1e-6);
    return seconds_since(begin);
  }

 private:
  std::shared_ptr<models::LanguageModel> model_;
  Sharded sharded_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  data::Batch batch_;
};

/// Collectives over all ranks, and over pairs of neighbours, all pairs at once. "_shared": on tensors of the shared
/// arena, as parameters and gradients are; activations are ordinary tensors.
void add_exchanges(std::vector<Probe>& probes, const std::vector<comm::Group>& groups) {
  static constexpr std::pair<const char*, bool> operations[] = {
      {"all_reduce", false}, {"all_gather", false}, {"reduce_scatter", false}, {"all_to_all", false},
      {"send_recv", false},  {"all_reduce", true},  {"all_gather", true},      {"reduce_scatter", true}};
  for (const comm::Group& group : groups) {
    for (const auto& [op, shared] : operations) {
      for (const std::int64_t bytes : {4 << 10, 64 << 10, 1 << 20, 8 << 20}) {
        auto operation = std::make_shared<BenchOperation>(op, group, bytes, at::kFloat, shared);
        probes.push_back({shared ? concat(op, "_shared") : op, "", group.size(), static_cast<double>(bytes),
                          [operation, group, bytes] {
                            const int times = bytes < (1 << 20) ? 8 : 1;
                            const std::int64_t begin = monotonic_ns();
                            for (int i = 0; i < times; ++i) operation->run(group);
                            return Turn{seconds_since(begin) / times, 0};
                          }});
      }
    }
  }
}

/// Averages the seconds of every probe over the ranks: between two exchanges ranks wait for each other anyway.
void average(const comm::Group& group, std::vector<double>& values) {
  comm::all_reduce_numbers(group, values);
  for (double& value : values) value /= group.size();
}

double at_share(std::vector<double> sorted, double part) {
  std::sort(sorted.begin(), sorted.end());
  return sorted[static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1) + 0.5)];
}

Value sample(const std::string& name, const Probe& probe, const std::vector<double>& seconds) {
  const double median = at_share(seconds, 0.5), low = at_share(seconds, 0.25);
  return Value::make_object({{"name", Value::of(name)},
                             {"ranks", Value::of(probe.ranks)},
                             {"size", Value::of(probe.size)},
                             {"seconds", Value::of(low)},
                             {"spread", Value::of((at_share(seconds, 0.75) - low) / 2 / median)},
                             {"turns", Value::of(static_cast<std::int64_t>(seconds.size()))}});
}

class Line {
 public:
  Line(bool speaks, int ranks, double limit) : speaks_(speaks), ranks_(ranks), limit_(limit) {}
  ~Line() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  void at(double seconds, std::int64_t turns) {
    if (!speaks_ || !on_terminal(STDERR_FILENO)) return;
    std::fprintf(stderr, "\r\x1b[K  %d %s: %.0f of %.0f s, turn %lld", ranks_, ranks_ == 1 ? "process" : "processes",
                 seconds, limit_, static_cast<long long>(turns));
    drawn_ = true;
  }

 private:
  bool speaks_, drawn_ = false;
  int ranks_;
  double limit_;
};

}  // namespace

int calibrate(const Arguments& given) {
  Arguments arguments = given;
  const launch::RankEnvironment environment = launch::read_rank_environment(&arguments);
  const Flags flags("plan calibrate", arguments, {"file", "seconds"}, {});
  const double limit = flags.real("seconds", 10);
  const std::int64_t begin = monotonic_ns();
  comm::World& world = init(environment, {});
  std::vector<comm::Group> groups;
  if (world.size() > 1) groups.push_back(world.group());
  if (world.size() > 2 && world.size() % 2 == 0)
    for (int first = 0; first < world.size(); first += 2) {
      const comm::Group pair = world.new_group({first, first + 1}, concat("pair ", first / 2));
      if (world.rank() == first || world.rank() == first + 1) groups.push_back(pair);
    }
  at::manual_seed(static_cast<std::uint64_t>(world.rank()) + 1);
  std::vector<Probe> probes;
  for (const bool bf16 : {false, true}) {
    add_products(probes, bf16);
    add_attention(probes, bf16);
  }
  auto reference = std::make_shared<ReferenceRun>();
  for (const bool bf16 : {false, true})
    probes.push_back(
        {bf16 ? "step_bf16" : "step_fp32", "", 0, 1, [reference, bf16] { return Turn{reference->step(bf16), 0}; }});
  add_passes(probes);
  add_exchanges(probes, groups);

  const bool speaks = world.rank() == 0;
  Line line(speaks, world.size(), limit);
  for (Probe& probe : probes) probe.turn();  // allocates pages and creates kernels and plans, which happens only once
  for (std::int64_t turn = 0;; ++turn) {
    std::vector<double> values = {seconds_since(begin) < limit || turn < 1 ? 0.0 : 1.0};
    for (Probe& probe : probes) {
      world.group().barrier().wait();
      const Turn seconds = probe.turn();
      values.push_back(seconds.forward);
      values.push_back(seconds.backward);
    }
    average(world.group(), values);
    for (std::size_t i = 0; i < probes.size(); ++i) {
      probes[i].forwards.push_back(values[1 + 2 * i]);
      if (!probes[i].backward.empty()) probes[i].backwards.push_back(values[2 + 2 * i]);
    }
    line.at(seconds_since(begin), turn + 1);
    if (values[0] > 0) break;
  }
  if (speaks) {
    std::vector<Value> samples;
    for (const Probe& probe : probes) {
      samples.push_back(sample(probe.forward, probe, probe.forwards));
      if (!probe.backward.empty()) samples.push_back(sample(probe.backward, probe, probe.backwards));
    }
    write_file_atomically(flags.required("file", "file for the figures"),
                          dump_json(Value::make_object({{"processes", Value::of(world.size())},
                                                        {"threads", Value::of(at::get_num_threads())},
                                                        {"samples", Value::make_array(std::move(samples))}})));
  }
  probes.clear();
  reference.reset();
  groups.clear();
  shutdown();
  return 0;
}

}  // namespace tessera::tool
