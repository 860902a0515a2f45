#include <tessera/layout/batch/ramp.h>

#include <algorithm>
#include <string>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::layout {

BatchRamp parse_batch_ramp(std::string_view text) {
  std::string spaced(text);
  std::replace(spaced.begin(), spaced.end(), ',', ' ');
  std::vector<std::int64_t> numbers;
  for (const std::string& word : split(spaced, ' ')) {
    if (word.empty()) continue;
    const auto number = parse_int(word);
    if (!number)
      throw InputError(concat("--batch_size_schedule '", text, "': '", word,
                              "' is no whole number; three are needed: START,INCREMENT,SAMPLES"));
    numbers.push_back(*number);
  }
  if (numbers.size() != 3)
    throw InputError(concat("--batch_size_schedule '", text, "' has ", numbers.size(),
                            " numbers; three are needed: START,INCREMENT,SAMPLES, as in 32,32,1000000"));
  if (numbers[0] < 1 || numbers[1] < 1 || numbers[2] < 0)
    throw InputError(
        concat("--batch_size_schedule '", text, "': START and INCREMENT are rows, at least 1, and SAMPLES at least 0"));
  return {numbers[0], numbers[1], numbers[2]};
}

std::int64_t ramp_rows(const BatchRamp& ramp, std::int64_t full, std::int64_t consumed) {
  const std::int64_t parts = (full - ramp.start) / ramp.increment;
  if (parts <= 0 || consumed >= ramp.samples) return full;
  // floor(consumed / (samples / parts)) without rounding
  const auto part = static_cast<std::int64_t>(static_cast<__int128>(consumed) * parts / ramp.samples);
  return ramp.start + ramp.increment * part;
}

void check_batch_ramp(const BatchRamp& ramp, std::int64_t full, std::int64_t ranks) {
  const std::string name = concat("--batch_size_schedule ", ramp.start, ",", ramp.increment, ",", ramp.samples, ": ");
  if (ramp.start > full)
    throw InputError(concat(name, "it begins with ", ramp.start, " rows per step, more than the full batch of ", full,
                            " (processes x --per_device_train_batch_size x --gradient_accumulation_steps)"));
  if ((full - ramp.start) % ramp.increment != 0)
    throw InputError(concat(name, "steps of ", ramp.increment, " do not lead from ", ramp.start,
                            " to the full batch of ", full, ": ", full - ramp.start, " is no multiple of ",
                            ramp.increment));
  if (ramp.start % ranks != 0 || ramp.increment % ranks != 0)
    throw InputError(concat(name, "START and INCREMENT must be multiples of the ", ranks,
                            " processes that share a step, so that each has as many rows"));
}

}  // namespace tessera::layout
