#include <tessera/base/error.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/linear_cross_entropy.h>

#include "compare.h"

using namespace tessera;
using compare::expect_same;
using compare::Tensors;

namespace {

struct LinearCrossEntropy : ::testing::Test {
  void SetUp() override { at::manual_seed(0); }
};

at::Tensor labels_of(std::int64_t b, std::int64_t t, std::int64_t v) { return at::randint(0, v, {b, t}, at::kLong); }

TEST_F(LinearCrossEntropy, EqualsTheComposition) {
  at::Tensor labels = labels_of(3, 9, 50);
  labels[0][3] = nn::ignored_label;
  labels[2].fill_(nn::ignored_label);
  expect_same({at::randn({3, 9, 16}), at::randn({50, 16}), labels},
              [](const Tensors& a) { return Tensors{nn::linear_cross_entropy(a[0], a[1], a[2], 0.01)}; });
}

TEST_F(LinearCrossEntropy, SeveralChunksAndAnUnevenLastOne) {
  // 256 tokens per chunk: 4 x 150 tokens in three chunks.
  expect_same({at::randn({4, 150, 4}), at::randn({500, 4}), labels_of(4, 150, 500)},
              [](const Tensors& a) { return Tensors{nn::linear_cross_entropy(a[0], a[1], a[2], 1.0 / 596)}; });
}

TEST_F(LinearCrossEntropy, PredictsTheNextLabelFromEachPosition) {
  const at::Tensor hidden = at::randn({2, 4, 8}), weight = at::randn({7, 8}), labels = labels_of(2, 4, 7);
  const at::Tensor log_p = at::log_softmax(at::matmul(hidden, weight.t()), -1);
  double expected = 0;
  for (int b = 0; b < 2; ++b)
    for (int t = 0; t < 3; ++t) expected -= log_p[b][t][labels[b][t + 1].item<std::int64_t>()].item<double>();
  EXPECT_NEAR(nn::linear_cross_entropy(hidden, weight, labels, 2).item<double>(), 2 * expected, 1e-4);
}

// Uses labels that are already shifted, as in parts of sequences.
TEST_F(LinearCrossEntropy, LabelsMayStandWhereTheyArePredicted) {
  const at::Tensor hidden = at::randn({2, 6, 8}), weight = at::randn({11, 8}), labels = at::randint(0, 11, {2, 6}),
                   shifted = at::constant_pad_nd(labels.slice(1, 1), {0, 1}, nn::ignored_label);
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor h = hidden.to(type), w = weight.to(type);
    const at::Tensor own =
        nn::linear_cross_entropy(h, w, shifted, 2, {.label_smoothing = 0.1, .place = nn::LabelPlace::own});
    EXPECT_NEAR(own.item<double>(), nn::linear_cross_entropy(h, w, labels, 2, {.label_smoothing = 0.1}).item<double>(),
                1e-4);
  }
  EXPECT_THROW(
      nn::linear_cross_entropy(hidden, weight, at::full({2, 6}, 11, at::kLong), 1, {.place = nn::LabelPlace::own}),
      Error);
}

TEST_F(LinearCrossEntropy, GradientOfOneInputOnly) {
  const at::Tensor labels = labels_of(2, 6, 11), hidden = at::randn({2, 6, 8}), weight = at::randn({11, 8});
  expect_same({hidden}, [&](const Tensors& a) {
    return Tensors{nn::linear_cross_entropy(a[0], weight.to(a[0].scalar_type()), labels, 1)};
  });
  expect_same({weight}, [&](const Tensors& a) {
    return Tensors{nn::linear_cross_entropy(hidden.to(a[0].scalar_type()), a[0], labels, 1)};
  });
}

TEST_F(LinearCrossEntropy, AHeadMayHaveABias) {
  const at::Tensor labels = labels_of(4, 150, 50);
  for (const double smoothing : {0.0, 0.1})
    expect_same({at::randn({4, 150, 16}), at::randn({50, 16}), at::randn({50})}, [&](const Tensors& a) {
      return Tensors{
          nn::linear_cross_entropy(a[0], a[1], labels, 1.0 / 596, {.label_smoothing = smoothing, .softcap = 3}, a[2])};
    });
}

TEST_F(LinearCrossEntropy, LabelsMayBeSmoothed) {
  at::Tensor labels = labels_of(4, 150, 50);
  labels[1][3] = nn::ignored_label;
  labels[3].fill_(nn::ignored_label);
  for (const double smoothing : {0.1, 0.75})
    expect_same({at::randn({4, 150, 16}), at::randn({50, 16}), labels}, [&](const Tensors& a) {
      return Tensors{nn::linear_cross_entropy(a[0], a[1], a[2], 1.0 / 446, {.label_smoothing = smoothing})};
    });
}

