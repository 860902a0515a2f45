// Training with images, from files to a model folder: the model's answer depends on the image.
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>

#include <tessera/format/safetensors/safetensors.h>

#include <tests/paths.h>

#include "program.h"

#include <memory>
#include <tuple>

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
  /// Writes records whose caption is a color's name, with an image that is a square of the color from `shown`.
  void write_data(const std::string& name, const char* (*shown)(std::size_t i), std::size_t count = 16) const {
    std::vector<Value> records;
    for (std::size_t i = 0; i < count; ++i) {
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
  /// Creates the folders language/ and tower/ from a model that has both.
  void take_apart(const std::string& whole) const {
    const Value config = read_json(at(whole) + "/config.json");
    const Value clip =
        Value::make_object({{"model_type", Value::of("clip")}, {"vision_config", config.at("vision_config")}});
    for (const auto& [part, prefix, json] :
         {std::tuple{"language", "language_model.", config.at("text_config")}, {"tower", "vision_tower.", clip}}) {
      make_folders(at(part));
      write_file_atomically(at(part) + "/config.json", dump_json(json));
      format::write_safetensors(at(part) + "/model.safetensors", tensors(whole + "/model.safetensors", prefix));
    }
  }
  /// The tensors of a file whose names begin with `prefix`, with the prefix removed.
  std::vector<format::TensorSource> tensors(const std::string& path, const std::string& prefix) const {
    const auto file = std::make_shared<const format::SafetensorsFile>(at(path));
    std::vector<format::TensorSource> found;
    for (const format::TensorInfo& info : file->tensors())
      if (info.name.starts_with(prefix))
        found.push_back(
            {info.name.substr(prefix.size()), info.dtype, info.shape, [file, &info] { return file->bytes(info); }});
    return found;
  }
  /// The bytes of the projector in a folder of adapters.
  std::string projector(const std::string& folder) const {
    std::string all;
    for (const auto& tensor : tensors(folder + "/adapter_model.safetensors", "base_model.model.multi_modal_projector."))
      for (const std::byte byte : tensor.bytes()) all.push_back(static_cast<char>(byte));
    EXPECT_FALSE(all.empty()) << folder;
    return all;
  }
  /// The loss of the last step.
  double trained(const std::string& output, const std::string& data, const Strings& more) const {
    const auto run = tessera(Strings{"train",
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
  const Strings anew = {"--config_name", at("llava.json")};
  const Strings alone = anew + Strings{"--per_device_train_batch_size", "16"};
  const double seen = trained("seen", "data.json", alone), blind = trained("blind", "blind.json", alone);
  // Without the image a model cannot know the first letter, so its loss is at least ln 4 over the about five tokens of
  // a caption.
  EXPECT_GT(blind, 0.2);
  EXPECT_LT(seen, 0.5 * blind);
  EXPECT_EQ(read_json(at("seen/preprocessor_config.json")).at("crop_size").at("height").as_int(), 8);
  // Two processes, and a resumed run, give the same result.
  const double both =
      trained("both", "data.json",
              anew + Strings{"--per_device_train_batch_size", "8", "--num_processes", "2", "--fsdp", "full_shard"});
  EXPECT_NEAR(both, seen, 1e-3 * seen + 1e-5);
  EXPECT_EQ(trained("resumed", "data.json", alone + Strings{"--resume_from_checkpoint", at("seen/checkpoint-30")}),
            seen);
}

// A tower needs more memory than the tiny decoder: a trial without images would fit although the step does not. How
// often the batch is halved depends on the machine.
TEST_F(SeeImages, ABatchIsTriedWithImages) {
  Value json = read_json(at("llava.json")), tower = json.at("vision_config");
  for (const auto& [key, number] : {std::pair{"hidden_size", 512},
                                    {"intermediate_size", 2048},
                                    {"num_hidden_layers", 1},
                                    {"num_attention_heads", 8},
                                    {"image_size", 32},
                                    {"patch_size", 16}})
    tower.set(key, Value::of(number));
  json.set("vision_config", tower);
  json.set("vision_feature_layer", Value::of(-1));
  write_file_atomically(at("wide.json"), dump_json(json));
  write_data("many.json", [](std::size_t) { return "red"; }, 4096);
  const auto run = launch::run_and_capture({"sh",
                                            "-c",
                                            "ulimit -d 850000; exec \"$@\"",
                                            "sh",
                                            program,
                                            "train",
                                            "--config_name",
                                            at("wide.json"),
                                            "--tokenizer_name",
                                            "byte",
                                            "--data_path",
                                            at("many.json"),
                                            "--image_folder",
                                            source_path("tests/fixtures/llava"),
                                            "--version",
                                            "plain",
                                            "--output_dir",
                                            at("out"),
                                            "--block_size",
                                            "16",
                                            "--max_steps",
                                            "1",
                                            "--per_device_train_batch_size",
                                            "4096",
                                            "--auto_find_batch_size",
                                            "--save_strategy",
                                            "no",
                                            "--report_to",
                                            "none"},
                                           {{"OMP_NUM_THREADS", "1"}}, 120);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.err, "4096 rows per process do not fit into memory; trying 2048 in 2 micro-batches"))
      << run.err;
}

// LLaVA's finetune_lora.sh: a language model, a tower, and a projector that is fully trained along with the adapters.
TEST_F(SeeImages, AdaptersLearnBesideAProjector) {
  trained("seen", "data.json", {"--config_name", at("llava.json"), "--per_device_train_batch_size", "16"});
  take_apart("seen");
  const Strings words = {"--model_name_or_path",
                         at("language"),
                         "--vision_tower",
                         at("tower"),
                         "--mm_projector_type",
                         "mlp2x_gelu",
                         "--mm_vision_select_layer",
                         "-2",
                         "--lora_enable",
                         "True",
                         "--lora_r",
                         "8",
                         "--lora_dropout",
                         "0",
                         "--mm_projector_lr",
                         "1e-2",
                         "--tokenizer_name",
                         "byte"};
  const Strings alone = words + Strings{"--per_device_train_batch_size", "16", "--lora_merge"};
  const double seen = trained("adapters", "data.json", alone);
  EXPECT_LT(seen, 0.1);
  EXPECT_NEAR(
      trained("both", "data.json",
              words + Strings{"--per_device_train_batch_size", "8", "--num_processes", "2", "--fsdp", "full_shard"}),
      seen, 1e-2 * seen + 1e-4);
  EXPECT_EQ(trained("resumed", "data.json", alone + Strings{"--resume_from_checkpoint", at("adapters/checkpoint-30")}),
            seen);
  EXPECT_EQ(projector("resumed"), projector("adapters"));

  // The folder of adapters names the tower and projector of its base; merged, they form one model.
  const Strings once = {"--per_device_train_batch_size", "16", "--max_steps", "1", "--tokenizer_name", "byte"};
  const double going_on = trained("on", "data.json", once + Strings{"--model_name_or_path", at("adapters")});
  EXPECT_LT(going_on, 0.1);
  EXPECT_NEAR(trained("merged_on", "data.json", once + Strings{"--model_name_or_path", at("adapters/merged")}),
              going_on, 1e-3 * going_on + 1e-5);

  // With a four-bit model (finetune_qlora.sh); projector and tower are not quantized.
  EXPECT_LT(trained("few", "data.json", alone + Strings{"--bits", "4"}), 0.3);

  // A rate of 0 leaves the projector unchanged; without its own rate it uses the adapters' rate.
  trained("still", "data.json", alone + Strings{"--mm_projector_lr", "0"});
  EXPECT_EQ(projector("still"), projector("still/checkpoint-30"));
  EXPECT_NE(projector("adapters"), projector("adapters/checkpoint-30"));
}

}  // namespace
}  // namespace tessera::testing
