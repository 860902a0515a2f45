// Policies for tensors saved by autograd: which policy is asked, which tensors are never packed, and the two policies
// that copy.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <tessera/base/error.h>
#include <tessera/parallel/autograd/saved_tensors.h>
#include <tessera/parallel/dispatch/managed.h>

#include <tests/error_of.h>

#include <filesystem>
#include <thread>

namespace {

using namespace tessera;
using parallel::PackedTensor;
using parallel::SavedTensorPolicy;
using parallel::SavedTensors;
using tessera::testing::error_of;
using torch::autograd::variable_list;

/// Keeps the tensors it is given and logs them.
struct Journal final : SavedTensorPolicy {
  std::vector<std::string> packed;
  int unpacked = 0;
  std::int64_t takes_from = 0;  ///< smaller tensors go to the next policy
  bool fails = false;

  std::unique_ptr<PackedTensor> pack(const at::Tensor& tensor) override {
    if (fails) throw Error("no room");
    if (tensor.numel() < takes_from) return nullptr;
    EXPECT_FALSE(tensor.requires_grad());
    EXPECT_FALSE(at::GradMode::is_enabled());
    packed.push_back(concat("[", c10::Join(",", tensor.sizes()), "]"));
    struct Kept final : PackedTensor {
      at::Tensor tensor;
      Journal& journal;
      Kept(at::Tensor t, Journal& j) : tensor(std::move(t)), journal(j) {}
      at::Tensor unpack() override {
        ++journal.unpacked;
        return tensor;
      }
    };
    return std::make_unique<Kept>(tensor, *this);
  }
};

/// Three linear layers on the same input, then gelu and a norm: outputs and inputs are saved, some of them several
/// times.
struct Net {
  std::vector<at::Tensor> weights;
  explicit Net(std::int64_t size = 64) {
    at::manual_seed(5);
    for (int i = 0; i < 4; ++i) weights.push_back((at::randn({size, size}) / 8).requires_grad_(true));
  }
  at::Tensor loss(const at::Tensor& x) const {
    const at::Tensor a = at::linear(x, weights[0]), b = at::tanh(at::linear(x, weights[1]));
    const at::Tensor c = at::softmax(at::linear(x.view({-1, x.size(-1)}), weights[2]), -1).view_as(x);
    return at::layer_norm(at::gelu(a) * b + c, {x.size(-1)}).matmul(weights[3].t()).square().mean();
  }
  variable_list gradients(const at::Tensor& x) const { return torch::autograd::grad({loss(x)}, weights); }
};

at::Tensor input(std::int64_t rows = 48, std::int64_t size = 64) {
  at::manual_seed(6);
  return at::randn({2, rows, size});
}

std::string folder() { return std::filesystem::temp_directory_path().string(); }

void expect_same(const variable_list& a, const variable_list& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
}

double relative_error(const variable_list& a, const variable_list& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]).to(at::kDouble).square().sum().item<double>();
    norm += b[i].to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(difference / norm);
}

TEST(SavedTensors, policy_sees_activations_and_no_parameter) {
  const auto journal = std::make_shared<Journal>();
  const at::Tensor w = at::randn({3, 3}).requires_grad_(true);
  const at::Tensor x = at::randn({2, 3});
  at::Tensor loss;
  {
    const SavedTensors scope(journal);
    loss = at::tanh(x.matmul(w.t()) * w[0]).sum();  // w.t() and w[0] are views of a parameter
  }
  // x of the product, the product for the multiplication, tanh's output
  EXPECT_EQ(journal->packed, (std::vector<std::string>{"[2,3]", "[2,3]", "[2,3]"}));
  loss.backward();
  EXPECT_EQ(journal->unpacked, 3);
  (x.matmul(w)).sum().backward();  // outside the scope
  EXPECT_EQ(journal->packed.size(), 3u);
}

