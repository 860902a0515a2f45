/// Unmodified modules whose parameters are freed after every operator train to the same bits as without.

#include "managed_materializer.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/jit.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformer.h>
#include <torch/serialize.h>

#include <tessera/nn/autocast.h>
#include <tessera/nn/nn.h>

#include <functional>
#include <sstream>
#include <thread>

namespace {

namespace nn = torch::nn;
using managed_test::DroppingMaterializer;
using managed_test::same_bits;
using tessera::parallel::is_managed;
using tessera::parallel::ManagedStorage;

/// A module and a call of its forward.
struct Case {
  std::shared_ptr<nn::Module> module;
  std::function<at::Tensor()> forward;  ///< same inputs and dropout masks on every call
};
using MakeCase = std::function<Case()>;

Case mlp() {
  nn::Sequential net(nn::Linear(6, 16), nn::GELU(), nn::Linear(16, 16), nn::ReLU(), nn::Linear(16, 3));
  const at::Tensor x = at::randn({5, 6});
  return {net.ptr(), [=]() mutable { return net->forward(x); }};
}

struct TwiceImpl : nn::Module {  // a layer used twice, a parameter of the module itself, a tied head, a branch of views
  TwiceImpl() : a(register_module("a", nn::Linear(8, 8))), table(register_module("table", nn::Embedding(11, 8))) {
    scale = register_parameter("scale", at::randn({8}));
    shift = register_parameter("shift", at::randn({2, 4}));
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor h = table->forward(ids) * scale;
    h = a->forward(at::gelu(a->forward(h))) + shift.view({8});
    h = h + shift.t().reshape({8}) + at::cat({scale.narrow(0, 0, 4), scale.narrow(0, 4, 4)});
    return at::matmul(h, table->weight.t());
  }
  nn::Linear a;
  nn::Embedding table;
  at::Tensor scale, shift;
};

Case twice() {
  auto net = std::make_shared<TwiceImpl>();
  const at::Tensor ids = at::randint(0, 11, {4, 5});
  return {net, [=] { return net->forward(ids); }};
}

Case attention() {
  nn::MultiheadAttention net(nn::MultiheadAttentionOptions(8, 2));
  const at::Tensor x = at::randn({5, 2, 8}), y = at::randn({7, 2, 8});
  return {net.ptr(), [=]() mutable { return std::get<0>(net->forward(x, y, y)); }};
}

Case lstm() {
  nn::LSTM net(nn::LSTMOptions(5, 6).num_layers(2).bidirectional(true));
  const at::Tensor x = at::randn({4, 3, 5});
  return {net.ptr(), [=]() mutable { return std::get<0>(net->forward(x)); }};
}

Case gru() {
  nn::GRU net(nn::GRUOptions(5, 6).num_layers(2));
  const at::Tensor x = at::randn({4, 3, 5});
  return {net.ptr(), [=]() mutable { return std::get<0>(net->forward(x)); }};
}

Case convolutions() {
  nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(3, 8, 3).padding(1)), nn::BatchNorm2d(8), nn::PReLU(),
                     nn::ConvTranspose2d(nn::ConvTranspose2dOptions(8, 4, 2).stride(2)), nn::GroupNorm(2, 4));
  const at::Tensor x = at::randn({2, 3, 6, 6});
  return {net.ptr(), [=]() mutable { return net->forward(x); }};
}

struct BagImpl : nn::Module {
  BagImpl()
      : bag(register_module("bag", nn::EmbeddingBag(nn::EmbeddingBagOptions(9, 6).mode(torch::kSum)))),
        mix(register_module("mix", nn::Bilinear(6, 6, 4))) {}
  at::Tensor forward(const at::Tensor& ids) {
    const at::Tensor h = bag->forward(ids);
    return mix->forward(h, h);
  }
  nn::EmbeddingBag bag;
  nn::Bilinear mix;
};

