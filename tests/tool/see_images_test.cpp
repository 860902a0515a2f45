// Training with images from files to a folder: what a model answers depends on what it sees.
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>

#include <tests/paths.h>

#include "program.h"

namespace tessera::testing {
namespace {

constexpr std::array<const char*, 4> colours = {"red", "green", "blue", "white"};

class SeeImages : public ToolTest {
 protected:
  SeeImages() {
    Value json = read_json(source_path("tests/fixtures/llava_tiny/config.json"));
    Value text = json.at("text_config");
    text.set("vocab_size", Value::of(257));
    json.set("text_config", text);
    json.set("image_token_index", Value::of(300));
    write_file_atomically(at("llava.json"), dump_json(json));
    write_data("data.json", [](std::size_t i) { return colours[i % colours.size()]; });
    write_data("blind.json", [](std::size_t) { return "red"; });
  }
  /// Whose caption is a colour's name, and whose image is a square of the one that `shown` says.
  void write_data(const std::string& name, const char* (*shown)(std::size_t i)) const {
    std::vector<Value> records;
    for (std::size_t i = 0; i < 16; ++i) {
      const auto turn = [](const char* from, const char* value) {
        return Value::make_object({{"from", Value::of(from)}, {"value", Value::of(value)}});
      };
      records.push_back(Value::make_object(
          {{"image", Value::of(concat(shown(i), ".png"))},
           {"conversations",
            Value::make_array({turn("human", "<image>"), turn("gpt", colours[i % colours.size()])})}}));
    }
    write_file_atomically(at(name), dump_json(Value::make_array(std::move(records))));
  }
  /// The loss of the last step.
  double trained(const std::string& output, const std::string& data, const Strings& more) const {
    const auto run = tessera(Strings{"train",
                                     "--config_name",
                                     at("llava.json"),
                                     "--data_path",
                                     at(data),
                                     "--image_folder",
                                     source_path("tests/fixtures/llava"),
                                     "--version",
                                     "plain",
                                     "--output_dir",
                                     at(output),
                                     "--max_steps",
                                     "60",
                                     "--learning_rate",
                                     "2e-2",
                                     "--logging_steps",
                                     "1",
                                     "--report_to",
                                     "none",
                                     "--save_strategy",
                                     "steps",
                                     "--save_steps",
                                     "30",
                                     "--disable_tqdm"} +
                             more);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    double loss = 0;
    for (const std::string& line : split(read_file(at(output) + "/metrics.jsonl"), '\n'))
      if (const Value value = line.empty() ? Value() : parse_json(line, output); value.is_object())
        if (const Value* const number = value.find("loss"); number && number->is_number()) loss = number->as_real();
    return loss;
  }
};

TEST_F(SeeImages, AnswersFollowWhatIsSeen) {
  const Strings alone = {"--per_device_train_batch_size", "16"};
  const double seen = trained("seen", "data.json", alone), blind = trained("blind", "blind.json", alone);
  // Whoever sees nothing cannot know the first letter: at least ln 4 of the about five tokens of a caption.
  EXPECT_GT(blind, 0.2);
  EXPECT_LT(seen, 0.5 * blind);
  // On two processes, and after a resumption, it is the same run.
  const double both = trained("both", "data.json",
                              {"--per_device_train_batch_size", "8", "--num_processes", "2", "--fsdp", "full_shard"});
  EXPECT_NEAR(both, seen, 1e-3 * seen + 1e-5);
  EXPECT_EQ(trained("resumed", "data.json", alone + Strings{"--resume_from_checkpoint", at("seen/checkpoint-30")}),
            seen);
}

}  // namespace
}  // namespace tessera::testing
