// The losses of preference pairs, worked out by hand.

#include <tessera/config/sections/optimization_config.h>
#include <tessera/train/loss/preference.h>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <cmath>

#include <tessera/base/error.h>

namespace tessera::train {
namespace {

double log_logistic(double x) { return -std::log1p(std::exp(-x)); }

/// Two pairs: log-probability sums of the model and of the reference, and numbers of tokens.
struct Given {
  at::Tensor sums = at::tensor({-4.0, -6.0, -3.0, -2.0}, at::kDouble).requires_grad_();
  at::Tensor tokens = at::tensor({2.0, 3.0, 1.0, 4.0}, at::kDouble);
  at::Tensor reference = at::tensor({-5.0, -5.0, -2.0, -2.5}, at::kDouble);
};

OptimizationConfig config_of(PreferenceLoss loss, double beta) {
  OptimizationConfig config;
  config.preference_loss = loss;
  config.preference_beta = beta;
  return config;
}

PreferenceTerms terms_of(const Given& given, const OptimizationConfig& config) {
  return preference_terms(config, given.sums, given.tokens, given.reference);
}

TEST(PreferenceLoss, SigmoidIsThatOfDpo) {
  // d: (-4 + 5) - (-6 + 5) = 2 and (-3 + 2) - (-2 + 2.5) = -1.5
  const Given given;
  const PreferenceTerms terms = terms_of(given, config_of(PreferenceLoss::sigmoid, 0.1));
  EXPECT_NEAR(terms.loss.item<double>(), -log_logistic(0.2) - log_logistic(-0.15), 1e-12);
  EXPECT_NEAR(terms.chosen, 0.1 * 1 + 0.1 * -1, 1e-12);
  EXPECT_NEAR(terms.rejected, 0.1 * -1 + 0.1 * 0.5, 1e-12);
  EXPECT_EQ(terms.accurate, 1);
  EXPECT_NEAR(terms.log_chosen, -4 - 3, 1e-12);
  EXPECT_NEAR(terms.log_rejected, -6 - 2, 1e-12);
  terms.loss.backward();
  // d loss / d chosen = -beta s(-beta d)
  const auto slope = [](double d) { return -0.1 / (1 + std::exp(0.1 * d)); };
  EXPECT_TRUE(
      at::allclose(given.sums.grad(), at::tensor({slope(2), -slope(2), slope(-1.5), -slope(-1.5)}, at::kDouble)))
      << given.sums.grad();
}

TEST(PreferenceLoss, SigmoidSmoothed) {
  OptimizationConfig config = config_of(PreferenceLoss::sigmoid, 0.5);
  config.preference_label_smoothing = 0.2;
  const double expected = -0.8 * log_logistic(1) - 0.2 * log_logistic(-1) -  //
                          0.8 * log_logistic(-0.75) - 0.2 * log_logistic(0.75);
  EXPECT_NEAR(terms_of({}, config).loss.item<double>(), expected, 1e-12);
}

TEST(PreferenceLoss, AtTheReferenceItIsLog2) {
  Given given;
  given.reference = given.sums.detach().clone();
  EXPECT_NEAR(terms_of(given, config_of(PreferenceLoss::sigmoid, 0.1)).loss.item<double>(), 2 * std::log(2.0), 1e-12);
}

TEST(PreferenceLoss, Hinge) {
  // 1 - 0.75 * 2 < 0, so the first pair contributes 0; 1 + 0.75 * 1.5 from the second
  EXPECT_NEAR(terms_of({}, config_of(PreferenceLoss::hinge, 0.75)).loss.item<double>(), 2.125, 1e-12);
}

TEST(PreferenceLoss, IpoTakesMeans) {
  // means: 1/2 - (-1/3) = 5/6; -1 - 0.5/4 = -9/8; 1 / (2 * 0.5) = 1
  const PreferenceTerms terms = terms_of({}, config_of(PreferenceLoss::ipo, 0.5));
  EXPECT_NEAR(terms.loss.item<double>(), 1.0 / 36 + 17.0 * 17 / 64, 1e-12);
  EXPECT_NEAR(terms.chosen, 0.5 * 0.5 + 0.5 * -1, 1e-12);
}

TEST(PreferenceLoss, ApoAnchorsEachAnswerAtTheReference) {
  // gains over the reference: chosen 1 and -1, rejected -1 and 0.5
  const auto s = [](double x) { return 1 / (1 + std::exp(-x)); };
  const Given given;
  const PreferenceTerms zero = terms_of(given, config_of(PreferenceLoss::apo_zero, 0.5));
  EXPECT_NEAR(zero.loss.item<double>(), 1 - s(0.5) + s(-0.5) + 1 - s(-0.5) + s(0.25), 1e-12);
  EXPECT_NEAR(zero.chosen, 0.5 * 1 + 0.5 * -1, 1e-12);
  zero.loss.backward();  // the first pair's chosen answer gains, and its rejected one loses
  EXPECT_NEAR(given.sums.grad()[0].item<double>(), -0.5 * s(0.5) * s(-0.5), 1e-12);
  EXPECT_NEAR(given.sums.grad()[1].item<double>(), 0.5 * s(-0.5) * s(0.5), 1e-12);
  const Given again;
  const PreferenceTerms down = terms_of(again, config_of(PreferenceLoss::apo_down, 0.5));
  EXPECT_NEAR(down.loss.item<double>(), s(0.5) + 1 - s(1) + s(-0.5) + 1 - s(-0.75), 1e-12);
  down.loss.backward();  // both lose, the rejected one more: d / d rejected = b s'(b d)
  EXPECT_NEAR(again.sums.grad()[1].item<double>(), 0.5 * s(1) * s(-1), 1e-12);
  EXPECT_NEAR(again.sums.grad()[0].item<double>(), 0.5 * s(0.5) * s(-0.5) - 0.5 * s(1) * s(-1), 1e-12);
}

TEST(PreferenceLoss, SimpoHasNoReference) {
  // means: -2 + 2 = 0; -3 + 0.5 = -2.5
  Given given;
  given.reference = at::Tensor();
  OptimizationConfig config = config_of(PreferenceLoss::simpo, 2);
  config.preference_gamma = 0.5;
  const PreferenceTerms terms = terms_of(given, config);
  EXPECT_NEAR(terms.loss.item<double>(), -log_logistic(-0.5) - log_logistic(-5.5), 1e-12);
  EXPECT_NEAR(terms.chosen, 2 * -2 + 2 * -3, 1e-12);
  EXPECT_EQ(terms.accurate, 0);
}

TEST(PreferenceLoss, OrpoComparesOdds) {
  Given given;
  given.reference = at::Tensor();
  const auto log_odds = [](double mean) { return mean - std::log(1 - std::exp(mean)); };
  const double first = log_odds(-2) - log_odds(-2), second = log_odds(-3) - log_odds(-0.5);
  const double expected = 2 - 0.1 * log_logistic(first) + 3 - 0.1 * log_logistic(second);
  EXPECT_NEAR(terms_of(given, config_of(PreferenceLoss::orpo, 0.1)).loss.item<double>(), expected, 1e-12);
  given.sums = at::zeros({2}, at::kDouble);  // certain answers: no infinity
  given.tokens = at::ones({2}, at::kDouble);
  EXPECT_TRUE(std::isfinite(terms_of(given, config_of(PreferenceLoss::orpo, 0.1)).loss.item<double>()));
}

TEST(PreferenceLoss, CrossEntropyOfTheChosenBeside) {
  OptimizationConfig config = config_of(PreferenceLoss::sigmoid, 0.1);
  config.preference_sft_weight = 2;
  EXPECT_NEAR(terms_of({}, config).loss.item<double>(), -log_logistic(0.2) - log_logistic(-0.15) + 2 * (2 + 3), 1e-12);
}

TEST(PreferenceLoss, ReferenceIsNotForgotten) {
  Given given;
  given.reference = at::Tensor();
  EXPECT_THROW(terms_of(given, config_of(PreferenceLoss::sigmoid, 0.1)), Error);
  EXPECT_THROW(terms_of(given, config_of(PreferenceLoss::apo_zero, 0.1)), Error);
}

}  // namespace
}  // namespace tessera::train
