#include <tessera/train/reporting/prometheus.h>

#include <cmath>
#include <utility>
#include <vector>

#include <tessera/base/text.h>

namespace tessera::train {
namespace {

/// Escapes a label value: backslash, quotation mark and line feed are written with a backslash.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return out;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return format_real(value, 12);
}

class Writer {
 public:
  explicit Writer(const std::string& job) : job_(escaped(job)) {}

  /// Adds a metric with one sample, or with one per label value.
  void add(const char* name, const char* type, const char* help, double value) {
    begin(name, type, help);
    sample(name, "", value);
  }
  void begin(const char* name, const char* type, const char* help) {
    text += concat("# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
  }
  void sample(const char* name, const std::string& label, double value) {
    text += concat(name, "{job=\"", job_, "\"", label, "} ", number(value), "\n");
  }

  std::string text;

 private:
  std::string job_;
};

std::string by_rank(std::size_t rank) { return concat(",rank=\"", rank, "\""); }

void add_step(Writer& out, const StepMetrics& m) {
  out.add("tessera_steps_total", "counter", "Optimizer steps done.", static_cast<double>(m.step));
  out.add("tessera_loss", "gauge", "Mean loss since the previous log.", m.loss);
  out.add("tessera_gradient_norm", "gauge", "Norm of the last step's gradients before clipping.", m.grad_norm);
  out.add("tessera_learning_rate", "gauge", "Learning rate of the last step.", m.learning_rate);
  out.add("tessera_epoch", "gauge", "Passes over the training data.", m.epoch);
  out.add("tessera_tokens_per_second", "gauge", "Tokens of all ranks, without padding.", m.tokens_per_second);
  out.add("tessera_step_seconds", "gauge", "Mean time of a step since the previous log.", m.step_time_ms / 1000);
  out.add("tessera_cpu_utilization_ratio", "gauge", "Processor time of the ranks' threads over what they could use.",
          m.cpu_utilization);
  if (m.flops_utilization > 0)
    out.add("tessera_model_flops_utilization_ratio", "gauge", "Model FLOP/s over the measured peak.",
            m.flops_utilization);
  out.begin("tessera_phase_seconds", "gauge", "Mean time of a step by phase.");
  for (std::size_t i = 0; i < phase_count; ++i)
    out.sample("tessera_phase_seconds", concat(",phase=\"", phase_names[i], "\""), m.phases[i]);
  if (!m.memory_by_rank.empty()) {
    out.begin("tessera_resident_memory_peak_bytes", "gauge", "Largest resident memory so far.");
    for (std::size_t rank = 0; rank < m.memory_by_rank.size(); ++rank)
      out.sample("tessera_resident_memory_peak_bytes", by_rank(rank), static_cast<double>(m.memory_by_rank[rank]));
  }
  if (!m.shares.empty()) {
    out.begin("tessera_rows", "gauge", "Rows of the last step.");
    for (std::size_t rank = 0; rank < m.shares.size(); ++rank)
      out.sample("tessera_rows", by_rank(rank), static_cast<double>(m.shares[rank]));
  }
  if (m.noise.scale)
    out.add("tessera_gradient_noise_scale_rows", "gauge", "Batch size beyond which larger batches gain little.",
            *m.noise.scale);
}

}  // namespace

std::string prometheus_text(const Exposition& now) {
  Writer out(now.job);
  out.add("tessera_running", "gauge", "1 while the run is in progress, 0 when it has ended normally.", now.running);
  out.add("tessera_written_timestamp_seconds", "gauge", "Time of writing: a run that has died stops updating it.",
          now.wall_time);
  if (now.planned > 0)
    out.add("tessera_steps_planned", "gauge", "Optimizer steps of the whole run.", static_cast<double>(now.planned));
  if (now.step) {
    out.add("tessera_remaining_seconds", "gauge", "Time left at the current speed.",
            now.running ? now.seconds_left : 0);
    add_step(out, *now.step);
  }
  if (now.evaluation) out.add("tessera_evaluation_loss", "gauge", "Loss of the last evaluation.", now.evaluation->loss);
  return std::move(out.text);
}

}  // namespace tessera::train
