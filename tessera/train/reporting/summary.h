#pragma once
/// \file
/// Describes a run in words: log lines at its start and end, the head of its report, and a sample of the model's text.

#include <tessera/train/loop/setup.h>
#include <tessera/train/reporting/metrics.h>
#include <tessera/train/reporting/report.h>

#include <string>
#include <vector>

namespace tessera::train {

/// A prompt and the model's continuation; empty: none.
struct Sample {
  std::string prompt, text;
};

/// Number of parameters, including frozen ones; tied ones count once.
std::int64_t parameter_count(const models::LanguageModel& model);

/// "gpt2, 124 M parameters".
std::string describe_model(const models::LanguageModel& model);

std::vector<std::string> describe_start(const Setup& setup, const comm::World& world);
std::string describe(const EvalMetrics& metrics);
/// Number of steps that --fp16 has skipped since the previous log, as text; empty: none.
std::string describe_skipped(const StepMetrics& metrics);
/// Number of steps that the run has skipped, as text; empty: none.
std::string describe_skipped(const RunTotals& totals);
/// `before` and `after`: samples; empty ones are not shown.
std::vector<std::string> describe_end(const Setup& setup, const RunTotals& totals, const Sample& before,
                                      const Sample& after, const std::string& report_path);

/// Fills in the title, facts, footer and the note of the sample; the rest is empty.
Report describe_run(const Setup& setup, const comm::World& world);

/// The first tokens of the validation data (otherwise of the training data) and the model's continuation. Empty if ids
/// cannot be converted to text. Not collective.
Sample sample_text(const Setup& setup);

}  // namespace tessera::train