Case bag() {
  auto net = std::make_shared<BagImpl>();
  const at::Tensor ids = at::randint(0, 9, {4, 3});
  return {net, [=] { return net->forward(ids); }};
}

Case transformer() {
  nn::Transformer net(nn::TransformerOptions(8, 2, 1, 1).dim_feedforward(16).dropout(0.1));
  const at::Tensor source = at::randn({5, 2, 8}), target = at::randn({4, 2, 8});
  return {net.ptr(), [=]() mutable {
            at::manual_seed(9);
            return net->forward(source, target);
          }};
}

/// Uses our fused functions, which read through raw pointers.
struct FusedImpl : nn::Module {
  FusedImpl() {
    for (const auto& [name, shape] :
         std::vector<std::pair<std::string, std::vector<std::int64_t>>>{{"tokens", {13, 8}},
                                                                        {"positions", {6, 8}},
                                                                        {"norm_w", {8}},
                                                                        {"norm_b", {8}},
                                                                        {"up", {8, 16}},
                                                                        {"up_b", {16}},
                                                                        {"down", {8, 16}},
                                                                        {"down_b", {8}},
                                                                        {"rms", {8}},
                                                                        {"gate", {16, 8}},
                                                                        {"rms2", {8}},
                                                                        {"final_w", {8}},
                                                                        {"final_b", {8}}})
      p[name] = register_parameter(name, at::randn(shape) * 0.3);
  }
  at::Tensor forward(const at::Tensor& ids) {
    using namespace tessera::nn;
    at::Tensor x = embed(ids, p["tokens"], p["positions"]);
    const at::Tensor n = layer_norm(x, p["norm_w"], p["norm_b"], 1e-5);
    const at::Tensor wide = bias_gelu_tanh(linear(n, p["up"], {}, WeightLayout::in_out), p["up_b"]);
    x = add_bias(x, linear(wide, p["down"], {}, WeightLayout::out_in), p["down_b"]);
    auto [sum, normed] = add_rms_norm(x, x * 0.5, p["rms"], 1e-6);
    const at::Tensor gate = linear(normed, p["gate"], p["up_b"], WeightLayout::out_in);
    x = linear(swiglu(gate, gate), p["down"], p["down_b"], WeightLayout::out_in);
    const auto out = add_layer_norm(sum, x, p["down_b"], p["final_w"], p["final_b"], 1e-5);
    const at::Tensor last = rms_norm(out.normed, p["rms2"], 1e-6);
    return linear_cross_entropy(last, p["tokens"], ids, 0.1);
  }
  std::map<std::string, at::Tensor> p;
};

Case fused() {
  auto net = std::make_shared<FusedImpl>();
  const at::Tensor ids = at::randint(0, 13, {2, 6});
  return {net, [=] { return net->forward(ids); }};
}

Case made(const MakeCase& make) {
  at::manual_seed(1);
  return make();
}

/// Trains twins, one of them managed, and compares losses, gradients and values bit for bit.
void expect_same_training(const MakeCase& make, int steps = 3) {
  const Case plain = made(make), managed = made(make);
  DroppingMaterializer materializer;
  materializer.manage(*managed.module);
  for (int step = 0; step < steps; ++step) {
    const at::Tensor expected = plain.forward().square().sum(), got = managed.forward().square().sum();
    ASSERT_TRUE(same_bits(got.detach(), expected.detach())) << "step " << step;
    expected.backward();
    got.backward();
    const auto theirs = plain.module->named_parameters(), ours = managed.module->named_parameters();
    for (const auto& item : theirs) {
      const at::Tensor& mine = ours[item.key()];
      ASSERT_EQ(item.value().grad().defined(), mine.grad().defined()) << item.key();
      if (!mine.grad().defined()) continue;
      EXPECT_TRUE(same_bits(mine.grad(), item.value().grad())) << item.key() << " step " << step;
      EXPECT_FALSE(is_managed(mine.grad()));
    }
    materializer.step(1e-3);
    {
      const at::NoGradGuard no_grad;
      for (const at::Tensor& p : plain.module->parameters())
        if (p.grad().defined()) at::Tensor(p).sub_(p.grad(), 1e-3);
    }
    for (const at::Tensor& p : plain.module->parameters()) p.mutable_grad() = at::Tensor();
    for (const at::Tensor& p : managed.module->parameters()) p.mutable_grad() = at::Tensor();
    for (const auto& item : theirs) EXPECT_TRUE(same_bits(materializer.value(ours[item.key()]), item.value().detach()));
    ASSERT_TRUE(materializer.all_left());
  }
  for (const auto& entry : materializer.entries) EXPECT_FALSE(entry.writes) << entry.op;
}

