// tessera checkpoint convert and inspect, as a user runs them.

#include "program.h"

#include <gtest/gtest.h>

#include <tessera/format/manifest/manifest.h>
#include <tessera/format/safetensors/safetensors.h>
#include <tests/format/gguf_builder.h>
#include <tests/paths.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <span>

namespace tessera::testing {
namespace {

const std::string fixture = source_path("tests/fixtures/gguf/llama_tiny.gguf");

class CheckpointCommand : public ToolTest {
 protected:
  void expect_refused(const Strings& arguments, const Strings& parts) const {
    const Strings before = files();
    const auto run = tessera(Strings{"checkpoint"} + arguments);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    for (const std::string& part : parts) EXPECT_TRUE(contains(run.err, part)) << "'" << part << "' in: " << run.err;
    EXPECT_EQ(files(), before) << "something was written";
  }
  Strings convert(const std::string& source, const Strings& more = {}) const {
    return Strings{"convert", source, at("out")} + more;
  }
  std::string write(const std::string& name, const std::string& bytes) const {
    write_file_atomically(at(name), bytes);
    return at(name);
  }
  void convert_fixture() const {
    const auto run = tessera({"checkpoint", "convert", fixture, at("out")});
    ASSERT_EQ(run.exit_code, 0) << run.err;
  }
  /// `text` as one line: its line breaks depend on the length of the folder's name, which contains the process id.
  static std::string unwrapped(const std::string& text) {
    std::string line;
    for (const std::string& part : split(text, '\n')) line += trim(part) + " ";
    return line;
  }

  std::string inspected(const Strings& arguments) const {
    const auto run = tessera(Strings{"checkpoint", "inspect"} + arguments);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    for (const std::string& line : split(run.out, '\n')) {
      if (contains(line, at("")) || contains(line, fixture)) continue;  // long paths are not wrapped
      EXPECT_LE(line.size(), 80u) << line;
    }
    return run.out;
  }
};

const std::string torch_files = source_path("tests/fixtures/torch_files/");

TEST_F(CheckpointCommand, ConvertsAFileOfTorchSave) {
  const auto run = tessera({"checkpoint", "convert", torch_files + "state_dict.bin", at("out")});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.err, "head.weight shares the memory of embed.weight and is stored once")) << run.err;
  EXPECT_TRUE(contains(run.err, "has no config.json")) << run.err;
  const format::SafetensorsFile file(at("out/model.safetensors"));
  EXPECT_EQ(file.tensors().size(), 9u);
  EXPECT_EQ(file.find("head.weight"), nullptr);
  ASSERT_NE(file.find("turned"), nullptr);
  const auto turned = file.bytes(*file.find("turned"));  // [4, 3], the transpose of [3, 4] with 0, 0.5, 1, ...
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < 3; ++c) {
      float value;
      std::memcpy(&value, turned.data() + (r * 3 + c) * 4, 4);
      EXPECT_EQ(value, static_cast<float>(c * 4 + r) / 2);
    }
}

TEST_F(CheckpointCommand, ConvertsAFolderOfTorchDistributedCheckpoint) {
  make_folders(at("model"));
  write("model/config.json", "{\"model_type\": \"gpt2\"}");
  const auto run = tessera({"checkpoint", "convert", torch_files + "dcp", at("out"), "--config", at("model")});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.err, "3 tensors of 'model'")) << run.err;
  EXPECT_EQ(list_folder(at("out")), (Strings{"config.json", "model.safetensors"}));
  const format::SafetensorsFile file(at("out/model.safetensors"));
  for (const char* name : {"rows", "columns"}) {
    ASSERT_NE(file.find(name), nullptr) << name;
    const auto bytes = file.bytes(*file.find(name));
    for (std::size_t i = 0; i * 4 < bytes.size(); ++i) {
      float value;
      std::memcpy(&value, bytes.data() + i * 4, 4);
      EXPECT_EQ(value, static_cast<float>(i) / 2) << name << " " << i;
    }
  }
}

