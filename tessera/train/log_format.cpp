#include <tessera/train/log_format.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <utility>

#include <tessera/base/text.h>

namespace tessera::train {
namespace {

std::string dictionary(std::initializer_list<std::pair<const char*, std::string>> members) {
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

}  // namespace

std::string python_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[40];
  // Python chooses the form by the decimal exponent, to_chars by length.
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

std::string hf_line(const StepMetrics& m) {
  return dictionary({{"loss", python_round(m.loss, 4)},
                     {"grad_norm", python_repr(m.grad_norm, 6)},
                     {"learning_rate", python_repr(m.learning_rate, 6)},
                     {"epoch", python_round(m.epoch, 2)}});
}

std::string hf_line(const EvalMetrics& m) {
  return dictionary({{"eval_loss", python_repr(m.loss, 6)},
                     {"eval_runtime", python_round(m.seconds, 4)},
                     {"eval_samples_per_second", python_round(rate(m.rows, m.seconds), 3)},
                     {"eval_steps_per_second", python_round(rate(m.batches, m.seconds), 3)},
                     {"epoch", python_round(m.epoch, 2)}});
}

std::string hf_line(const RunTotals& t) {
  return dictionary({{"train_runtime", python_round(t.seconds, 4)},
                     {"train_samples_per_second", python_round(rate(t.rows, t.seconds), 3)},
                     {"train_steps_per_second", python_round(rate(t.steps_here, t.seconds), 3)},
                     {"train_loss", python_repr(t.train_loss, 6)},
                     {"epoch", python_round(t.epoch, 2)}});
}

}  // namespace tessera::train
