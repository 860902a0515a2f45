#pragma once
/// \file
/// Log lines in the format of Hugging Face's Trainer (a Python dictionary per line; its values are numbers in
/// transformers 4 and strings in 5), for people and scripts that read such lines.

#include <tessera/train/reporting/metrics.h>

#include <string>

namespace tessera::train {

/// repr() of a Python float: the shortest digits that read back as the same double, with an exponent below 1e-4 and
/// from 1e16 on; "nan", "inf".
std::string python_repr(double value);
/// Same, after rounding to `digits` significant digits.
std::string python_repr(double value, int digits);
/// Same, after round(value, places).
std::string python_round(double value, int places);

/// {'loss': 10.5949, 'grad_norm': 188.293, 'learning_rate': 4.58e-05, 'epoch': 0.25}: loss rounded to 4 places, epoch
/// to 2 (transformers/trainer.py, _maybe_log_save_evaluate; trainer_callback.py, ProgressCallback). grad_norm,
/// learning_rate and eval_loss have 6 significant digits where transformers prints up to 17.
/// With `texts` as in transformers 5: every real is a string with 4 significant digits, {'loss': '10.59', 'grad_norm':
/// '188.3', ...}.
std::string hf_line(const StepMetrics& metrics, bool texts = false);
/// {'eval_loss': ..., 'eval_runtime': ..., 'eval_samples_per_second': ..., 'eval_steps_per_second': ..., 'epoch': ...}.
std::string hf_line(const EvalMetrics& metrics, bool texts = false);
/// {'train_runtime': ..., 'train_samples_per_second': ..., 'train_steps_per_second': ..., 'train_loss': ..., ...}.
std::string hf_line(const RunTotals& totals, bool texts = false);

}  // namespace tessera::train
