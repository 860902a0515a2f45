/// \file
/// Every operator with a rule (xla/lowering), forward and backward, compared with LibTorch on the CPU.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <tessera/base/error.h>
#include <tessera/nn/dropout.h>
#include <tessera/xla/capture/capture.h>
#include <tessera/xla/lowering/lowering.h>
#include <tessera/xla/step/gradient_program.h>
#include <torch/csrc/autograd/autograd.h>

#include <tests/xla/plugin_for_tests.h>

#include <cmath>
#include <functional>
#include <set>

namespace tessera {
namespace {

using testing::cpu_devices;
using Tensors = std::vector<at::Tensor>;

/// Names of the operators captured so far.
std::set<std::string>& seen() {
  static std::set<std::string> names;
  return names;
}

/// The graph's outputs for `inputs`, computed by XLA.
Tensors run_graph(const xla::Graph& graph, const Tensors& inputs, const at::Tensor& drawn = {}) {
  xla::check_rules(graph);
  xla::hlo::Function f;
  std::vector<xla::hlo::Value> values(graph.values.size());
  const auto value = [&](xla::ValueId id) -> xla::hlo::Value& { return values[static_cast<std::size_t>(id)]; };
  for (const xla::ValueId id : graph.inputs)
    value(id) = f.argument(xla::type_of(graph.values[static_cast<std::size_t>(id)]));
  for (const auto& [id, tensor] : graph.constants) value(id) = xla::literal_of(f, tensor);
  if (drawn.defined()) {
    const auto all = f.argument({{drawn.numel()}, xla::Element::int32});
    const xla::Draw& draw = graph.draws.at(0);
    const std::int64_t lines = drawn.numel() / 2;
    value(draw.low) = xla::hlo::reshape(f, xla::hlo::slice(f, all, 0, 0, lines), draw.lines);
    value(draw.high) = xla::hlo::reshape(f, xla::hlo::slice(f, all, 0, lines, 2 * lines), draw.lines);
  }
  for (const xla::Node& node : graph.nodes) {
    seen().insert(node.op.ends_with('_') ? node.op.substr(0, node.op.size() - 1) : node.op);
    xla::NodeLowering lowering(f, graph, node, values);
    xla::rule_of(node)(lowering);
  }
  Tensors results;
  for (const xla::ValueId id : graph.outputs) {
    f.result(value(id));
    const xla::ValueInfo& info = graph.values[static_cast<std::size_t>(id)];
    results.push_back(at::empty(info.sizes, info.type));
  }
  const auto client = cpu_devices(1);
  const auto program = client->compile(f.module({}), {});
  std::vector<xla::Buffer> buffers;
  std::vector<std::vector<const xla::Buffer*>> arguments(1);
  Tensors given = inputs;
  if (drawn.defined()) given.push_back(drawn);
  for (const at::Tensor& input : given) {
    const at::Tensor dense = input.detach().contiguous();
    buffers.push_back(client->upload(dense.const_data_ptr(), xla::element_of(dense.scalar_type()), dense.sizes(), 0));
  }
  for (const xla::Buffer& buffer : buffers) arguments[0].push_back(&buffer);
  const auto out = program->run(arguments);
  for (std::size_t i = 0; i < results.size(); ++i) out[0][i].read(results[i].mutable_data_ptr(), results[i].nbytes());
  return results;
}

struct Case {
  const char* name;
  Tensors inputs;  ///< floating-point inputs get gradients
  std::function<at::Tensor(const Tensors&)> f;
};

/// The function's value, and the gradients of its weighted sum.
Tensors with_gradients(const Case& c, const Tensors& inputs) {
  Tensors leaves, differentiated;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.is_floating_point() ? input.detach().requires_grad_() : input);
    if (input.is_floating_point()) differentiated.push_back(leaves.back());
  }
  const at::Tensor y = c.f(leaves);
  Tensors results = {y.detach()};
  if (!y.requires_grad()) return results;
  const at::Tensor weights = at::arange(1, y.numel() + 1, at::kFloat).view(y.sizes()).to(y.scalar_type()) * 0.1;
  for (const at::Tensor& g : torch::autograd::grad({(y * weights).sum()}, differentiated, {}, false, false, true))
    if (g.defined()) results.push_back(g);
  return results;
}