TEST_F(CheckpointCommand, ConvertsACheckpointOfDeepspeed) {
  const std::string checkpoints = source_path("tests/fixtures/deepspeed_checkpoint/");
  make_folders(at("model"));
  write("model/config.json", "{\"model_type\": \"gpt2\"}");
  for (const std::string stage : {"zero2", "zero3_bf16"}) {
    const auto run = tessera({"checkpoint", "convert", checkpoints + stage, at(stage), "--config", at("model")});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_TRUE(contains(run.err, "head.weight shares the memory of embed.weight and is stored once")) << run.err;
    EXPECT_TRUE(contains(run.err, "11 tensors, ")) << run.err;
    EXPECT_EQ(list_folder(at(stage)), (Strings{"config.json", "model.safetensors"}));
    const format::SafetensorsFile found(at(stage + "/model.safetensors")),
        expected(checkpoints + stage + "/expected.safetensors");
    EXPECT_EQ(found.tensors().size(), 11u);
    for (const auto& tensor : found.tensors()) {
      ASSERT_NE(expected.find(tensor.name), nullptr) << tensor.name;
      EXPECT_TRUE(std::ranges::equal(found.bytes(tensor), expected.bytes(*expected.find(tensor.name)))) << tensor.name;
    }
  }
  expect_refused(convert(checkpoints + "zero2", {"--group", "model"}), {"a ZeRO checkpoint has one set of weights"});
  write("model/latest", "global_step7");
  expect_refused(convert(at("model")), {"model/global_step7: no such folder, but ", "names it"});
}

/// A checkpoint-5 folder with weights, optimizer state and a manifest.
std::string make_checkpoint(const std::string& folder, float value) {
  make_folders(folder);
  const std::vector<float> w(6, value), m(6, 2 * value);
  const auto source = [](const std::string& name, const std::vector<float>& values) {
    return format::TensorSource{
        name, format::DType::f32, {2, 3}, [&values] { return std::as_bytes(std::span(values)); }};
  };
  format::Manifest manifest{5, {}};
  manifest.files.push_back({"model.safetensors", format::write_safetensors(path_join(folder, "model.safetensors"),
                                                                           {source("w", w), source("v", m)})});
  manifest.files.push_back(
      {"optimizer.safetensors",
       format::write_safetensors(path_join(folder, "optimizer.safetensors"), {source("w.exp_avg", m)})});
  format::write_manifest(folder, manifest);
  return folder;
}

TEST_F(CheckpointCommand, VerifyNamesWhatIsDamaged) {
  const std::string good = make_checkpoint(at("out/checkpoint-5"), 1),
                    bad = make_checkpoint(at("out/checkpoint-10"), 1);
  auto run = tessera({"checkpoint", "verify", at("out")});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_TRUE(contains(run.out, "whole    " + good + "  step 5, 2 files")) << run.out;
  std::string bytes = read_file(path_join(bad, "model.safetensors"));
  bytes[bytes.size() - 3] ^= 4;
  write_file_atomically(path_join(bad, "model.safetensors"), bytes);
  run = tessera({"checkpoint", "verify", at("out")});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_TRUE(contains(run.out, "damaged  " + bad)) << run.out;
  EXPECT_TRUE(
      contains(run.out, concat("model.safetensors: bytes 0 to ", bytes.size(), " are damaged (the header, v, w)")))
      << run.out;
  run = tessera({"checkpoint", "verify", good, bad, "--json"});
  EXPECT_EQ(run.exit_code, 1);
  const auto lines = split(run.out, '\n');
  ASSERT_EQ(lines.size(), 3u) << run.out;  // two lines and the end of the last one
  const Value whole = parse_json(lines[0], "first line"), damaged = parse_json(lines[1], "second line");
  EXPECT_TRUE(whole.at("whole").as_bool() && whole.at("damages").items().empty());
  EXPECT_EQ(whole.at("step").as_int(), 5);
  EXPECT_EQ(whole.at("files").as_int(), 2);
  EXPECT_FALSE(damaged.at("whole").as_bool());
  ASSERT_EQ(damaged.at("damages").items().size(), 1u);
  EXPECT_EQ(damaged.at("damages").items()[0].at("file").as_string(), "model.safetensors");
  EXPECT_EQ(damaged.at("damages").items()[0].at("end").as_int(), static_cast<std::int64_t>(bytes.size()));
  EXPECT_EQ(damaged.at("damages").items()[0].at("tensors").items().size(), 3u);
  std::filesystem::remove(path_join(bad, "optimizer.safetensors"));
  EXPECT_TRUE(contains(tessera({"checkpoint", "verify", bad}).out, "optimizer.safetensors is missing"));
  EXPECT_EQ(tessera({"checkpoint", "verify", at("nowhere")}).exit_code, 2);
}

