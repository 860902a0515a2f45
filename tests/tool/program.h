#pragma once
/// \file
/// tests/tool/ runs the program as a user does. This header runs it in a temporary folder with a small text and model.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/launch/agent/process.h>
#include <tests/own_folder.h>
#include <tests/paths.h>
#include <tests/stopwatch.h>

namespace tessera::testing {

using Strings = std::vector<std::string>;

inline Strings operator+(Strings a, const Strings& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline const std::string program = build_path("tessera");

/// Runs one thread per process: more do not make small models faster, and results stay independent of the machine.
/// HF_HOME is a folder that does not exist unless `environment` sets it, so that accelerate's default file of the user
/// running the tests has no effect.
inline launch::Captured tessera(const Strings& arguments, launch::Environment environment = {}) {
  environment.emplace_back("OMP_NUM_THREADS", "1");
  const auto is_home = [](const auto& variable) { return variable.first == "HF_HOME"; };
  if (std::none_of(environment.begin(), environment.end(), is_home))
    environment.emplace_back("HF_HOME", build_path("no_huggingface_home"));
  return launch::run_and_capture(Strings{program} + arguments, environment, patience(120));
}

/// A folder with text.txt: about 12 KB of sentences that a small model learns quickly. The test's working directory is
/// another folder, which is empty.
class ToolTest : public ::testing::Test {
 protected:
  ToolTest() {
    std::string text;
    for (int i = 0; i < 300; ++i) text += concat("the ", i % 7, " small stones of row ", i % 11, " form a mosaic.\n");
    write_file_atomically(at("text.txt"), text);
  }

  std::string at(const std::string& name) const { return path_join(folder_.path(), name); }

  /// Arguments to train a 2-layer model on bytes. `more` must not repeat a flag with another value. Only the final
  /// model is saved (save_steps 500).
  Strings training(const std::string& output, const Strings& more = {}) const {
    return Strings{"train",
                   "--config_name",
                   "gpt2-tiny",
                   "--config_overrides",
                   "n_layer=2,n_embd=32,n_head=2,vocab_size=257,n_positions=64,bos_token_id=256,eos_token_id=256",
                   "--tokenizer_name",
                   "byte",
                   "--train_file",
                   at("text.txt"),
                   "--block_size",
                   "32",
                   "--learning_rate",
                   "1e-2",
                   "--lr_scheduler_type",
                   "constant",
                   "--logging_steps",
                   "1",
                   "--output_dir",
                   at(output)} +
           more;
  }

  /// Arguments for `steps` batches of 12 rows.
  static Strings batch(int rows_per_rank, int accumulation, int steps) {
    return {"--per_device_train_batch_size",
            concat(rows_per_rank),
            "--gradient_accumulation_steps",
            concat(accumulation),
            "--max_steps",
            concat(steps)};
  }

  std::vector<Value> metrics(const std::string& output) const {
    std::vector<Value> lines;
    const std::string path = path_join(at(output), "metrics.jsonl");
    for (const std::string& text : split(read_file(path), '\n'))
      if (!text.empty()) lines.push_back(parse_json(text, path));
    return lines;
  }

  /// `member` by step, for the logged steps.
  std::map<std::int64_t, double> curve(const std::string& output, const std::string& member = "loss") const {
    std::map<std::int64_t, double> values;
    for (const Value& line : metrics(output))
      if (line.find("event") == nullptr) values[line.at("step").as_int()] = line.at(member).as_real();
    return values;
  }

  Value end_line(const std::string& output) const { return metrics(output).back(); }

  /// Every file below the folder, to check that nothing was written.
  Strings files(const std::string& below = "") const {
    Strings all;
    const std::string root = below.empty() ? folder_.path() : at(below);
    for (const std::string& name : list_folder(root)) {
      const std::string relative = below.empty() ? name : below + "/" + name;
      all.push_back(relative);
      if (is_directory(at(relative))) all = all + files(relative);
    }
    return all;
  }

 private:
  InEmptyFolder inside_;
  TemporaryFolder folder_;
};

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace tessera::testing