TEST(ManagedModules, mlp) { expect_same_training(mlp); }
TEST(ManagedModules, layer_used_twice_and_tied_head) { expect_same_training(twice); }
TEST(ManagedModules, multihead_attention) { expect_same_training(attention); }
TEST(ManagedModules, lstm) { expect_same_training(lstm); }
TEST(ManagedModules, gru) { expect_same_training(gru); }
TEST(ManagedModules, convolutions_and_norms) { expect_same_training(convolutions); }
TEST(ManagedModules, embedding_bag_and_bilinear) { expect_same_training(bag); }
TEST(ManagedModules, transformer) { expect_same_training(transformer); }
TEST(ManagedModules, own_fused_functions) { expect_same_training(fused); }

TEST(ManagedModules, eval_without_gradients_and_in_inference_mode) {
  for (const MakeCase& make : {MakeCase(mlp), MakeCase(attention), MakeCase(lstm), MakeCase(convolutions),
                               MakeCase(transformer), MakeCase(fused)}) {
    const Case plain = made(make), managed = made(make);
    DroppingMaterializer materializer;
    materializer.manage(*managed.module);
    plain.module->eval(), managed.module->eval();
    {
      const at::NoGradGuard no_grad;
      EXPECT_TRUE(same_bits(managed.forward(), plain.forward()));
    }
    {
      const c10::InferenceMode inference;
      EXPECT_TRUE(same_bits(managed.forward(), plain.forward()));
    }
    EXPECT_TRUE(materializer.all_left());
  }
}

TEST(ManagedModules, autocast) {
  const auto with_autocast = [](const MakeCase& make) -> MakeCase {
    return [=] {
      const Case inner = make();
      return Case{inner.module, [=] {
                    const tessera::nn::Autocast guard(true, at::kCPU);
                    return inner.forward().to(at::kFloat);
                  }};
    };
  };
  for (const MakeCase& make : {MakeCase(mlp), MakeCase(attention), MakeCase(fused)})
    expect_same_training(with_autocast(make), 2);
}

TEST(ManagedModules, double_backward_and_retained_graph) {
  const auto run = [](const Case& c) {
    const auto parameters = c.module->parameters();
    const at::Tensor loss = c.forward().square().sum();
    const auto first = torch::autograd::grad({loss}, parameters, {}, /*retain_graph=*/true, /*create_graph=*/true);
    at::Tensor norm = at::zeros({});
    for (const at::Tensor& g : first) norm = norm + g.square().sum();
    (norm + loss).backward({}, /*retain_graph=*/true);
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& p : parameters) gradients.push_back(p.grad());
    return gradients;
  };
  for (const MakeCase& make : {MakeCase(mlp), MakeCase(twice), MakeCase(gru)}) {
    const Case plain = made(make), managed = made(make);
    DroppingMaterializer materializer;
    materializer.manage(*managed.module);
    const auto expected = run(plain), got = run(managed);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(got[i], expected[i])) << i;
    EXPECT_TRUE(materializer.all_left());
  }
}

