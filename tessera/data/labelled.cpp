#include <tessera/data/labelled.h>

#include <tessera/base/error.h>
#include <tessera/config/sections/data_config.h>
#include <tessera/corpus/data_list.h>
#include <tessera/corpus/records.h>
#include <tessera/corpus/sources.h>
#include <tessera/data/named_files.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

namespace tessera::data {
namespace {

constexpr std::int64_t most_classes = 10'000;  // larger labels are not accepted as class numbers

bool is_number(const Value& label) {
  return label.kind() == Value::Kind::integer || label.kind() == Value::Kind::boolean;
}

bool is_blank(const Value& cell) { return cell.is_null() || (cell.is_string() && cell.as_string().empty()); }

/// The cells of a .csv are text; a cell that looks like a number is converted to one.
Value label_of(const Value& label, const corpus::SourceFile& file) {
  const bool cell = file.kind == corpus::FileKind::csv || file.kind == corpus::FileKind::tsv;
  if (!cell || !label.is_string()) return label;
  const std::string& text = label.as_string();
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return label;
  Value value = Value::of(number);
  value.set_where(label.where());
  return value;
}

/// Calls take(record, file) for the records of all files, in order, until `take` returns false.
void for_each_record(const std::vector<corpus::SourceFile>& files, const std::vector<std::string>& columns,
                     const std::function<bool(const Value&, const corpus::SourceFile&)>& take) {
  for (const corpus::SourceFile& file : files)
    for (const corpus::Piece& piece : corpus::pieces_of(file, file.bytes + 1)) {
      const auto reader = corpus::read_records(file, piece, columns);
      while (const auto record = reader->next())
        if (!take(*record, file)) return;
    }
}

std::vector<std::string> columns_of(const std::string& text_field) { return {text_field, "text_pair", "label"}; }

/// All files of a list, which must not have weights.
std::vector<corpus::SourceFile> files_of(const std::string& flag, const std::string& list, corpus::Split split) {
  const std::vector<corpus::DataPart> parts = corpus::parse_data_list(list);
  if (parts.size() != 1 || parts[0].weight > 0)
    throw InputError(
        concat("--", flag, " ", list, ": labelled texts are each read once per epoch: remove the weights"));
  return named_files(flag, parts[0], split);
}

std::int64_t number_of(const Value& label) {
  const std::int64_t n = label.kind() == Value::Kind::boolean ? std::int64_t{label.as_bool()} : label.as_int();
  if (n < 0 || n >= most_classes)
    throw InputError(
        concat(label.where().str(), ": label ", n, " is outside [0, ", most_classes, "): it cannot be a class number"));
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

std::optional<std::vector<std::string>> label_names(const std::string& list, const std::string& text_field) {
  std::vector<corpus::SourceFile> files;
  for (const corpus::DataPart& part : corpus::parse_data_list(list))
    for (corpus::SourceFile& file : named_files("train_file", part, corpus::Split::train))
      files.push_back(std::move(file));
  const auto has_no_labels = [](const corpus::SourceFile& file) {
    return file.kind == corpus::FileKind::tokens || file.kind == corpus::FileKind::text;
  };
  if (std::any_of(files.begin(), files.end(), has_no_labels)) return std::nullopt;
  std::set<std::string> names;
  std::int64_t largest = -1;
  bool first = true, labelled = true;
  for_each_record(files, columns_of(text_field), [&](const Value& record, const corpus::SourceFile& file) {
    const Value* found = record.find("label");
    if (std::exchange(first, false) && (found == nullptr || record.find(text_field) == nullptr))
      return labelled = false;
    if (found == nullptr)
      throw InputError(concat(record.where().str(), ": has no \"label\", unlike the records before it"));
    if (is_blank(*found)) return true;  // left out
    const Value label = label_of(*found, file);
    if (is_number(label))
      largest = std::max(largest, number_of(label));
    else
      names.insert(label.as_string());
    if (largest >= 0 && !names.empty())
      throw InputError(concat(label.where().str(), ": some labels are numbers and others names; use only one kind"));
    return true;
  });
  if (!labelled) return std::nullopt;
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
  const auto open = [&](const std::string& flag, const std::string& list, corpus::Split split) {
    auto rows = std::make_shared<LabelledRows>(max_length);
    const std::vector<corpus::SourceFile> files = files_of(flag, list, split);
    std::int64_t tokens = 0, left_out = 0;
    std::string first_left_out;
    for_each_record(files, columns_of(config.text_column_name), [&](const Value& record, const auto& file) {
      const Value& text = record.at(config.text_column_name);
      if (is_blank(text) || is_blank(record.at("label"))) {
        if (left_out++ == 0) first_left_out = record.where().str();
        return true;
      }
      const Value* pair = record.find("text_pair");
      if (pair && pair->is_null()) pair = nullptr;  // an empty cell means no second text
      text::Encoding encoding = pair ? tokenizer.encode_pair(text.as_string(), pair->as_string(), max_length)
                                     : tokenizer.encode_text(text.as_string(), max_length);
      if (encoding.ids.empty())
        throw InputError(concat(text.where().str(), ": the text is empty and the tokenizer adds no special tokens"));
      tokens += static_cast<std::int64_t>(encoding.ids.size());
      rows->add(std::move(encoding), pair != nullptr, class_of(label_of(record.at("label"), file)));
      return true;
    });
    if (left_out > 0)
      datasets.warnings.push_back(concat(list, ": ", left_out, left_out == 1 ? " record was" : " records were",
                                         " left out: the text or the label is empty (first at ", first_left_out, ")"));
    if (rows->size() == 0)
      throw InputError(concat(list, left_out > 0 ? ": no record has both a text and a label" : ": contains no records",
                              ": use a file with at least one record"));
    datasets.notes.push_back(concat(list, ": ", rows->size(), " labelled texts, ", tokens, " tokens"));
    return std::shared_ptr<const Dataset>(std::move(rows));
  };
  datasets.train = open("train_file", config.train_file, corpus::Split::train);
  if (!want_validation) return datasets;
  if (!config.validation_file.empty()) {
    datasets.validation = open("validation_file", config.validation_file, corpus::Split::validation);
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
        concat(config.train_file, ": has ", all, " text: none can be held out; use --validation_file or more data"));
  const std::int64_t out =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(static_cast<double>(all) * percentage / 100), 1, all - 1);
  datasets.validation = slice(datasets.train, all - out, out);
  datasets.train = slice(datasets.train, 0, all - out);
  return datasets;
}

}  // namespace tessera::data