void expect_equal(const Case& c) {
  SCOPED_TRACE(c.name);
  std::vector<xla::ValueInfo> infos;
  for (const at::Tensor& input : c.inputs) infos.push_back({input.sizes().vec(), input.scalar_type()});
  const xla::Graph graph = xla::capture({}, infos, [&](const Tensors& inputs) { return with_gradients(c, inputs); });
  const Tensors expected = with_gradients(c, c.inputs), computed = run_graph(graph, c.inputs);
  ASSERT_EQ(expected.size(), computed.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(expected[i].scalar_type(), computed[i].scalar_type());
    const at::Tensor a = expected[i].to(at::kDouble), b = computed[i].to(at::kDouble);
    const double limit = expected[i].scalar_type() == at::kBFloat16 ? 2e-2 : 3e-6;
    EXPECT_TRUE(at::allclose(b, a, limit, limit, /*equal_nan=*/true))
        << "result " << i << ": largest difference " << (a - b).abs().max().item<double>();
  }
}

at::Tensor reals(at::IntArrayRef sizes) { return at::randn(sizes); }
at::Tensor positive(at::IntArrayRef sizes) { return at::rand(sizes) + 0.5; }
at::Tensor whole(std::int64_t below, at::IntArrayRef sizes) { return at::randint(0, below, sizes, at::kLong); }

std::vector<Case> elementwise_cases() {
  const at::Tensor a = reals({3, 4}), b = reals({4}), p = positive({3, 4});
  using T = const Tensors&;
  return {
      {"add", {a, b}, [](T x) { return at::add(x[0], x[1], 2); }},
      {"sub", {a, b}, [](T x) { return x[0] - x[1] - 3; }},
      {"rsub", {a}, [](T x) { return at::rsub(x[0], 2.5, 3); }},
      {"mul", {a, b}, [](T x) { return x[0] * x[1] * 3; }},
      {"div", {a, p}, [](T x) { return x[0] / x[1] / 7; }},
      {"maximum",
       {a, b},
       [](T x) { return at::maximum(x[0], x[1].expand({3, 4})) + at::minimum(x[0], x[1].expand({3, 4})); }},
      {"clamp", {a}, [](T x) { return x[0].clamp(-0.5, 0.5) + x[0].clamp_min(-0.2) + x[0].clamp_max(0.3); }},
      {"pow", {p}, [](T x) { return x[0].pow(2) + x[0].pow(3) + x[0].pow(0.5) + x[0].pow(-0.5) + x[0].pow(1.7); }},
      {"exp", {a}, [](T x) { return x[0].exp() + x[0].neg() + x[0].abs() + x[0].sin() + x[0].cos() + x[0].tanh(); }},
      {"log", {p}, [](T x) { return x[0].log() + x[0].log1p() + x[0].sqrt() + x[0].rsqrt(); }},
      {"sign", {a}, [](T x) { return x[0].detach().sign() * x[0] + x[0].sgn().detach(); }},
      {"sigmoid", {a}, [](T x) { return x[0].sigmoid() + at::silu(x[0]) + at::relu(x[0]); }},
      {"gelu", {a * 3}, [](T x) { return at::gelu(x[0]) + at::gelu(x[0], "tanh"); }},
      {"softplus", {a * 8}, [](T x) { return at::softplus(x[0].detach(), 2, 10) * x[0]; }},
      {"compare",
       {a, b},
       [](T x) {
         const at::Tensor y = (x[0] > x[1]).logical_or(x[0] < -1).logical_and(x[0].ge(-2)).logical_not();
         const at::Tensor z = x[0].le(0.5).bitwise_and(x[0].ne(0)).bitwise_or(x[0].eq(x[1])).bitwise_not();
         return at::where(y, x[0], x[1]) + x[0].masked_fill(z, 0.25);
       }},
      {"compare whole", {whole(5, {3, 4}), a}, [](T x) { return x[1] * x[0].eq(2) + x[1] * x[0].gt(1.5); }},
      {"fill",
       {a},
       [](T x) {
         at::Tensor y = at::zeros_like(x[0]).fill_(2);
         y = y + at::ones_like(x[0]) + at::full_like(x[0], 3) + x[0].new_zeros({3, 4}) + x[0].new_ones({3, 4}) +
             x[0].new_full({3, 4}, 4);
         at::Tensor z = at::empty_like(x[0]);
         z.copy_(x[0]);
         return z.mul_(y) + x[0].new_empty({3, 4}).zero_();
       }},
      {"cast", {a}, [](T x) { return (x[0].to(at::kBFloat16) * 2).to(at::kFloat) + x[0].clone() + at::alias(x[0]); }},
      {"half arithmetic", {a.to(at::kBFloat16)}, [](T x) { return at::silu(x[0]) + at::gelu(x[0]) * x[0]; }},
  };
}

