/// \file tessera plan batch: benefits and costs of larger and smaller batches, from the noise scale that a run has
/// measured.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/config/resolve/command_flags.h>
#include <tessera/plan/batch.h>
#include <tools/tessera/commands.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera plan batch --run OUT                 a run with --gradient_noise_scale\n"
    "tessera plan batch --noise_scale 250 --rows 64 --steps 10000 --learning_rate 3e-4\n\n"
    "Prints, for batches of 1/4 to 32 times the rows per step, the steps and rows to\n"
    "the same loss, the learning rate by a rule and the warm-up. A batch of the\n"
    "critical size takes twice the minimum steps and twice the minimum rows.\n\n"
    "  --run DIR             takes noise scale, rows, steps and learning rate from\n"
    "                        DIR/metrics.jsonl\n"
    "  --noise_scale R       noise scale in rows: the critical batch size\n"
    "  --rows N              rows per step of the known run\n"
    "  --steps N             its steps\n"
    "  --learning_rate X     its peak learning rate\n"
    "  --warmup_steps N      its warm-up [0]\n"
    "  --rule R              none, linear (SGD), square_root (Adam) [square_root]\n"
    "  --rows_per_second X   of one device; adds the time, with the number of devices\n"
    "                        growing like the rows per step\n"
    "  --devices N           devices of that run [1]\n"
    "  --json                prints JSON\n";

/// Reads noise scale, rows, steps and learning rate from a run's metrics.
void read_run(const std::string& folder, plan::BatchQuestion& question) {
  const std::string path = path_join(folder, "metrics.jsonl");
  double rate = 0;
  std::int64_t samples_of_last = 0;
  for (const std::string& line : split(read_file(path), '\n')) {
    if (trim(line).empty()) continue;
    const Value value = parse_json(line, path);
    if (value.find("event") != nullptr) continue;
    if (const Value* scale = value.find("gradient_noise_scale")) question.critical_rows = scale->as_real();
    if (const Value* rows = value.find("rows")) samples_of_last = rows->as_int();
    if (const Value* shares = value.find("batch_shares")) {
      samples_of_last = 0;
      for (const Value& share : shares->items()) samples_of_last += share.as_int();
    }
    rate = std::max(rate, value.at("learning_rate").as_real());
    question.steps = value.at("step").as_int();
  }
  if (question.critical_rows <= 0)
    throw InputError(concat(path,
                            ": no step has a gradient_noise_scale: train with --gradient_noise_scale, or use "
                            "--noise_scale, --rows and --steps"));
  if (samples_of_last > 0) question.rows = samples_of_last;
  question.learning_rate = rate;
}

std::string number(double x, int digits = 4) { return format_real(x, digits); }

std::string duration(double seconds) {
  if (seconds < 120) return concat(number(seconds, 3), " s");
  if (seconds < 7200) return concat(number(seconds / 60, 3), " min");
  return seconds < 2 * 86400 ? concat(number(seconds / 3600, 3), " h") : concat(number(seconds / 86400, 3), " days");
}

void print_table(const plan::BatchQuestion& q, const std::vector<plan::BatchAdvice>& advice) {
  std::printf("critical batch size: about %.0f rows per step (%.0f to %.0f, since the noise scale is an estimate)\n\n",
              q.critical_rows, q.critical_rows / 2, q.critical_rows * 2);
  std::printf("%8s %10s %12s %12s %12s %14s %8s%s\n", "rows", "steps", "fewer steps", "rows in all", "more rows",
              "learning rate", "warm-up", q.rows_per_second > 0 ? "       time" : "");
  for (const plan::BatchAdvice& a : advice)
    std::printf("%8lld %10.0f %11.0f%% %12.0f %11.0f%% %14s %8.0f%s%s\n", static_cast<long long>(a.rows), a.steps,
                100 * a.steps_saved, a.samples, 100 * a.rows_wasted,
                q.learning_rate > 0 ? number(a.learning_rate).c_str() : "-", a.warmup_steps,
                q.rows_per_second > 0 ? concat("  ", duration(a.seconds)).c_str() : "", a.rows == q.rows ? "  <" : "");
  std::printf(
      "\nThe learning rate follows the %s rule; beyond the critical size no rule holds: raise it less. Warm-up\n"
      "keeps its rows. --learning_rate_rule %s --learning_rate_batch_size %lld does the same in a run.\n",
      std::string(word_of(q.rule)).c_str(), std::string(word_of(q.rule)).c_str(), static_cast<long long>(q.rows));
}

Value to_json(const plan::BatchAdvice& a) {
  return Value::make_object({{"rows", Value::of(a.rows)},
                             {"steps", Value::of(a.steps)},
                             {"samples", Value::of(a.samples)},
                             {"steps_saved", Value::of(a.steps_saved)},
                             {"rows_wasted", Value::of(a.rows_wasted)},
                             {"learning_rate", Value::of(a.learning_rate)},
                             {"warmup_steps", Value::of(a.warmup_steps)},
                             {"seconds", Value::of(a.seconds)}});
}

}  // namespace

int plan_batch_command(const Arguments& arguments) {
  if (arguments.empty() || arguments == Arguments{"--help"} || arguments == Arguments{"-h"}) {
    std::fputs(help, stdout);
    return 0;
  }
  const config::Flags flags(
      "plan batch", arguments,
      {"run", "noise_scale", "rows", "steps", "learning_rate", "warmup_steps", "rule", "rows_per_second", "devices"},
      {"json"});
  plan::BatchQuestion q;
  if (const auto run = flags.text("run")) read_run(*run, q);
  q.critical_rows = flags.real("noise_scale", q.critical_rows);
  q.rows = flags.integer("rows", q.rows);
  q.steps = flags.integer("steps", q.steps);
  q.learning_rate = flags.real("learning_rate", q.learning_rate);
  q.warmup_steps = flags.integer("warmup_steps", 0);
  q.rows_per_second = flags.real("rows_per_second", 0);
  q.devices = flags.integer("devices", 1);
  if (const auto word = flags.text("rule")) {
    const auto rule = parse_word<BatchRule>(*word);
    if (!rule) throw InputError(concat("--rule ", *word, ": expected none, linear or square_root"));
    q.rule = *rule;
  }
  if (q.rows < 1) throw InputError("--rows is missing: the rows per step of the run");
  if (q.devices < 1) throw InputError("--devices must be at least 1");
  std::vector<std::int64_t> rows;
  for (const std::int64_t part : {4, 2})
    if (q.rows % part == 0) rows.push_back(q.rows / part);
  for (std::int64_t times = 1; times <= 32; times *= 2) rows.push_back(q.rows * times);
  const auto advice = plan::batch_advice(q, rows);
  if (flags.has("json")) {
    Value all = Value::make_array();
    for (const plan::BatchAdvice& a : advice) all.push_back(to_json(a));
    std::printf(
        "%s\n",
        dump_json(Value::make_object({{"critical_rows", Value::of(q.critical_rows)}, {"batches", std::move(all)}}))
            .c_str());
  } else {
    print_table(q, advice);
  }
  return 0;
}

}  // namespace tessera::tool