TEST(ManagedModules, backward_into_named_inputs_enters_operator_by_operator) {
  const Case c = made(mlp);
  DroppingMaterializer materializer;
  materializer.manage(*c.module);
  const at::Tensor loss = c.forward().square().sum();
  materializer.entries.clear();
  loss.backward({}, /*retain_graph=*/false, /*create_graph=*/false, c.module->parameters());
  EXPECT_EQ(materializer.operators().count("aten::_backward"), 0u);
  EXPECT_TRUE(c.module->parameters()[0].grad().defined());
  EXPECT_TRUE(materializer.all_left());
}

TEST(ManagedModules, forward_in_one_thread_and_backward_in_others) {
  const Case plain = made(twice), managed = made(twice);
  DroppingMaterializer materializer;
  materializer.manage(*managed.module);
  plain.forward().square().sum().backward();
  at::Tensor loss;
  std::thread([&] { loss = managed.forward().square().sum(); }).join();
  std::thread([&] { loss.backward(); }).join();
  for (const auto& item : plain.module->named_parameters())
    EXPECT_TRUE(same_bits(managed.module->named_parameters()[item.key()].grad(), item.value().grad())) << item.key();
  std::vector<std::thread> threads;
  std::vector<at::Tensor> out(4);
  for (std::size_t i = 0; i < out.size(); ++i)
    threads.emplace_back([&, i] {
      for (int repeat = 0; repeat < 20; ++repeat) out[i] = managed.forward().detach();
    });
  for (std::thread& t : threads) t.join();
  for (const at::Tensor& y : out) EXPECT_TRUE(same_bits(y, plain.forward().detach()));
  EXPECT_TRUE(materializer.all_left());
}

TEST(ManagedModules, printing) {
  const Case c = made(mlp);
  DroppingMaterializer materializer;
  const at::Tensor w = c.module->parameters()[0];
  std::ostringstream before, after, net;
  before << w;
  materializer.manage(*c.module);
  after << w;
  EXPECT_EQ(after.str(), before.str());
  net << *c.module;
  EXPECT_NE(net.str().find("Linear(in_features=6"), std::string::npos);
}

TEST(ManagedModules, a_clone_is_an_ordinary_module) {
  const Case c = made(mlp);
  DroppingMaterializer materializer;
  materializer.manage(*c.module);
  const auto copy = c.module->clone();
  for (const auto& item : copy->named_parameters()) {
    const at::Tensor& original = c.module->named_parameters()[item.key()];
    EXPECT_FALSE(is_managed(item.value()));
    EXPECT_TRUE(same_bits(item.value().detach(), materializer.value(original))) << item.key();
  }
  EXPECT_TRUE(materializer.all_left());
}

TEST(ManagedModules, to_another_type_takes_the_parameters_out_and_is_noticed) {
  const Case c = made(mlp);
  DroppingMaterializer materializer;
  materializer.manage(*c.module);
  const auto parameters = c.module->parameters();
  c.module->to(at::kFloat);  // no conversion needed
  EXPECT_TRUE(materializer.storage(0).owns(parameters[0]));
  const at::Tensor value = materializer.value(parameters[0]).clone();
  c.module->to(at::kDouble);
  EXPECT_FALSE(is_managed(parameters[0]) || materializer.storage(0).owns(parameters[0]));
  EXPECT_TRUE(same_bits(parameters[0].detach(), value.to(at::kDouble)));
}

TEST(ManagedModules, saving_absent_parameters_says_so) {
  const Case c = made(mlp);
  DroppingMaterializer materializer;
  materializer.manage(*c.module);
  std::ostringstream out;
  torch::serialize::OutputArchive archive;
  c.module->save(archive);
  try {
    archive.save_to(out);
    ADD_FAILURE() << "saved parameters that were absent";
  } catch (const std::exception& e) {
    EXPECT_NE(std::string(e.what()).find("is absent"), std::string::npos) << e.what();
  }
}