std::vector<Case> shape_cases() {
  const at::Tensor a = reals({2, 3, 4}), m = reals({3, 5});
  using T = const Tensors&;
  return {
      {"views", {a}, [](T x) { return x[0].view({6, 4}).t().unsqueeze(1).expand({4, 2, 6}).transpose(0, 2); }},
      {"permute", {a}, [](T x) { return x[0].permute({2, 0, -2}).reshape({4, 6}).unsqueeze(0).squeeze(0); }},
      {"slice", {a}, [](T x) { return x[0].slice(2, 1, -1).slice(1, 0, 3, 2) * 2; }},
      {"select", {a}, [](T x) { return x[0].select(1, -1) + x[0].select(1, 0); }},
      {"split",
       {a},
       [](T x) {
         const auto parts = x[0].split(2, 2);
         const auto sized = x[0].split_with_sizes({1, 2}, 1);
         const auto each = x[0].unbind(0);
         return parts[0] * parts[1] + (sized[1].sum(1, true) * sized[0]).slice(2, 0, 2) + (each[0] * each[1]).sum();
       }},
      {"cat",
       {a, m},
       [](T x) { return at::cat({x[0].flatten(), x[1].flatten()}) + at::cat({x[1].flatten(), x[0].flatten()}); }},
      {"stack", {m}, [](T x) { return at::stack({x[0], x[0] * 2}, 1); }},
      {"pad", {m}, [](T x) { return at::constant_pad_nd(x[0], {1, 2, 0, 1}, 0.5); }},
      {"triangles", {m}, [](T x) { return x[0].triu(1) + x[0].tril(-1) * 2; }},
  };
}

std::vector<Case> product_cases() {
  const at::Tensor a = reals({3, 4}), b = reals({4, 5}), c = reals({5}), q = reals({2, 3, 4}), r = reals({2, 4, 3});
  using T = const Tensors&;
  return {
      {"mm", {a, b}, [](T x) { return x[0].mm(x[1]); }},
      {"matmul", {q, b}, [](T x) { return at::matmul(x[0], x[1]); }},
      {"mv", {a, reals({4})}, [](T x) { return x[0].mv(x[1]) + x[1].dot(x[1]); }},
      {"addmm", {c, a, b}, [](T x) { return at::addmm(x[0], x[1], x[2], 2, 0.5); }},
      {"bmm", {q, r}, [](T x) { return x[0].bmm(x[1]) + at::baddbmm(x[0].bmm(x[1]), x[0], x[1], 0.5, 2); }},
      {"linear", {q, reals({5, 4}), c}, [](T x) { return at::linear(x[0], x[1], x[2]); }},
  };
}

std::vector<Case> reduction_cases() {
  const at::Tensor a = reals({3, 4, 5});
  using T = const Tensors&;
  return {
      {"sum", {a}, [](T x) { return x[0].sum() + x[0].sum(1).sum(-1, true) + x[0].sum(at::IntArrayRef{0, 2}).sum(); }},
      {"mean", {a}, [](T x) { return x[0].mean() + x[0].mean(at::IntArrayRef{-1}, true); }},
      {"amax", {a}, [](T x) { return x[0].detach().amax(1) * x[0].detach().amin({1}) * x[0].sum(1); }},
      {"cumsum", {a}, [](T x) { return x[0].cumsum(1) + x[0].cumsum(-1); }},
      {"softmax", {a}, [](T x) { return at::softmax(x[0], 1) + at::log_softmax(x[0], -1); }},
      {"safe softmax",
       {a},
       [](T x) {
         const at::Tensor masked = x[0].masked_fill(at::arange(4).eq(2).view({4, 1}), -HUGE_VAL);
         return at::_safe_softmax(masked, 2) * x[0];
       }},
      {"norm", {reals({3, 8}), reals({8}), reals({8})}, [](T x) { return at::layer_norm(x[0], {8}, x[1], x[2]); }},
      {"plain norm", {reals({3, 2, 4})}, [](T x) { return at::layer_norm(x[0], {2, 4}); }},
  };
}

