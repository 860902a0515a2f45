// generate and embed on the simulated device give the same results as on the CPU.
#include <tests/tool/program.h>

namespace tessera::testing {
namespace {

class DeviceInference : public ToolTest {
 protected:
  std::string run(const Strings& arguments) const {
    const auto result =
        tessera(arguments, {{"LD_LIBRARY_PATH", build_path("double")}, {"DOUBLE_REPORT", at("report")}});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (const std::string& file : list_folder(at(""))) {
      if (file.starts_with("report")) EXPECT_EQ(read_file(at(file)).find("FINDING"), std::string::npos);
    }
    return result.out;
  }
};

TEST_F(DeviceInference, Generate) {
  run(training("model") + batch(2, 1, 3) + Strings{"--device", "cpu"});
  const Strings generate = {"generate",   "--model_name_or_path", at("model"), "--prompt",
                            "the stones", "--max_new_tokens",     "12",        "--greedy"};
  const std::string text = run(generate + Strings{"--device", "cpu"});
  EXPECT_GT(text.size(), std::string("the stones\n").size());
  EXPECT_EQ(run(generate + Strings{"--device", "cuda"}), text);
  EXPECT_EQ(run(generate), text) << "auto";
}

TEST_F(DeviceInference, Embed) {
  write_file_atomically(at("texts.txt"), "a stone\nthe small stones of the mosaic\n\nrow\n");
  const auto vectors = [&](const std::string& device) {
    run({"embed", "--model", source_path("tests/fixtures/bert_tiny"), "--input", at("texts.txt"), "--output",
         at(device + ".jsonl"), "--device", device, "--replicas", "2", "--batch_size", "2"});
    std::vector<double> all;
    for (const std::string& line : split(read_file(at(device + ".jsonl")), '\n')) {
      if (line.empty()) continue;
      for (const Value& number : parse_json(line, "line").at("embedding").items()) all.push_back(number.as_real());
    }
    return all;
  };
  const std::vector<double> cpu = vectors("cpu"), cuda = vectors("cuda");
  ASSERT_EQ(cpu.size(), 64U);
  ASSERT_EQ(cuda.size(), cpu.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) EXPECT_NEAR(cuda[i], cpu[i], 1e-5) << i;
}

}  // namespace
}  // namespace tessera::testing