TEST(SavedTensors, what_one_policy_declines_goes_to_the_next_outer_one) {
  const auto outer = std::make_shared<Journal>(), inner = std::make_shared<Journal>();
  inner->takes_from = 5;
  outer->takes_from = 3;
  const at::Tensor w = at::ones({8}).requires_grad_(true);
  const SavedTensors outer_scope(outer);
  at::Tensor loss;
  {
    const SavedTensors inner_scope(inner);
    loss = at::exp(w * 1.0).sum() + at::exp(w.slice(0, 0, 4) * 1.0).sum() + at::exp(w.slice(0, 0, 2) * 1.0).sum();
  }
  loss = loss + at::exp(w * 2.0).sum();
  EXPECT_EQ(inner->packed, (std::vector<std::string>{"[8]"}));
  EXPECT_EQ(outer->packed, (std::vector<std::string>{"[4]", "[8]"}));
  loss.backward();
  EXPECT_TRUE(at::allclose(w.grad().slice(0, 4), at::full({4}, std::exp(1.0) + 2 * std::exp(2.0))));
}

TEST(SavedTensors, belong_to_the_thread_that_opened_the_scope) {
  const auto journal = std::make_shared<Journal>();
  const SavedTensors scope(journal);
  std::thread([] { at::exp(at::ones({3}).requires_grad_(true) * 2).sum().backward(); }).join();
  EXPECT_TRUE(journal->packed.empty());
}

TEST(SavedTensors, change_in_place_is_an_error_as_without_a_policy) {
  const auto declines = std::make_shared<Journal>();
  declines->takes_from = 1000;
  const at::Tensor w = at::ones({3}).requires_grad_(true);
  for (const std::shared_ptr<SavedTensorPolicy>& policy :
       {std::static_pointer_cast<SavedTensorPolicy>(declines), parallel::counting_policy()}) {
    const SavedTensors scope(policy);
    const at::Tensor y = at::exp(w);
    y.mul_(2);
    const std::string message = error_of<std::exception>([&] { y.sum().backward(); });
    EXPECT_NE(message.find("modified by an inplace operation"), std::string::npos) << message;
    EXPECT_NE(message.find("[CPUFloatType [3]] is at version 1; expected version 0"), std::string::npos) << message;
  }
}

TEST(SavedTensors, policy_that_throws_leaves_everything_in_order) {
  const auto journal = std::make_shared<Journal>(), outer = std::make_shared<Journal>();
  const at::Tensor w = at::ones({3}).requires_grad_(true);
  const SavedTensors scope(outer);
  {
    const SavedTensors inner(journal);
    journal->fails = true;
    EXPECT_THROW(at::exp(w), Error);
    journal->fails = false;
    at::exp(w).sum().backward();
  }
  at::exp(w).sum().backward();
  EXPECT_EQ(journal->packed.size(), 1u);
  EXPECT_EQ(outer->packed.size(), 1u);
  EXPECT_TRUE(at::allclose(w.grad(), at::full({3}, 2 * std::exp(1.0))));
}

TEST(SavedTensors, no_cycle_keeps_a_graph_alive) {
  const auto counting = parallel::counting_policy();
  {
    const SavedTensors scope(counting);
    const at::Tensor y = at::exp(at::tanh(at::ones({1000}).requires_grad_(true)));  // both save their outputs
    EXPECT_EQ(counting->bytes().packed, 8000);
  }
  EXPECT_EQ(counting->bytes().packed, 0);
  EXPECT_EQ(counting->bytes().packed_peak, 8000);
}

TEST(Counting, counts_memory_once) {
  const auto counting = parallel::counting_policy();
  const at::Tensor w = at::ones({1000}).requires_grad_(true);
  const SavedTensors scope(counting);
  const at::Tensor y = w * 2;
  const at::Tensor z = y * y;  // saves y twice
  EXPECT_EQ(counting->bytes().tensors, 2);
  EXPECT_EQ(counting->bytes().packed, 4000);
  z.sum().backward();
  EXPECT_EQ(counting->bytes().packed, 0);
}

TEST(Offload, same_gradients_bit_for_bit) {
  const Net net;
  const at::Tensor x = input();
  const variable_list expected = net.gradients(x);
  OffloadActivations off({.to = folder(), .min_bytes = 0});
  const at::Tensor loss = net.loss(x);
  const parallel::SavedBytes bytes = off.bytes();
  EXPECT_GT(bytes.tensors, 8);
  EXPECT_EQ(bytes.packed, bytes.original);
  expect_same(torch::autograd::grad({loss}, net.weights, {}, /*retain_graph=*/true), expected);
  expect_same(torch::autograd::grad({loss}, net.weights), expected);
  EXPECT_EQ(off.bytes().packed, 0);
}