std::vector<Case> indexing_cases() {
  using T = const Tensors&;
  const at::Tensor labels = at::tensor({1, -100, 4, 0}, at::kLong);
  return {
      {"embedding", {reals({7, 3}), whole(7, {2, 5})}, [](T x) { return at::embedding(x[0], x[1]); }},
      {"padded embedding", {reals({7, 3}), whole(3, {2, 5})}, [](T x) { return at::embedding(x[0], x[1], 1); }},
      {"rows", {reals({7, 3}), whole(7, {4})}, [](T x) { return x[0].detach().index_select(0, x[1]) * x[0].sum(); }},
      {"gather", {reals({4, 6}), whole(6, {4, 2})}, [](T x) { return x[0].detach().gather(1, x[1]) * x[0].sum(); }},
      {"loss", {reals({4, 5}), labels}, [](T x) { return at::nll_loss(at::log_softmax(x[0], 1), x[1], {}, 1, -100); }},
      {"summed loss",
       {reals({4, 5}), labels},
       [](T x) {
         return at::cross_entropy_loss(x[0], x[1], {}, 2, -100) + at::cross_entropy_loss(x[0], x[1], {}, 0, -100);
       }},
  };
}

TEST(XlaOperators, EveryRuleEqualsLibTorch) {
  if (testing::cpu_plugin().empty()) GTEST_SKIP() << "no PJRT plug-in: tools/deps_pjrt.sh installs one";
  at::manual_seed(1);
  for (const auto& cases : {elementwise_cases(), shape_cases(), product_cases(), reduction_cases(), indexing_cases()})
    for (const Case& c : cases) expect_equal(c);
  // "kept" is not an operator of LibTorch; KeptIsTheCpusMask compares it.
  const std::set<std::string> elsewhere = {"kept"};
  for (const xla::RuleTable* const table :
       {&xla::elementwise_rules(), &xla::shape_rules(), &xla::product_rules(), &xla::reduction_rules(),
        &xla::norm_rules(), &xla::indexing_rules(), &xla::random_rules()})
    for (const auto& [name, rule] : *table)
      EXPECT_TRUE(seen().contains(std::string(name)) || elsewhere.contains(std::string(name))) << name;
}

TEST(XlaOperators, KeptIsTheCpusMask) {
  if (testing::cpu_plugin().empty()) GTEST_SKIP() << "no PJRT plug-in: tools/deps_pjrt.sh installs one";
  const at::Tensor ones = at::ones({2, 3, 40});
  nn::RandomPlace place{.key = 77, .row = 5, .token = 2, .column = 9};
  const auto f = [&](const at::Tensor& x, nn::RandomPlace from) { return nn::dropout(x, 0.4, from.at(3).at(8)); };
  const xla::Graph graph = xla::capture({}, {{{2, 3, 40}, at::kFloat}},
                                        [&](const Tensors& x) { return Tensors{f(x[0], place) + f(x[0], place) * 2}; });
  ASSERT_EQ(graph.draws.size(), 1u) << "two draws at the same place are one draw";
  const at::Tensor expected = f(ones, place) * 3;
  EXPECT_GT(expected.eq(0).sum().item<int>(), 50);
  place.row = 1;  // the pass begins at row 4
  const xla::Graph shifted =
      xla::capture({}, {{{2, 3, 40}, at::kFloat}}, [&](const Tensors& x) { return Tensors{f(x[0], place) * 3}; });
  for (const auto& [from, first_row] : {std::pair{&graph, 0}, {&shifted, 4}}) {
    const at::Tensor drawn = xla::keys(from->draws, {{77, first_row}});
    EXPECT_TRUE(run_graph(*from, {ones}, drawn)[0].equal(expected)) << first_row;
  }
  EXPECT_FALSE(run_graph(shifted, {ones}, xla::keys(shifted.draws, {{78, 4}}))[0].equal(expected));
}