TEST_F(LinearCrossEntropy, LogitsMayBeCapped) {
  at::Tensor labels = labels_of(4, 150, 50);
  labels[1][3] = nn::ignored_label;
  for (const double smoothing : {0.0, 0.1})
    expect_same({at::randn({4, 150, 16}), at::randn({50, 16}), labels}, [&](const Tensors& a) {
      return Tensors{
          nn::linear_cross_entropy(a[0], a[1], a[2], 1.0 / 595, {.label_smoothing = smoothing, .softcap = 3})};
    });
  const at::Tensor hidden = at::randn({1, 2, 8}), weight = at::randn({7, 8}), one = at::full({1, 2}, 3, at::kLong);
  const at::Tensor logits = at::tanh(at::matmul(hidden[0][0], weight.t()) / 1.5) * 1.5;
  EXPECT_NEAR(nn::linear_cross_entropy(hidden, weight, one, 1, {.softcap = 1.5}).item<double>(),
              (at::logsumexp(logits, {0}) - logits[3]).item<double>(), 1e-6);
}

TEST_F(LinearCrossEntropy, SmoothingIsTransformersLabelSmoother) {
  const at::Tensor hidden = at::randn({2, 4, 8}), weight = at::randn({7, 8}), labels = labels_of(2, 4, 7);
  labels[0][2] = nn::ignored_label;
  const at::Tensor log_p = at::log_softmax(at::matmul(hidden, weight.t()), -1);
  double nll = 0, uniform = 0;
  for (int b = 0; b < 2; ++b)
    for (int t = 0; t < 3; ++t) {
      const auto label = labels[b][t + 1].item<std::int64_t>();
      if (label == nn::ignored_label) continue;
      nll -= log_p[b][t][label].item<double>();
      uniform -= log_p[b][t].sum().item<double>();
    }
  EXPECT_NEAR(nn::linear_cross_entropy(hidden, weight, labels, 0.5, {.label_smoothing = 0.1}).item<double>(),
              0.5 * (0.9 * nll + 0.1 * uniform / 7), 1e-5);
  EXPECT_THROW(nn::linear_cross_entropy(hidden, weight, labels, 1, {.label_smoothing = 1}), Error);
  EXPECT_THROW(nn::linear_cross_entropy(hidden, weight, labels, 1, {.label_smoothing = -0.1}), Error);
}

TEST_F(LinearCrossEntropy, NothingScoredIsZero) {
  const at::Tensor hidden = at::randn({2, 5, 8}).set_requires_grad(true),
                   weight = at::randn({11, 8}).set_requires_grad(true);
  const at::Tensor loss = nn::linear_cross_entropy(hidden, weight, at::full({2, 5}, nn::ignored_label, at::kLong), 1);
  loss.backward();
  EXPECT_EQ(loss.item<double>(), 0);
  EXPECT_EQ(hidden.grad().abs().max().item<double>(), 0);
  EXPECT_EQ(weight.grad().abs().max().item<double>(), 0);
  const at::Tensor one = nn::linear_cross_entropy(hidden.slice(1, 0, 1), weight, at::zeros({2, 1}, at::kLong), 1);
  EXPECT_EQ(one.item<double>(), 0) << "a single token predicts nothing";
}

TEST_F(LinearCrossEntropy, RefusesLabelsOutsideTheVocabulary) {
  const at::Tensor hidden = at::randn({1, 3, 8}), weight = at::randn({11, 8});
  for (const std::int64_t bad : {11, -1}) {
    at::Tensor labels = at::zeros({1, 3}, at::kLong);
    labels[0][2] = bad;
    EXPECT_THROW(nn::linear_cross_entropy(hidden, weight, labels, 1), Error) << bad;
  }
}

TEST_F(LinearCrossEntropy, GoesBackwardOnce) {
  const at::Tensor hidden = at::randn({1, 3, 8}).set_requires_grad(true);
  const at::Tensor loss = nn::linear_cross_entropy(hidden, at::randn({11, 8}), at::zeros({1, 3}, at::kLong), 1);
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_THROW(loss.backward(), Error);
}

TEST_F(LinearCrossEntropy, UnderAutocastTheProductsAreBf16) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({2, 300, 64}).set_requires_grad(true),
                   w = (at::randn({97, 64}) * 0.2).set_requires_grad(true),
                   labels = at::randint(0, 97, {2, 300}, at::kLong);
  const auto run = [&](bool half) {
    x.mutable_grad() = at::Tensor(), w.mutable_grad() = at::Tensor();
    at::Tensor loss;
    {
      const nn::Autocast bf16(half, at::kCPU);
      loss = nn::linear_cross_entropy(x, w, labels, 1.0 / 598);
    }
    loss.backward();
    return std::tuple(loss.item<double>(), x.grad().clone(), w.grad().clone());
  };
  const auto [loss, dx, dw] = run(false);
  const auto [half_loss, half_dx, half_dw] = run(true);
  EXPECT_NEAR(half_loss, loss, 1e-2);
  EXPECT_NE(half_loss, loss);
  EXPECT_EQ(half_dw.scalar_type(), at::kFloat);
  EXPECT_LT(compare::error(half_dx, dx), 2e-2);
  EXPECT_LT(compare::error(half_dw, dw), 2e-2);
}

}  // namespace
