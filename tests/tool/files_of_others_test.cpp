// A command that writes a file does not replace an existing one without --overwrite, and names it in its message. Whole
// runs: tests/train/run_files_test.cpp; model folders: checkpoint_command_test.cpp.

#include "program.h"

namespace tessera::testing {
namespace {

const std::string mine = "somebody's";

struct Writer {
  const char* name;
  Strings words;
  Strings written;  // in the folder "out"
  bool slow = false;
};

class FilesOfOthers : public ToolTest {
 protected:
  std::vector<Writer> writers() const {
    const std::string text = at("text.txt"), encoder = source_path("tests/fixtures/bert_tiny");
    const Strings train = {"--train_file", text},
                  schedule = {"plan", "schedule", "--schedule", "1f1b", "--pp", "2", "--microbatches", "4"};
    return {
        {"tokenize",
         Strings{"tokenize", "--tokenizer_name", "byte", "--output", at("out/x")} + train,
         {"x.bin", "x.idx"}},
        {"tokenizer train",
         Strings{"tokenizer", "train", "--vocab_size", "300", "--output", at("out")} + train,
         {"tokenizer.json", "tokenizer_config.json"}},
        {"tokenizer file",
         Strings{"tokenizer", "train", "--vocab_size", "300", "--output", at("out/t.json")} + train,
         {"t.json"}},
        {"data shuffle", {"data", "shuffle", text, "--output", at("out/s.jsonl")}, {"s.jsonl"}},
        {"data merge", {"data", "merge", text, "--output", at("out/m.jsonl")}, {"m.jsonl"}},
        {"data split",
         {"data", "split", text, "--validation", "9", "--test", "9", "--output", at("out")},
         {"train.jsonl", "validation.jsonl", "test.jsonl"}},
        {"config convert",
         {"config", "convert", "--to", "accelerate", "--bf16", "--output", at("out/a.yaml")},
         {"a.yaml"}},
        {"plan --html",
         {"plan", "--model", "llama-3-70b", "--gpus", "64xH100", "--global_batch", "64", "--pp", "4", "--html",
          at("out/p.html")},
         {"p.html"}},
        {"plan schedule",
         schedule +
             Strings{"--csv", at("out/c.csv"), "--save", at("out/s.txt"), "--draw", "svg", "--output", at("out/d.svg")},
         {"c.csv", "s.txt", "d.svg"}},
        {"plan calibrate", {"plan", "calibrate", "--output", at("out/h.json")}, {"h.json"}, true},
        {"embed", {"embed", "--model", encoder, "--input", text, "--output", at("out/v.npy")}, {"v.npy"}},
        {"lr-find", Strings{"lr-find", "--csv", at("out/r.csv")} + train, {"r.csv"}, true},
    };
  }
};

TEST_F(FilesOfOthers, AreNamedUnlessTheyMayBeReplaced) {
  for (const Writer& writer : writers()) {
    SCOPED_TRACE(writer.name);
    const auto begin = [&](const std::string& there) {
      remove_tree(at("out"));
      make_folders(at("out"));
      write_file_atomically(at("out/notes.txt"), mine);
      write_file_atomically(at("out/" + there), mine);
    };
    for (const std::string& there : writer.written) {
      begin(there);
      const auto refused = tessera(writer.words);
      EXPECT_EQ(refused.exit_code, 2) << refused.err;
      EXPECT_NE(refused.err.find(at("out/" + there) + " already exists"), std::string::npos) << refused.err;
      EXPECT_EQ(list_folder(at("out")).size(), 2u) << "something was written";
      EXPECT_EQ(read_file(at("out/" + there)), mine);
    }
    if (writer.slow) continue;
    begin(writer.written.front());
    const auto replaced = tessera(writer.words + Strings{"--overwrite"});
    EXPECT_EQ(replaced.exit_code, 0) << replaced.err;
    for (const std::string& there : writer.written) EXPECT_NE(read_file(at("out/" + there)), mine) << there;
    EXPECT_EQ(read_file(at("out/notes.txt")), mine);
  }
}

}  // namespace
}  // namespace tessera::testing
