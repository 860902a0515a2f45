// --data-path and related arguments, and evaluation -> train_file, validation_file, eval_steps.
#include <tessera/config/megatron/megatron_reading.h>

#include <tessera/base/text.h>
#include <tessera/corpus/data_list.h>

#include <string>
#include <utility>
#include <vector>

namespace tessera::config {
namespace {

/// Megatron names a pair of files by their common prefix.
std::string file_of_prefix(const std::string& path) {
  const bool whole = path.ends_with(".bin") || path.ends_with(".txt") || path.ends_with(".jsonl");
  return whole ? path : path + ".bin";
}

class Data {
 public:
  explicit Data(MegatronArguments& arguments) : a_(arguments) {}

  void translate() {
    for (const auto& [name, setting] :
         {std::pair("data_path", "train_file"), std::pair("train_data_path", "train_file"),
          std::pair("valid_data_path", "validation_file")}) {
      const auto* given = a_.find(name);
      if (given == nullptr) continue;
      if (given->values.size() <= 1) {
        if (const auto path = a_.text(name)) a_.give(name, setting, file_of_prefix(*path));
        continue;
      }
      // WEIGHT PREFIX WEIGHT PREFIX ..., or only prefixes
      const bool weighted = given->values.size() % 2 == 0 && parse_real(given->values[0]).has_value();
      std::string list;
      for (std::size_t i = 0; i < given->values.size(); ++i) {
        const std::string& word = given->values[i];
        list += concat(i > 0 ? " " : "", weighted && i % 2 == 0 ? word : corpus::quoted(file_of_prefix(word)));
      }
      a_.give(name, setting, list);
    }
    if (const auto split_text = a_.text("split")) split(*split_text);
    if (const auto type = a_.text("tokenizer_type"); type && !a_.has("tokenizer_model") && *type != "NullTokenizer")
      a_.note(
          "tokenizer_type",
          concat(*type,
                 " has no effect without --tokenizer-model: .bin files need no tokenizer, and text is read as bytes"));
    if (a_.whole("eval_iters", 0).value_or(0) > 0)
      a_.note("eval_iters", "has no effect: all of the validation data is evaluated; make it smaller instead");
    evaluations();
  }

 private:
  /// Reads "949,50,1": shares of training, validation and test.
  void split(const std::string& text) {
    double total = 0;
    std::vector<double> shares;
    for (const std::string& part : tessera::split(text, ',')) {
      const auto share = parse_real(trim(part));
      if (!share || !(*share >= 0) || *share > 1e9 || shares.size() == 3)
        return a_.problem("split",
                          concat(text, ": expected the shares of training, validation and test, such as 949,50,1"),
                          {"validation_split_percentage"});
      shares.push_back(*share);
      total += *share;
    }
    if (total <= 0) return a_.problem("split", concat(text, ": the shares are all 0"), {"validation_split_percentage"});
    a_.give("split", "validation_split_percentage", format_real(shares.size() > 1 ? 100 * shares[1] / total : 0, 12));
    if (shares.size() == 3 && shares[2] > 0)
      a_.note("split", concat(text, ": no test follows the training; the share of the test is used for training"));
  }

  /// As in Megatron, nothing is evaluated if --eval-iters is 0 or no data is left for it.
  void evaluations() {
    if (!a_.has("eval_interval")) return;
    if (a_.whole("eval_iters", 0) == 0)
      return a_.note("eval_interval", "has no effect: --eval-iters is 0, so nothing is evaluated");
    const auto split_text = a_.text("split");
    const auto shares = split_text ? tessera::split(*split_text, ',') : std::vector<std::string>();
    const bool holds_out = !split_text || (shares.size() > 1 && parse_real(trim(shares[1])) != 0.0);
    if (!holds_out && !a_.has("valid_data_path"))
      return a_.note("eval_interval", concat("has no effect: --split ", *split_text, " leaves nothing to evaluate"));
    if (const auto steps = a_.text("eval_interval")) a_.give("eval_interval", "eval_steps", *steps);
    a_.give("eval_interval", "eval_strategy", "steps");
  }

  MegatronArguments& a_;
};

}  // namespace

void translate_megatron_data(MegatronArguments& arguments) { Data(arguments).translate(); }

}  // namespace tessera::config
