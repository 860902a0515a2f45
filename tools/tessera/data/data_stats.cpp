// tessera data stats: summarizes the contents of a data set.

#include <tessera/base/error.h>
#include <tessera/corpus/left_out.h>
#include <tessera/corpus/sources.h>
#include <tessera/text/tokenizer.h>
#include <tools/tessera/data/data_parts.h>
#include <tools/tessera/data/lengths.h>
#include <tools/tessera/text_progress.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>

namespace tessera::tool {
namespace {

constexpr const char* stats_help =
    "tessera data stats: contents of a data set: files, records, columns, lengths of the texts\n\n"
    "usage: tessera data stats PATH... [arguments]\n\n"
    "  --tokenizer_name NAME      a folder with tokenizer.json, such a file, or byte: also counts tokens\n";

const char* kind_of(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::null:
      return "null";
    case Value::Kind::boolean:
      return "boolean";
    case Value::Kind::integer:
      return "integer";
    case Value::Kind::real:
      return "real";
    case Value::Kind::string:
      return "string";
    case Value::Kind::array:
      return "list";
    case Value::Kind::object:
      return "object";
  }
  return "?";
}

/// The texts of a normalized record: text, prompt and completion, or the content of each message.
std::vector<const std::string*> texts_of(const Value& normal) {
  std::vector<const std::string*> texts;
  for (const auto& [name, value] : normal.members()) {
    if (value.is_string()) texts.push_back(&value.as_string());
    if (!value.is_array()) continue;
    for (const Value& message : value.items()) {
      const Value* content = message.is_object() ? message.find("content") : nullptr;
      if (content != nullptr && content->is_string()) texts.push_back(&content->as_string());
    }
  }
  return texts;
}

class Stats {
 public:
  Stats(const DataJob& job, std::shared_ptr<const text::Tokenizer> tokenizer)
      : job_(job), tokenizer_(std::move(tokenizer)) {}

  void add(const Value& record) {
    ++records_;
    for (const auto& [name, value] : record.members()) {
      if (columns_.try_emplace(name).second) order_.push_back(name);
      ++columns_[name][kind_of(value)];
    }
    if (records_ == 1) means_ = means_of(record, job_.columns, unknown_);
    if (!means_) return;
    Value normal;
    try {
      normal = means_->normal(record);
    } catch (const corpus::LeftOut&) {
      ++left_out_;
      return;
    }
    std::uint64_t bytes = 0, tokens = 0;
    for (const std::string* text : texts_of(normal)) {
      bytes += text->size();
      if (tokenizer_) tokens += tokenizer_->encode(*text).size();
    }
    if (bytes > bytes_.most()) longest_ = record.where();
    bytes_.add(bytes);
    tokens_.add(tokens);
  }
  void complain(const std::string& text) {
    if (++bad_ == 1) first_bad_ = text;
  }

  std::string text() const {
    std::map<std::string, std::size_t> kinds;
    for (const corpus::SourceFile& file : job_.files) ++kinds[corpus::name_of(file.kind)];
    std::vector<std::string> parts;
    for (const auto& [name, count] : kinds) parts.push_back(concat(count, " of ", name));
    std::string out = concat("files      ", job_.files.size(), " (", join(parts), "), ", format_bytes(job_.bytes()),
                             "\n", "records    ", records_, "\n");
    for (std::size_t i = 0; i < order_.size(); ++i)
      out += concat(i == 0 ? "columns    " : "           ", order_[i], ": ", kinds_of(order_[i]), "\n");
    out += concat("training   ", means_ ? means_->note() : unknown_,
                  left_out_ > 0 ? concat("; skips ", left_out_, " because empty") : "", "\n");
    if (means_) {
      out += shown(bytes_, "bytes", "of text in a record");
      if (bytes_.count() > 0) out += concat("           the longest: ", longest_.str(), "\n");
      if (tokenizer_) out += shown(tokens_, "tokens", "in a record");
    }
    if (bad_ > 0)
      out += concat("bad        ", bad_, bad_ == 1 ? " record" : " records",
                    " cannot be read (tessera data check); first: ", first_bad_, "\n");
    return out;
  }

 private:
  std::string kinds_of(const std::string& column) const {
    std::vector<std::string> parts;
    std::uint64_t there = 0;
    for (const auto& [kind, count] : columns_.at(column)) {
      there += count;
      parts.push_back(count == records_ ? kind : concat(kind, " in ", count));
    }
    if (there < records_) parts.push_back(concat("missing in ", records_ - there));
    return join(parts);
  }

  const DataJob& job_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::uint64_t records_ = 0, left_out_ = 0, bad_ = 0;
  std::vector<std::string> order_;
  std::map<std::string, std::map<std::string, std::uint64_t>> columns_;
  std::optional<corpus::Columns> means_;
  std::string unknown_, first_bad_;
  Lengths bytes_, tokens_;
  SourcePos longest_;
};

}  // namespace

std::string shown(const Lengths& lengths, const std::string& what, const std::string& unit) {
  if (lengths.count() == 0) return concat(what, std::string(11 - what.size(), ' '), "none\n");
  std::string out =
      concat(what, std::string(11 - what.size(), ' '), lengths.sum(), " in all; ", unit, ": ",
             format_real(lengths.mean(), 4), " on average, at most ", lengths.most(), "; about ", lengths.quantile(0.5),
             " for half of them, ", lengths.quantile(0.9), " for 90%, ", lengths.quantile(0.99), " for 99%\n");
  constexpr int bar = 40;
  for (int power = -1; power < 63; ++power) {
    const std::uint64_t count = lengths.of_power(power);
    if (count == 0) continue;
    const double share = static_cast<double>(count) / static_cast<double>(lengths.count());
    const std::string range = power < 0 ? "0" : concat(std::uint64_t{1} << power, "-", (std::uint64_t{2} << power) - 1);
    char line[160];
    std::snprintf(line, sizeof line, "%23s %5.1f%% %s\n", range.c_str(), 100 * share,
                  std::string(static_cast<std::size_t>(share * bar + 0.5), '#').c_str());
    out += line;
  }
  return out;
}

int data_stats(const Arguments& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::cout << stats_help << data_flags_help;
    return 0;
  }
  const DataJob job = data_job("stats", arguments, {"tokenizer_name"});
  std::shared_ptr<const text::Tokenizer> tokenizer;
  if (const auto name = job.flags.text("tokenizer_name")) tokenizer = text::load_tokenizer(*name);
  Stats stats(job, std::move(tokenizer));
  {
    TextProgress progress;
    std::uint64_t before = 0;
    for (const corpus::SourceFile& file : job.files) {
      for_each_record(
          file, [&](const Value& record) { stats.add(record); }, [&](const std::string& text) { stats.complain(text); },
          [&](std::uint64_t done) {
            progress.show("reading", static_cast<std::int64_t>(before + done), static_cast<std::int64_t>(job.bytes()),
                          true);
          });
      before += file.bytes;
    }
  }
  std::cout << stats.text();
  return 0;
}

}  // namespace tessera::tool