TEST_F(CheckpointCommand, DiffTellsWhatDiffersAndByHowMuch) {
  const std::string a = make_checkpoint(at("a"), 1), same = make_checkpoint(at("same"), 1),
                    other = make_checkpoint(at("other"), 1.5f);
  auto run = tessera({"checkpoint", "diff", a, same});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.out, "weights: 2 and 2 tensors, 0 different\noptimizer state: 1 and 1 tensors, 0 different\n");
  run = tessera({"checkpoint", "diff", a, other});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_TRUE(
      contains(run.out,
               "weights: 2 and 2 tensors, 2 different\n  v  6 of 6 elements, at most 1 (relative 0.333, element 0)\n"
               "  w  6 of 6 elements, at most 0.5 (relative 0.333, element 0)\n"))
      << run.out;
  EXPECT_EQ(tessera({"checkpoint", "diff", a, other, "--tolerance", "1"}).exit_code, 0);
  EXPECT_EQ(tessera({"checkpoint", "diff", a}).exit_code, 2);
}

TEST_F(CheckpointCommand, MergePutsShardsTogether) {
  make_folders(at("shards"));
  const std::vector<float> w(6, 1), v(4, 2);
  format::write_safetensors(at("shards/model-00001-of-00002.safetensors"),
                            {{"w", format::DType::f32, {6}, [&] { return std::as_bytes(std::span(w)); }}});
  format::write_safetensors(at("shards/model-00002-of-00002.safetensors"),
                            {{"v", format::DType::f32, {4}, [&] { return std::as_bytes(std::span(v)); }}});
  write("shards/model.safetensors.index.json",
        R"({"weight_map": {"w": "model-00001-of-00002.safetensors", "v": "model-00002-of-00002.safetensors"}})");
  write("shards/config.json", "{}");
  const auto run = tessera({"checkpoint", "merge", at("shards"), at("out")});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(list_folder(at("out")), (Strings{"config.json", "model.safetensors"}));
  EXPECT_EQ(tessera({"checkpoint", "diff", at("shards"), at("out")}).exit_code, 0);
  expect_refused({"merge", at("shards"), at("out")}, {"is not empty"});
}

TEST_F(CheckpointCommand, WeightsOfPyTorchThatAreRefused) {
  expect_refused(convert(torch_files + "with_a_function.bin"), {"posixpath.join", "reading stops here"});
  expect_refused(convert(torch_files + "before_1.6.bin"), {"as PyTorch before 1.6 wrote"});
  expect_refused(convert(torch_files + "nested.bin", {"--group", "modle"}),
                 {"--group modle: no such group; the groups are model"});
  expect_refused(convert(torch_files + "nested.bin", {"--dtype", "float16"}), {"--dtype is for GGUF files"});
  std::string damaged = read_file(torch_files + "tensor.bin");
  damaged[damaged.find(std::string("\0\0\0\x3f", 4))] ^= 1;  // 0.5
  expect_refused(convert(write("damaged.bin", damaged)), {"damaged.bin", "the file is damaged"});
  make_folders(at("folder"));
  write("folder/pytorch_model.bin.index.json", R"({"weight_map": {"w": "../../etc/passwd"}})");
  expect_refused(convert(at("folder")), {"index.json:1", "not the plain name of a file in this folder"});
}

