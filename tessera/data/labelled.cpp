#include <tessera/data/labelled.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/format/jsonl.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace tessera::data {
namespace {

constexpr std::int64_t most_classes = 10'000;  // a label beyond it is no class number

bool is_number(const Value& label) {
  return label.kind() == Value::Kind::integer || label.kind() == Value::Kind::boolean;
}

std::int64_t number_of(const Value& label) {
  const std::int64_t n = label.kind() == Value::Kind::boolean ? std::int64_t{label.as_bool()} : label.as_int();
  if (n < 0 || n >= most_classes)
    throw InputError(concat(label.where().str(), ": label ", n, " is outside [0, ", most_classes,
                            "): it cannot be the number of a class"));
  return n;
}

class LabelledRows final : public Dataset {
 public:
  explicit LabelledRows(std::int64_t max_length) : max_length_(max_length) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(rows_.size()); }
  std::int64_t max_length() const override { return max_length_; }
  std::int64_t length(std::int64_t row) const override { return static_cast<std::int64_t>(at(row).ids.size()); }
  Row read(std::int64_t index) const override {
    const Example& example = at(index);
    Row row{{example.ids.begin(), example.ids.end()}, std::vector<std::int64_t>(example.ids.size(), -100), {0}};
    row.labels[0] = example.label;
    if (example.pair) row.types.assign(example.types.begin(), example.types.end());
    return row;
  }
  void add(text::Encoding encoding, bool pair, std::int64_t label) {
    rows_.push_back({std::move(encoding.ids), std::move(encoding.types), pair, label});
  }

 private:
  struct Example {
    std::vector<std::int32_t> ids, types;
    bool pair;
    std::int64_t label;
  };
  const Example& at(std::int64_t row) const {
    TESSERA_CHECK(row >= 0 && row < size(), "row ", row, " of ", size());
    return rows_[static_cast<std::size_t>(row)];
  }

  std::int64_t max_length_;
  std::vector<Example> rows_;
};

}  // namespace

std::optional<std::vector<std::string>> label_names(const std::string& path, const std::string& text_field) {
  if (!to_lower(path).ends_with(".jsonl")) return std::nullopt;
  format::JsonlReader reader(path);
  std::set<std::string> names;
  std::int64_t largest = -1;
  for (bool first = true; const auto line = reader.next(); first = false) {
    const Value* label = line->is_object() ? line->find("label") : nullptr;
    if (first && (label == nullptr || line->find(text_field) == nullptr)) return std::nullopt;
    if (label == nullptr)
      throw InputError(concat(line->where().str(), ": has no \"label\", unlike the lines before it"));
    if (is_number(*label))
      largest = std::max(largest, number_of(*label));
    else
      names.insert(label->as_string());
    if (largest >= 0 && !names.empty())
      throw InputError(
          concat(label->where().str(), ": some labels are numbers and others names; give all of one kind"));
  }
  if (largest < 0)
    return names.empty() ? std::nullopt : std::optional(std::vector<std::string>(names.begin(), names.end()));
  std::vector<std::string> numbered;
  for (std::int64_t i = 0; i <= largest; ++i) numbered.push_back(concat("LABEL_", i));
  return numbered;
}

Datasets open_labelled(const DataConfig& config, const text::WordPieceTokenizer& tokenizer, std::int64_t max_length,
                       const std::map<std::string, std::int64_t>& classes, std::int64_t class_count,
                       bool want_validation) {
  Datasets datasets;
  const auto class_of = [&](const Value& label) {
    if (is_number(label)) {
      const std::int64_t n = number_of(label);
      if (n >= class_count)
        throw InputError(concat(label.where().str(), ": label ", n, ", but the model has ", class_count,
                                " classes (0 to ", class_count - 1, ")"));
      return n;
    }
    const auto found = classes.find(label.as_string());
    if (found == classes.end()) {
      std::vector<std::string> known;
      for (const auto& [name, number] : classes) known.push_back(name);
      throw InputError(
          concat(label.where().str(), ": the model has no class \"", label.as_string(), "\"; it has ", join(known)));
    }
    return found->second;
  };
  const auto open = [&](const std::string& path) {
    auto rows = std::make_shared<LabelledRows>(max_length);
    format::JsonlReader reader(path);
    std::int64_t tokens = 0;
    while (const auto line = reader.next()) {
      const Value &text = line->at(config.text_column_name), &label = line->at("label");
      const Value* pair = line->find("text_pair");
      text::Encoding encoding = pair ? tokenizer.encode_pair(text.as_string(), pair->as_string(), max_length)
                                     : tokenizer.encode_text(text.as_string(), max_length);
      if (encoding.ids.empty())
        throw InputError(concat(text.where().str(), ": the text is empty and the tokenizer adds no special tokens"));
      tokens += static_cast<std::int64_t>(encoding.ids.size());
      rows->add(std::move(encoding), pair != nullptr, class_of(label));
    }
    if (rows->size() == 0) throw InputError(concat(path, ": has no lines: there is nothing to train on"));
    datasets.notes.push_back(concat(path, ": ", rows->size(), " labelled texts, ", tokens, " tokens"));
    return std::shared_ptr<const Dataset>(std::move(rows));
  };
  datasets.train = open(config.train_file);
  if (!want_validation) return datasets;
  if (!config.validation_file.empty()) {
    datasets.validation = open(config.validation_file);
    return datasets;
  }
  const double percentage = config.validation_split_percentage;
  if (!(percentage >= 0 && percentage < 100))
    throw InputError(
        concat("--validation_split_percentage is ", percentage, "; it must be at least 0 and less than 100"));
  const std::int64_t all = datasets.train->size();
  if (percentage == 0) return datasets;
  if (all < 2)
    throw InputError(
        concat(config.train_file, ": has ", all, " text: none can be held out; give --validation_file or more data"));
  const std::int64_t out =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(static_cast<double>(all) * percentage / 100), 1, all - 1);
  datasets.validation = slice(datasets.train, all - out, out);
  datasets.train = slice(datasets.train, 0, all - out);
  return datasets;
}

}  // namespace tessera::data
