#include <tessera/plan/batch.h>

#include <cmath>

#include <tessera/base/error.h>

namespace tessera::plan {

std::vector<BatchAdvice> batch_advice(const BatchQuestion& q, const std::vector<std::int64_t>& rows) {
  if (!(q.critical_rows > 0) || !std::isfinite(q.critical_rows) || q.rows < 1 || q.steps < 1)
    throw InputError(concat("advice on batch sizes needs a critical batch size above 0 (", q.critical_rows,
                            " rows), and rows (", q.rows, ") and steps (", q.steps, ") of a run"));
  const auto base_rows = static_cast<double>(q.rows), base_steps = static_cast<double>(q.steps);
  const double least_steps = base_steps / (1 + q.critical_rows / base_rows);
  std::vector<BatchAdvice> all;
  for (const std::int64_t n : rows) {
    if (n < 1) throw InputError(concat("a batch of ", n, " rows: at least 1"));
    const auto b = static_cast<double>(n);
    const double times = b / base_rows;
    BatchAdvice advice{.rows = n, .steps = least_steps * (1 + q.critical_rows / b)};
    advice.samples = advice.steps * b;
    advice.steps_saved = 1 - advice.steps / base_steps;
    advice.rows_wasted = advice.samples / (base_steps * base_rows) - 1;
    advice.learning_rate = q.learning_rate * (q.rule == BatchRule::none     ? 1
                                              : q.rule == BatchRule::linear ? times
                                                                            : std::sqrt(times));
    advice.warmup_steps = static_cast<double>(q.warmup_steps) / times;
    if (q.rows_per_second > 0)
      advice.seconds = advice.samples / (q.rows_per_second * static_cast<double>(q.devices) * times);
    all.push_back(advice);
  }
  return all;
}

}  // namespace tessera::plan