TEST_F(CheckpointCommand, ConvertsAWholeFolder) {
  const auto run = tessera({"checkpoint", "convert", fixture, at("new/deep/out/")});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.err, "20 tensors")) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(list_folder(at("new/deep")), Strings{"out"});
  EXPECT_EQ(list_folder(at("new/deep/out")), (Strings{"config.json", "generation_config.json", "model.safetensors",
                                                      "tokenizer.json", "tokenizer_config.json"}));
}

TEST_F(CheckpointCommand, OverwritesModelFoldersOnly) {
  convert_fixture();
  expect_refused(convert(fixture), {"not empty", "--overwrite"});
  write("out/vocab.json", "{}");
  const auto run =
      tessera(Strings{"checkpoint"} + convert(fixture, {"--overwrite", "--no_tokenizer", "--dtype=bfloat16"}));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.err, "no tokenizer"));
  EXPECT_EQ(list_folder(at("out")), (Strings{"config.json", "generation_config.json", "model.safetensors"}));
  EXPECT_EQ(files().size(), 5u);  // text.txt, out and the three files in it
  const format::SafetensorsFile weights(at("out/model.safetensors"));
  EXPECT_EQ(weights.tensors()[0].dtype, format::DType::bf16);

  write("out/thesis.txt", "years of work");
  expect_refused(convert(fixture, {"--overwrite"}), {"thesis.txt", "would be lost"});
  std::filesystem::remove(at("out/thesis.txt"));
  write("out/m.safetensors", tiny_llama().build());  // a GGUF file under another name, in the output folder itself
  expect_refused(convert(at("out/m.safetensors"), {"--overwrite"}), {"is in the folder"});
}

TEST_F(CheckpointCommand, AnEmptyFolderIsFine) {
  make_folders(at("out"));
  convert_fixture();
}

TEST_F(CheckpointCommand, BadFilesAreRefusedAndNothingIsWritten) {
  const std::string good = read_file(fixture);
  expect_refused(convert(at("nowhere.gguf")), {"nowhere.gguf"});
  expect_refused(convert(at("")), {"is a folder"});
  expect_refused(convert(write("short.gguf", good.substr(0, good.size() / 2))), {"short.gguf", "truncated"});
  expect_refused(convert(write("zip.gguf", "PK\3\4")), {"zip.gguf", "not a GGUF file"});
  GgufBuilder counts = tiny_llama();
  counts.extra_tensors = std::int64_t{1} << 60;
  expect_refused(convert(write("counts.gguf", counts.build())), {"claims", "tensors"});
  GgufBuilder kind = tiny_llama();
  kind.at("blk.0.ffn_up.weight").type = 24;
  expect_refused(convert(write("kind.gguf", kind.build())), {"'blk.0.ffn_up.weight'", "I8", "Q4_K"});
  expect_refused(convert(write("mamba.gguf", GgufBuilder(tiny_llama()).add("general.architecture", "mamba").build())),
                 {"'mamba'", "llama, qwen2, qwen3, gpt2"});
  GgufBuilder spm = tiny_llama();
  spm.add("tokenizer.ggml.model", "llama");
  expect_refused(convert(write("spm.gguf", spm.build())), {"SentencePiece", "--no_tokenizer"});
  GgufBuilder lost = tiny_llama();
  lost.tensors.erase(lost.tensors.begin() + 3, lost.tensors.begin() + 5);
  expect_refused(convert(write("lost.gguf", lost.build())),
                 {"missing tensor 'blk.0.ffn_norm.weight'", "missing tensor 'blk.0.attn_q.weight'"});
  GgufBuilder beyond = tiny_llama();
  beyond.at("blk.1.ffn_down.weight").shift = 1 << 20;
  expect_refused(convert(write("beyond.gguf", beyond.build())), {"'blk.1.ffn_down.weight'", "beyond.gguf"});
  GgufBuilder twice = tiny_llama();
  twice.at("blk.1.attn_q.weight").name = "blk.0.attn_q.weight";
  expect_refused(convert(write("twice.gguf", twice.build())), {"two tensors are named"});
  GgufBuilder utf8 = tiny_llama();
  utf8.add("general.name", "\xFF");
  expect_refused(convert(write("utf8.gguf", utf8.build())), {"general.name", "UTF-8"});
  // Detected while the weights are written, when the other files already exist.
  GgufBuilder large = tiny_llama();
  large.at("output_norm.weight").data.replace(0, 4, little_endian(1e6f));
  expect_refused({"convert", write("large.gguf", large.build()), at("a/b"), "--dtype", "float16"},
                 {"'output_norm.weight'", "float16"});
}

