#include <tessera/layout/batch/ramp.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::layout {
namespace {

constexpr double most_rows = 1e15;  // whole numbers up to this one are exact in a double

/// "250B" -> 250e9; nullopt: not a number of rows.
std::optional<std::int64_t> rows_of_word(std::string_view word) {
  double unit = 1;
  constexpr std::string_view letters = "KMBT";
  if (!word.empty()) {
    const char last = static_cast<char>(std::toupper(static_cast<unsigned char>(word.back())));
    if (const std::size_t place = letters.find(last); place != std::string_view::npos) {
      unit = std::pow(1000.0, static_cast<double>(place + 1));
      word.remove_suffix(1);
    }
  }
  const auto number = parse_real(word);
  if (!number || !(*number >= 0) || *number * unit > most_rows) return std::nullopt;
  return static_cast<std::int64_t>(*number * unit);
}

BatchRamp parse_steps(std::string_view text, std::string_view spaced) {
  const auto wrong = [&](const auto&... parts) -> InputError {
    return InputError(concat("--batch_size_schedule '", text, "': ", parts...));
  };
  BatchRamp ramp;
  for (const std::string& word : split(spaced, ' ')) {
    if (word.empty()) continue;
    const std::size_t colon = word.find(':');
    const auto after = rows_of_word(std::string_view(word).substr(0, colon));
    const auto rows =
        colon == std::string::npos ? std::nullopt : rows_of_word(std::string_view(word).substr(colon + 1));
    if (!after || !rows || *rows < 1)
      throw wrong("'", word, "' is not AFTER:ROWS with whole numbers, such as 1000:64 or 2.5M:128");
    if (ramp.steps.empty() && *after != 0) throw wrong("the first entry must start at 0, as 0:", *rows);
    if (!ramp.steps.empty() && (*after <= ramp.steps.back().after || *rows <= ramp.steps.back().rows))
      throw wrong("'", word, "' must start later and have more rows than ", ramp.steps.back().after, ":",
                  ramp.steps.back().rows, " before it");
    ramp.steps.push_back({*after, *rows});
  }
  return ramp;
}

}  // namespace

BatchRamp parse_batch_ramp(std::string_view text) {
  std::string spaced(text);
  std::replace(spaced.begin(), spaced.end(), ',', ' ');
  if (spaced.find(':') != std::string::npos) return parse_steps(text, spaced);
  std::vector<std::int64_t> numbers;
  for (const std::string& word : split(spaced, ' ')) {
    if (word.empty()) continue;
    const auto number = parse_int(word);
    if (!number)
      throw InputError(concat("--batch_size_schedule '", text, "': '", word,
                              "' is not a whole number; three are needed: START,INCREMENT,SAMPLES"));
    numbers.push_back(*number);
  }
  if (numbers.size() != 3)
    throw InputError(concat("--batch_size_schedule '", text, "' has ", numbers.size(),
                            " numbers; three are needed: START,INCREMENT,SAMPLES, as in 32,32,1000000"));
  if (numbers[0] < 1 || numbers[1] < 1 || numbers[2] < 0)
    throw InputError(concat("--batch_size_schedule '", text,
                            "': START and INCREMENT must be at least 1 row, and SAMPLES at least 0"));
  return {numbers[0], numbers[1], numbers[2]};
}

std::string to_text(const BatchRamp& ramp) {
  if (ramp.steps.empty()) return concat(ramp.start, ",", ramp.increment, ",", ramp.samples);
  std::vector<std::string> entries;
  for (const BatchStep& step : ramp.steps) entries.push_back(concat(step.after, ":", step.rows));
  return join(entries, " ");
}

std::int64_t ramp_rows(const BatchRamp& ramp, std::int64_t full, std::int64_t consumed) {
  if (!ramp.steps.empty()) {
    const auto next = std::upper_bound(ramp.steps.begin(), ramp.steps.end(), consumed,
                                       [](std::int64_t rows, const BatchStep& step) { return rows < step.after; });
    return (next - 1)->rows;
  }
  const std::int64_t parts = (full - ramp.start) / ramp.increment;
  if (parts <= 0 || consumed >= ramp.samples) return full;
  // floor(consumed / (samples / parts)) without rounding
  const auto part = static_cast<std::int64_t>(static_cast<__int128>(consumed) * parts / ramp.samples);
  return ramp.start + ramp.increment * part;
}

void check_batch_ramp(const BatchRamp& ramp, std::int64_t full, std::int64_t ranks) {
  const std::string name = concat("--batch_size_schedule ", to_text(ramp), ": ");
  if (!ramp.steps.empty()) {
    if (ramp.steps.back().rows != full)
      throw InputError(concat(name, "it ends with ", ramp.steps.back().rows, " rows per step, but the full batch has ",
                              full, " (processes x --per_device_train_batch_size x --gradient_accumulation_steps)"));
    for (const BatchStep& step : ramp.steps)
      if (step.rows % ranks != 0)
        throw InputError(concat(name, step.rows, " is not a multiple of the ", ranks,
                                " processes that share a step, so that all have the same number of rows"));
    return;
  }
  if (ramp.start > full)
    throw InputError(concat(name, "it starts with ", ramp.start, " rows per step, more than the full batch of ", full,
                            " (processes x --per_device_train_batch_size x --gradient_accumulation_steps)"));
  if ((full - ramp.start) % ramp.increment != 0)
    throw InputError(concat(name, "steps of ", ramp.increment, " do not lead from ", ramp.start,
                            " to the full batch of ", full, ": ", full - ramp.start, " is not a multiple of ",
                            ramp.increment));
  if (ramp.start % ranks != 0 || ramp.increment % ranks != 0)
    throw InputError(concat(name, "START and INCREMENT must be multiples of the ", ranks,
                            " processes that share a step, so that all have the same number of rows"));
}

}  // namespace tessera::layout
