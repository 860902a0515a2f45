#include <tessera/train/reporting/log_format.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <tessera/base/text.h>

namespace tessera::train {
namespace {

std::string dictionary(const std::vector<std::pair<const char*, std::string>>& members) {
  std::string out = "{";
  for (const auto& [key, value] : members) out += concat(out.size() > 1 ? ", " : "", "'", key, "': ", value);
  return out + "}";
}

double rate(std::int64_t count, double seconds) { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }

double reread(const char* format, int digits, double value) {
  char text[400];
  std::snprintf(text, sizeof text, format, digits, value);
  return std::strtod(text, nullptr);
}

/// f"'{value:.4g}'", the format of reals in transformers 5 (trainer_callback.py, ProgressCallback).
std::string short_text(double value) {
  if (!std::isfinite(value)) return concat("'", python_repr(value), "'");
  char text[40];
  std::snprintf(text, sizeof text, "'%.4g'", value);
  return text;
}

}  // namespace

std::string python_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[40];
  // Python chooses the notation by the decimal exponent, to_chars by length.
  const double magnitude = std::abs(value);
  const bool scientific = magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16);
  const auto end = std::to_chars(text, text + sizeof text, value,
                                 scientific ? std::chars_format::scientific : std::chars_format::fixed);
  std::string out(text, end.ptr);
  if (!scientific && out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string python_repr(double value, int digits) {
  return python_repr(std::isfinite(value) ? reread("%.*e", digits - 1, value) : value);
}

std::string python_round(double value, int places) {
  return python_repr(std::isfinite(value) ? reread("%.*f", places, value) : value);
}

std::string hf_line(const StepMetrics& m, bool texts) {
  std::string line =
      dictionary({{"loss", texts ? short_text(m.loss) : python_round(m.loss, 4)},
                  {"grad_norm", texts ? short_text(m.grad_norm) : python_repr(m.grad_norm, 6)},
                  {"learning_rate", texts ? short_text(m.learning_rate) : python_repr(m.learning_rate, 6)},
                  {"epoch", texts ? short_text(m.epoch) : python_round(m.epoch, 2)}});
  if (m.num_input_tokens_seen >= 0)
    line.insert(line.size() - 1, concat(", 'num_input_tokens_seen': ", m.num_input_tokens_seen));
  return line;
}

std::string hf_line(const EvalMetrics& m, bool texts) {
  const auto rounded = [&](double value, int places) {
    return texts ? short_text(value) : python_round(value, places);
  };
  const auto exact = [&](double value) { return texts ? short_text(value) : python_repr(value, 6); };
  std::vector<std::pair<const char*, std::string>> members = {{"eval_loss", exact(m.loss)}};
  if (m.classes.measured) {
    members.emplace_back("eval_accuracy", exact(m.classes.accuracy));
    members.emplace_back("eval_f1", exact(m.classes.f1));
  }
  members.emplace_back("eval_runtime", rounded(m.seconds, 4));
  members.emplace_back("eval_samples_per_second", rounded(rate(m.rows, m.seconds), 3));
  members.emplace_back("eval_steps_per_second", rounded(rate(m.batches, m.seconds), 3));
  members.emplace_back("epoch", rounded(m.epoch, 2));
  return dictionary(members);
}

std::string hf_line(const RunTotals& t, bool texts) {
  const auto rounded = [&](double value, int places) {
    return texts ? short_text(value) : python_round(value, places);
  };
  return dictionary({{"train_runtime", rounded(t.seconds, 4)},
                     {"train_samples_per_second", rounded(rate(t.rows, t.seconds), 3)},
                     {"train_steps_per_second", rounded(rate(t.steps_here, t.seconds), 3)},
                     {"train_loss", texts ? short_text(t.train_loss) : python_repr(t.train_loss, 6)},
                     {"epoch", rounded(t.epoch, 2)}});
}

}  // namespace tessera::train
