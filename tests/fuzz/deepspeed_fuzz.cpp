// libFuzzer entry for DeepSpeed's JSON: any bytes give problems without an exception; every resulting setting is
// accepted by its field; each problem and note is one line of moderate length; and applying the result to the run gives
// a valid run. The first byte chooses the run's other settings, and whether the file is also read for a user's own
// program.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <tessera/config/core/fields.h>
#include <tessera/config/deepspeed/deepspeed.h>
#include <tessera/config/resolve/resolve.h>

namespace {

using namespace tessera;
using namespace tessera::config;

Resolved run(std::uint8_t choice) {
  Resolved resolved;
  const auto say = [&](int bit, const char* name, const char* text) {
    if ((choice >> bit & 1) == 0) return;
    find_field(name)->set(resolved.values, text);
    resolved.origins[name] = Origin::flag("--" + std::string(name));
  };
  say(0, "per_device_train_batch_size", "4");
  say(1, "gradient_accumulation_steps", "2");
  say(2, "learning_rate", "1e-4");
  say(3, "bf16", "true");
  say(4, "config_name", "gpt2-tiny");
  say(5, "num_processes", "2");
  say(6, "zero_stage", "3");
  say(7, "warmup_steps", "10");
  return resolved;
}

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  if (text.find('{') == std::string::npos) text = "{" + text + "}";
  if (text.find_first_not_of(" \t\r\n") == std::string::npos || text[text.find_first_not_of(" \t\r\n")] != '{')
    text = "{" + text;  // avoids reading it as a file name
  static const std::vector<Resolved> runs = [] {
    std::vector<Resolved> all;
    for (int choice = 0; choice < 256; ++choice) all.push_back(run(static_cast<std::uint8_t>(choice)));
    return all;
  }();
  const Resolved& so_far = runs[data[0]];
  Problems problems;
  Translation read = read_deepspeed(text, so_far, problems);
  for (const FileSetting& setting : read.settings) {
    RunConfig scratch;
    const Field* field = find_field(setting.name);
    require(field != nullptr && !field->set(scratch, setting.text));
    require(setting.where.file != nullptr);
  }
  for (const std::string& line : problems.lines) require(line.size() < 8192);
  for (const std::string& line : read.notes) require(line.find('\n') == std::string::npos);
  if (data[0] % 8 != 0) return 0;
  Resolved after = so_far;
  apply(std::move(read), after);
  Problems alone;
  resolve_deepspeed(text, 1 + data[0] / 8 % 8, alone);
  return 0;
}