TEST(ManagedModules, saving_present_parameters_works) {
  const Case c = made(mlp), other = made(mlp);
  DroppingMaterializer materializer;
  materializer.manage(*c.module);
  std::stringstream file;
  {
    const auto p = c.module->parameters();
    const tessera::parallel::Materialized materialized({p[0], p[1], p[2], p[3], p[4], p[5]});
    torch::serialize::OutputArchive archive;
    c.module->save(archive);
    archive.save_to(file);
  }
  {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& p : other.module->parameters()) at::Tensor(p).zero_();
  }
  torch::serialize::InputArchive archive;
  archive.load_from(file);
  other.module->load(archive);
  for (const auto& item : other.module->named_parameters())
    EXPECT_TRUE(same_bits(item.value().detach(), materializer.value(c.module->named_parameters()[item.key()])));
}

TEST(ManagedModules, an_optimizer_over_managed_parameters_writes_and_is_told) {
  const Case c = made(mlp);
  DroppingMaterializer materializer;
  materializer.manage(*c.module);
  c.forward().square().sum().backward();
  const at::NoGradGuard no_grad;
  for (const at::Tensor& p : c.module->parameters()) EXPECT_THROW(at::Tensor(p).sub_(p.grad(), 0.1), tessera::Error);
}

TEST(ManagedModules, a_scripted_function_that_the_executor_has_optimised) {
  const auto unit = torch::jit::compile(R"(
def forward(x, w, b):
    h = torch.relu(torch.mm(x, w.t()) + b)
    return torch.sigmoid(h * b) * torch.sum(w)
)");
  const at::Tensor x = at::randn({3, 4}), w = at::randn({5, 4}).set_requires_grad(true),
                   b = at::randn({5}).set_requires_grad(true);
  const auto run = [&] { return unit->run_method("forward", x, w, b).toTensor().square().sum(); };
  for (int i = 0; i < 4; ++i) run().backward();
  const at::Tensor dw = w.grad(), db = b.grad(), y = run().detach();
  w.mutable_grad() = at::Tensor(), b.mutable_grad() = at::Tensor();
  DroppingMaterializer materializer;
  materializer.manage(std::vector<at::Tensor>{w});
  materializer.manage(std::vector<at::Tensor>{b});
  for (int i = 0; i < 4; ++i) run().backward();
  EXPECT_TRUE(same_bits(run().detach(), y) && same_bits(w.grad(), dw) && same_bits(b.grad(), db));
  EXPECT_TRUE(materializer.all_left());
}

TEST(ManagedModules, an_unedited_module_computes_in_bf16_from_fp32_inputs) {
  for (const MakeCase& make : {MakeCase(mlp), MakeCase(twice), MakeCase(attention), MakeCase(lstm)}) {
    const Case plain = made(make), managed = made(make);
    DroppingMaterializer materializer;
    std::size_t units = 0;
    for (const auto& sub : managed.module->modules())
      if (const auto own = sub->parameters(false); !own.empty()) {
        units = materializer.manage(own, at::kBFloat16) + 1;
        materializer.storage(units - 1).cast_inputs(true);
      }
    const at::Tensor expected = plain.forward(), got = managed.forward();
    EXPECT_EQ(got.scalar_type(), at::kBFloat16);
    EXPECT_LT((got.to(at::kFloat) - expected).norm().item<double>(), 0.03 * expected.norm().item<double>());
    got.square().sum().backward();
    expected.square().sum().backward();
    for (const auto& item : plain.module->named_parameters()) {
      const at::Tensor& g = managed.module->named_parameters()[item.key()].grad();
      ASSERT_TRUE(g.defined()) << item.key();
      EXPECT_EQ(g.scalar_type(), at::kBFloat16);
      const at::Tensor& reference = item.value().grad();
      EXPECT_LT((g.to(at::kFloat) - reference).norm().item<double>(), 0.1 * reference.norm().item<double>() + 1e-3)
          << item.key();
    }
    EXPECT_TRUE(materializer.all_left());
  }
}

}  // namespace