TEST(Offload, backward_after_the_scope) {
  const Net net;
  const at::Tensor x = input();
  const variable_list expected = net.gradients(x);
  at::Tensor loss;
  {
    OffloadActivations off({.to = folder(), .min_bytes = 0});
    loss = net.loss(x);
  }
  expect_same(torch::autograd::grad({loss}, net.weights), expected);
}

TEST(Offload, memory_that_several_operations_save_is_written_once) {
  const at::Tensor x = input();
  const at::Tensor w = at::ones({64}).requires_grad_(true);
  OffloadActivations off({.to = folder(), .min_bytes = 0});
  const at::Tensor a = x * w, b = x * w, c = x.view({-1, 64}) * w;
  EXPECT_EQ(off.bytes().tensors, 3);
  EXPECT_EQ(off.bytes().packed, static_cast<std::int64_t>(x.nbytes()));
  (a.sum() + b.sum() + c.sum()).backward();
  EXPECT_TRUE(at::allclose(w.grad(), 3 * x.sum(at::IntArrayRef{0, 1})));
}

TEST(Offload, a_change_in_place_between_two_uses_makes_two_copies) {
  const at::Tensor x = at::ones({64});
  const at::Tensor w = at::ones({64}).requires_grad_(true);
  OffloadActivations off({.to = folder(), .min_bytes = 0});
  at::Tensor loss = (x * w).sum();
  x.fill_(10);
  loss = loss + (x * w).sum();
  loss.backward();
  EXPECT_TRUE(at::equal(w.grad(), at::full({64}, 11.0)));
}

TEST(Offload, layouts_survive) {
  const at::Tensor w = at::ones({4, 6, 8}).requires_grad_(true);
  at::manual_seed(1);
  const at::Tensor base = at::randn({12, 8, 8});
  const std::vector<at::Tensor> views{base.slice(0, 0, 4).slice(1, 0, 6), base.as_strided({4, 6, 8}, {1, 4, 24}),
                                      base.as_strided({4, 6, 8}, {0, 8, 1}), base.slice(0, 4, 8).slice(1, 1, 7)};
  for (const at::Tensor& view : views) {
    OffloadActivations off({.to = folder(), .min_bytes = 0});
    const variable_list gradient = torch::autograd::grad({(w * view).sum()}, {w});
    EXPECT_TRUE(at::equal(gradient[0], view)) << view.strides();
  }
}

TEST(Offload, small_tensors_and_those_to_keep_stay) {
  const at::Tensor frozen = at::ones({64, 64});
  const at::Tensor w = at::ones({64, 64}).requires_grad_(true);
  OffloadActivations off({.to = folder(), .min_bytes = 1000, .keep = {frozen}});
  const at::Tensor y = (w * frozen.t()) * at::ones({64});
  EXPECT_EQ(off.bytes().tensors, 0);
  const at::Tensor z = y * at::ones({64, 64});
  EXPECT_EQ(off.bytes().tensors, 1);
}

TEST(Offload, host_keeps_tensors_of_the_host) {
  OffloadActivations off({.to = "host", .min_bytes = 0});
  const Net net;
  expect_same(net.gradients(input()), net.gradients(input()));
  EXPECT_EQ(off.bytes().tensors, 0);
}

TEST(Offload, a_place_that_cannot_be_written_is_named) {
  const std::string message = error_of<std::exception>([] { OffloadActivations off({.to = "/no/such/folder"}); });
  EXPECT_NE(message.find("'/no/such/folder': No such file or directory"), std::string::npos) << message;
  EXPECT_THROW(OffloadActivations({.to = ""}), InputError);
}

