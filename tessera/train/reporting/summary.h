#pragma once
/// \file
/// A run in words: what is said at its start and its end, the head of its report, and a sample of what it learnt.

#include <tessera/train/loop/setup.h>
#include <tessera/train/reporting/metrics.h>
#include <tessera/train/reporting/report.h>

#include <string>
#include <vector>

namespace tessera::train {

/// A given begin and what a model made of it; empty: none.
struct Sample {
  std::string prompt, text;
};

/// Parameters, frozen ones too, tied ones once.
std::int64_t parameter_count(const models::LanguageModel& model);

/// "gpt2, 124 M parameters".
std::string describe_model(const models::LanguageModel& model);

std::vector<std::string> describe_start(const Setup& setup, const comm::World& world);
std::string describe(const EvalMetrics& metrics);
/// How many steps --fp16 has skipped since the previous log; empty: none.
std::string describe_skipped(const StepMetrics& metrics);
/// How many steps the run has skipped; empty: none.
std::string describe_skipped(const RunTotals& totals);
/// `before` and `after`: samples; an empty one is not shown.
std::vector<std::string> describe_end(const Setup& setup, const RunTotals& totals, const Sample& before,
                                      const Sample& after, const std::string& report_path);

/// Title, facts, footer and the note of the sample; the rest is empty.
Report describe_run(const Setup& setup, const comm::World& world);

/// The first tokens of the validation (else training) data, and how the model continues them. Empty when ids cannot be
/// turned into text. Not collective.
Sample sample_text(const Setup& setup);

}  // namespace tessera::train