/// Steps that a compiled program cannot repeat, and operators without a rule.
TEST(XlaCapture, RefusesWhatACompiledStepCannotDo) {
  const auto error_of = [](const std::function<at::Tensor(const at::Tensor&)>& f) -> std::string {
    try {
      const xla::Graph graph =
          xla::capture({}, {{{3, 4}, at::kFloat}}, [&](const Tensors& x) { return Tensors{f(x[0])}; });
      xla::check_rules(graph);
      return "nothing";
    } catch (const Error& error) {
      return error.what();
    }
  };
  const at::Tensor buffer = at::zeros({3, 4});
  const std::vector<std::pair<std::function<at::Tensor(const at::Tensor&)>, std::string>> cases = {
      {[](const at::Tensor& x) { return x * x.sum().item<double>(); },
       "the step cannot be captured: aten::_local_scalar_dense makes the step's control flow depend on data"},
      {[](const at::Tensor& x) { return x.nonzero(); },
       "the step cannot be captured: aten::nonzero makes the step's control flow depend on data"},
      {[](const at::Tensor& x) { return at::equal(x, x) && !at::equal(x, x * 2) ? x : x + 1; },
       "the step cannot be captured: aten::equal makes the step's control flow depend on data"},
      {[](const at::Tensor& x) { return x.masked_select(x > 0); },
       "the step cannot be captured: aten::masked_select makes the step's control flow depend on data"},
      {[](const at::Tensor& x) { return at::dropout(x, 0.5, true); },
       "the step cannot be captured: aten::bernoulli_.float draws random numbers, which a compiled step would repeat"},
      {[](const at::Tensor& x) { return x + at::rand({3, 4}); },
       "the step cannot be captured: aten::rand draws random numbers, which a compiled step would repeat in every "
       "step"},
      {[&](const at::Tensor& x) { return at::Tensor(buffer).add_(x); },
       "the step cannot be captured: aten::add_.Tensor changes in place a parameter, an input or a buffer that "
       "existed before the step"},
      {[](const at::Tensor& x) { return at::Tensor(x).mul_(2); },
       "the step cannot be captured: aten::mul_.Scalar changes in place a parameter, an input or a buffer that "
       "existed before the step"},
      {[](const at::Tensor& x) {
         const at::Tensor y = x * 2;
         y.select(0, 0).zero_();
         return y + 1;
       },
       "the step cannot be captured: aten::add.Scalar reads memory that was written in place through another view"},
      {[](const at::Tensor& x) { return at::det(x.mm(x.t())) + x.erfinv().sum(); },
       "device xla: the step uses 2 operators that cannot be compiled:\n  _linalg_det, in or after the root module\n  "
       "erfinv, in or after the root module"},
  };
  for (const auto& [f, message] : cases) EXPECT_EQ(error_of(f).substr(0, message.size()), message);
}

/// An in-place write gives the tensor a new value; results computed before keep the old one.
TEST(XlaCapture, WritesInPlaceAreValues) {
  if (testing::cpu_plugin().empty()) GTEST_SKIP() << "no PJRT plug-in: tools/deps_pjrt.sh installs one";
  const auto f = [](const at::Tensor& x) {
    at::Tensor y = x * 2;
    const at::Tensor before = y + 1;
    y.add_(5).mul_(x);
    at::Tensor sums = at::zeros({3, 4});
    sums.add_(y).sub_(before);
    return sums;
  };
  const at::Tensor x = at::randn({3, 4});
  const xla::Graph graph =
      xla::capture({}, {{{3, 4}, at::kFloat}}, [&](const Tensors& inputs) { return Tensors{f(inputs[0])}; });
  EXPECT_TRUE(at::allclose(run_graph(graph, {x})[0], f(x)));
}

}  // namespace
}  // namespace tessera