TEST_F(CheckpointCommand, BadArguments) {
  expect_refused({}, {"usage"});
  expect_refused({"convrt"}, {"did you mean 'convert'?"});
  expect_refused({"convert", fixture}, {"SOURCE and OUT_DIR"});
  expect_refused(convert(fixture, {"--dtype", "int8"}), {"--dtype int8", "bfloat16"});
  expect_refused(convert(fixture, {"--overwrit"}), {"--overwrit", "--overwrite"});
  expect_refused({"convert", fixture, at("text.txt")}, {"is a file"});
  expect_refused({"inspect"}, {"one path"});
  expect_refused({"inspect", at("nowhere")}, {"does not exist"});
  expect_refused({"inspect", at("text.txt")}, {"not a file that inspect reads"});
  expect_refused({"inspect", at("")}, {"contains no model"});
  EXPECT_EQ(tessera({"checkpoint", "convert", "--help"}).exit_code, 0);
  EXPECT_EQ(tessera({"checkpoint", "inspect", "--help"}).exit_code, 0);
}

TEST_F(CheckpointCommand, InspectsGgufAndTheFolderItBecomes) {
  convert_fixture();
  for (const std::string& path : {fixture, at("out")}) {
    const Value found = parse_json(inspected({path, "--json"}), "json");
    EXPECT_EQ(found.at("parameters").as_int(), 20960);
    EXPECT_EQ(found.at("tensors").as_int(), 20);
    EXPECT_EQ(found.at("layers").as_int(), 2);
    EXPECT_EQ(found.at("heads").as_int(), 4);
    EXPECT_EQ(found.at("kv_heads").as_int(), 2);
    EXPECT_EQ(found.at("vocab_size").as_int(), 266);
    EXPECT_EQ(found.at("context_length").as_int(), 128);
  }
  EXPECT_EQ(parse_json(inspected({fixture, "--json"}), "").at("dtypes").at("Q4_1").at("tensors").as_int(), 2);
  const std::string text = unwrapped(inspected({at("out"), "--tensors"}));
  for (const char* part : {"LlamaForCausalLM", "20,960", "F32", "byte-level BPE", "chat template", "theta 50000",
                           "tied", "model.layers.1.post_attention_layernorm.weight", "32x32"})
    EXPECT_TRUE(contains(text, part)) << part << " in:\n" << text;
  EXPECT_TRUE(contains(unwrapped(inspected({fixture})), "byte-level BPE (smollm)"));
  EXPECT_TRUE(contains(unwrapped(inspected({at("out/model.safetensors")})), "safetensors file"));
  EXPECT_EQ(parse_json(inspected({at("out"), "--json", "--tensors"}), "").at("tensor_list").items().size(), 20u);
}