TEST(Compress, bf16_gradients_are_within_bound) {
  const Net net(128);
  const at::Tensor x = input(64, 128);
  const variable_list expected = net.gradients(x);
  CompressActivations small({.to = ActivationFormat::bf16, .min_bytes = 4096});
  const at::Tensor loss = net.loss(x);
  EXPECT_EQ(small.bytes().packed * 2, small.bytes().original);
  EXPECT_TRUE(at::equal(loss, net.loss(x)));
  const variable_list gradients = torch::autograd::grad({loss}, net.weights);
  const double error = relative_error(gradients, expected);
  EXPECT_LE(error, 0.004);
  EXPECT_GT(error, 0) << "nothing was compressed";
}

TEST(Compress, int8_gradients_are_within_bound) {
  const Net net(96);  // rows of 96 end in the middle of blocks
  const at::Tensor x = input(49, 96);
  const variable_list expected = net.gradients(x);
  CompressActivations small({.to = ActivationFormat::int8, .min_bytes = 4096});
  const at::Tensor loss = net.loss(x);
  EXPECT_LT(small.bytes().packed * 3.8, small.bytes().original);
  const double error = relative_error(torch::autograd::grad({loss}, net.weights), expected);
  EXPECT_LE(error, 0.03);
  EXPECT_GT(error, 0);
}

TEST(Compress, int8_error_of_an_element) {
  at::manual_seed(2);
  const at::Tensor x = at::randn({300, 100});
  x[7].zero_();
  const at::Tensor w = at::ones({300, 100}).requires_grad_(true);
  CompressActivations small({.to = ActivationFormat::int8, .min_bytes = 0});
  const at::Tensor read = torch::autograd::grad({(w * x).sum()}, {w})[0];
  const at::Tensor flat = at::constant_pad_nd(x.view(-1), {0, 80}).view({-1, 128});
  const at::Tensor bound = flat.abs().amax(1, true) / 254 * 1.0001;
  const at::Tensor difference = at::constant_pad_nd((read - x).view(-1), {0, 80}).view({-1, 128}).abs();
  EXPECT_TRUE(at::all(difference <= bound).item<bool>());
}

TEST(Compress, then_offload) {
  const Net net(128);
  const at::Tensor x = input(64, 128);
  variable_list alone;
  {
    CompressActivations small({.min_bytes = 4096});
    alone = net.gradients(x);
  }
  OffloadActivations off({.to = folder(), .min_bytes = 1024});
  CompressActivations small({.min_bytes = 4096});
  const at::Tensor loss = net.loss(x);
  EXPECT_GE(off.bytes().packed, small.bytes().packed);
  expect_same(torch::autograd::grad({loss}, net.weights), alone);
  EXPECT_EQ(off.bytes().packed, 0);
}

TEST(Compress, only_what_is_chosen) {
  const at::Tensor w = at::ones({64, 64}).requires_grad_(true);
  CompressActivations small({.min_bytes = 0, .only = [](const at::Tensor& t) { return t.size(0) == 64; }});
  const at::Tensor y = w * at::ones({64}), z = w * at::ones({1, 64}), v = w * at::ones({64, 64}, at::kDouble);
  EXPECT_EQ(small.bytes().tensors, 1);
}

TEST(SavedTensors, double_backward_through_packed_tensors) {
  const Net net;
  const at::Tensor x = input();
  const auto penalty = [&] {
    const variable_list first = torch::autograd::grad({net.loss(x)}, net.weights, {}, true, /*create_graph=*/true);
    return torch::autograd::grad({first[0].square().sum() + first[2].square().sum()}, net.weights);
  };
  const variable_list expected = penalty();
  OffloadActivations off({.to = folder(), .min_bytes = 0});
  expect_same(penalty(), expected);
}

TEST(SavedTensors, four_threads_share_a_policy) {
  const Net net;
  const at::Tensor x = input();
  const variable_list expected = net.gradients(x);
  const auto policy = parallel::offload_policy({.to = folder(), .min_bytes = 0});
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        const SavedTensors scope(policy);
        const variable_list gradients = net.gradients(x);
        bool same = true;
        for (std::size_t i = 0; i < gradients.size(); ++i) same = same && at::equal(gradients[i], expected[i]);
        right += same;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 20);
  EXPECT_EQ(policy->bytes().packed, 0);
}

}  // namespace
