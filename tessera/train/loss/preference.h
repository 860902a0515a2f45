#pragma once
/// \file
/// train/loss/: losses computed from a model's log-probabilities of whole rows.
///
/// Losses of pairs of answers to one prompt, one of them chosen and the other rejected. The log-probabilities of the
/// answers' tokens given the prompt are w (chosen) and l (rejected) for the trained model, and rw and rl for a
/// reference. With d = (w - rw) - (l - rl):
///
/// | loss | formula | log-probabilities |
/// |---|---|---|
/// | sigmoid | -(1 - e) log s(b d) - e log s(-b d) | sums |
/// | hinge | max(0, 1 - b d) | sums |
/// | ipo | (d - 1 / (2 b))^2 | means |
/// | apo_zero | 1 - s(b (w - rw)) + s(b (l - rl)) | sums |
/// | apo_down | s(b (w - rw)) + 1 - s(b d) | sums |
/// | simpo | -log s(b (w - l) - g) | means, no reference |
/// | orpo | -w - b log s(log odds(w) - log odds(l)), odds(x) = exp x / (1 - exp x) | means, no reference |
///
/// where s is the logistic function, b preference_beta, e preference_label_smoothing, g preference_gamma, and means are
/// over the answer's tokens. preference_sft_weight times the mean cross-entropy of the chosen answer's tokens is added
/// (orpo has it already). sigmoid: Rafailov et al. 2023, "Direct Preference Optimization", with the smoothing of
/// Mitchell 2023; hinge: Zhao et al. 2023, "SLiC-HF"; ipo: Azar et al. 2023, "A General Theoretical Paradigm to
/// Understand Learning from Human Preferences", with means as in TRL; apo_zero and apo_down: D'Oosterlinck et al. 2024,
/// "Anchored Preference Optimization and Contrastive Revisions", equations 7 and 8; simpo: Meng et al. 2024; orpo: Hong
/// et al. 2024; the added cross-entropy: Pang et al. 2024, "Iterative Reasoning Preference Optimization". The forms and
/// the names of the metrics are those of TRL's dpo_trainer.py, cpo_trainer.py and orpo_trainer.py.

#include <ATen/core/Tensor.h>

namespace tessera {
struct OptimizationConfig;
}

namespace tessera::train {

/// Results of a micro-batch of n pairs, summed over the pairs.
struct PreferenceTerms {
  at::Tensor loss;                          ///< double scalar with gradients: the sum
  double chosen = 0, rejected = 0;          ///< rewards: preference_beta times (log-probability - the reference's)
  double accurate = 0;                      ///< pairs whose chosen answer has the higher reward
  double log_chosen = 0, log_rejected = 0;  ///< log-probabilities by the trained model, sums or means as in the loss
};

/// `sums`: double [2 n] on any device: the sum of the log-probabilities of an answer's tokens; 2 i is the chosen and 2
/// i + 1 the rejected answer of pair i. `tokens`: double [2 n], the number of these tokens (at least 1). `reference`:
/// sums of the reference model, double [2 n]; undefined if the loss needs no reference.
PreferenceTerms preference_terms(const OptimizationConfig& config, const at::Tensor& sums, const at::Tensor& tokens,
                                 const at::Tensor& reference);

}  // namespace tessera::train
