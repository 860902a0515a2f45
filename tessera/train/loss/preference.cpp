#include <tessera/train/loss/preference.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/config/rules/validate_preferences.h>
#include <tessera/config/sections/optimization_config.h>

namespace tessera::train {
namespace {

/// log(exp x / (1 - exp x)) for x < 0; a certain answer (x = 0 in double) is treated as almost certain.
at::Tensor log_odds(const at::Tensor& x) {
  constexpr double nearly_certain = -1e-12;
  const at::Tensor below = x.clamp_max(nearly_certain);
  return below - at::log(-at::expm1(below));
}

/// The loss of each pair [n], from the gains of its answers.
at::Tensor losses_of(const OptimizationConfig& config, const at::Tensor& chosen, const at::Tensor& rejected,
                     const at::Tensor& cross_entropy) {
  using Loss = PreferenceLoss;
  const double beta = config.preference_beta;
  const at::Tensor difference = chosen - rejected;
  switch (config.preference_loss) {
    case Loss::sigmoid: {
      const double wrong = config.preference_label_smoothing;
      return at::log_sigmoid(beta * difference) * -(1 - wrong) - at::log_sigmoid(-beta * difference) * wrong;
    }
    case Loss::hinge:
      return at::relu(1 - beta * difference);
    case Loss::ipo:
      return at::square(difference - 1 / (2 * beta));
    case Loss::simpo:
      return -at::log_sigmoid(beta * difference - config.preference_gamma);
    case Loss::orpo:
      return cross_entropy - beta * at::log_sigmoid(log_odds(chosen) - log_odds(rejected));
    case Loss::apo_zero:  // 1 - s(x) is s(-x)
      return at::sigmoid(-beta * chosen) + at::sigmoid(beta * rejected);
    case Loss::apo_down:
      return at::sigmoid(beta * chosen) + at::sigmoid(-beta * difference);
    case Loss::none:
      break;
  }
  throw Error("preference_loss is none, so there is no pair loss");
}

}  // namespace

PreferenceTerms preference_terms(const OptimizationConfig& config, const at::Tensor& sums, const at::Tensor& tokens,
                                 const at::Tensor& reference) {
  using Loss = PreferenceLoss;
  const Loss kind = config.preference_loss;
  TESSERA_CHECK(sums.dim() == 1 && sums.size(0) % 2 == 0 && sums.sizes() == tokens.sizes(), "expected sums [2 n]");
  TESSERA_CHECK(!config::needs_reference(kind) || (reference.defined() && reference.sizes() == sums.sizes()),
                "the loss needs the reference's log-probabilities [2 n]");
  const double beta = config.preference_beta;
  const auto pairs = [](const at::Tensor& x) { return x.view({-1, 2}); };
  const at::Tensor means = sums / tokens;
  const bool by_token = kind == Loss::ipo || kind == Loss::simpo || kind == Loss::orpo;
  at::Tensor gain = by_token ? means : sums;
  if (config::needs_reference(kind)) gain = gain - (by_token ? reference / tokens : reference);
  const at::Tensor chosen = pairs(gain).select(1, 0), rejected = pairs(gain).select(1, 1);
  const at::Tensor cross_entropy = -pairs(means).select(1, 0);
  at::Tensor loss = losses_of(config, chosen, rejected, cross_entropy);
  if (kind != Loss::orpo && config.preference_sft_weight > 0)
    loss = loss + cross_entropy * config.preference_sft_weight;

  PreferenceTerms terms;
  terms.loss = loss.sum();
  const at::Tensor rewards = (pairs(gain).detach() * beta).cpu();
  const at::Tensor totals = pairs(by_token ? means : sums).detach().sum(0).cpu();
  terms.log_chosen = totals[0].item<double>();
  terms.log_rejected = totals[1].item<double>();
  const auto* reward = rewards.const_data_ptr<double>();
  for (std::int64_t i = 0; i < rewards.size(0); ++i) {
    terms.chosen += reward[2 * i];
    terms.rejected += reward[2 * i + 1];
    terms.accurate += reward[2 * i] > reward[2 * i + 1];
  }
  return terms;
}

}  // namespace tessera::train