TEST_F(CheckpointCommand, InspectsShards) {
  convert_fixture();
  std::filesystem::rename(at("out/model.safetensors"), at("out/model-00001-of-00001.safetensors"));
  const format::SafetensorsFile weights(at("out/model-00001-of-00001.safetensors"));
  Value map = Value::make_object();
  for (const auto& tensor : weights.tensors()) map.set(tensor.name, Value::of("model-00001-of-00001.safetensors"));
  const std::string index =
      write("out/model.safetensors.index.json", dump_json(Value::make_object({{"weight_map", map}})));
  EXPECT_TRUE(contains(unwrapped(inspected({index})), "sharded safetensors"));
  EXPECT_EQ(parse_json(inspected({at("out"), "--json"}), "").at("parameters").as_int(), 20960);
  std::filesystem::remove(at("out/model-00001-of-00001.safetensors"));
  expect_refused({"inspect", at("out")}, {"1 of the 1 listed shards"});
}

TEST_F(CheckpointCommand, InspectsCheckpointsOfRuns) {
  convert_fixture();
  make_folders(at("run"));
  std::filesystem::rename(at("out"), at("run/checkpoint-30"));
  write("run/checkpoint-30/trainer_state.json", R"({"global_step": 30, "max_steps": 100, "epoch": 0.5})");
  write("run/checkpoint-30/tessera_state.json", R"({"format": "tessera-state-1", "samples": 240, "seed": "42"})");
  const std::vector<float> state(6, 0.0f);
  format::write_safetensors(at("run/checkpoint-30/optimizer.safetensors"),
                            {{"exp_avg.x", format::DType::f32, {6}, [&] { return std::as_bytes(std::span(state)); }}});
  format::Manifest manifest{30, {}};
  for (const std::string& name : list_folder(at("run/checkpoint-30")))
    manifest.files.push_back({name, format::digest_of_file(at("run/checkpoint-30/" + name))});
  format::write_manifest(at("run/checkpoint-30"), manifest);
  const std::string text = unwrapped(inspected({at("run/checkpoint-30")}));
  for (const char* part :
       {"checkpoint of a run", "30 of 100, epoch 0.5", "1 tensors, 24 B", "seed 42", "every listed file"})
    EXPECT_TRUE(contains(text, part)) << part << " in:\n" << text;
  std::filesystem::remove(at("run/checkpoint-30/generation_config.json"));
  const Value damaged = parse_json(inspected({at("run/checkpoint-30"), "--json"}), "");
  EXPECT_EQ(damaged.at("step").as_int(), 30);
  EXPECT_FALSE(damaged.at("complete").as_bool());
  expect_refused({"inspect", at("run")}, {"contains no model", "checkpoint-30"});
}

TEST_F(CheckpointCommand, InspectsAdapters) {
  write("adapter_config.json", R"({"peft_type": "LORA", "base_model_name_or_path": "base", "r": 8, "lora_alpha": 16.0,
                                   "target_modules": ["q_proj", "v_proj"]})");
  const std::vector<float> values(12, 0.0f);
  format::write_safetensors(at("adapter_model.safetensors"),
                            {{"a", format::DType::f32, {3, 4}, [&] { return std::as_bytes(std::span(values)); }}});
  const std::string text = unwrapped(inspected({at("")}));
  for (const char* part : {"PEFT adapter folder", "LORA", "q_proj, v_proj", "rank", "8"})
    EXPECT_TRUE(contains(text, part)) << part << " in:\n" << text;
  const Value json = parse_json(inspected({at(""), "--json"}), "");
  EXPECT_EQ(json.at("lora_r").as_int(), 8);
  EXPECT_EQ(json.at("target_modules").items().size(), 2u);
  EXPECT_EQ(json.at("parameters").as_int(), 12);
}

}  // namespace
}  // namespace tessera::testing
