#include <tessera/data/images/image_examples.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/corpus/records.h>
#include <tessera/nn/parallel_for.h>

namespace tessera::data {
namespace {

constexpr std::size_t at_once = 1024;  // records

/// Examples stored contiguously.
class StoredImages final : public ExampleSource {
 public:
  StoredImages(std::string folder, std::int64_t token, std::int64_t tokens)
      : folder_(std::move(folder)), token_(token), tokens_(tokens) {}

  void add(const EncodedImages& example) {
    ids_.insert(ids_.end(), example.ids.begin(), example.ids.end());
    scored_.insert(scored_.end(), example.scored.begin(), example.scored.end());
    images_.insert(images_.end(), example.images.begin(), example.images.end());
    begins_.push_back({ids_.size(), images_.size()});
    longest_ = std::max(longest_, length(size() - 1));
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(begins_.size()) - 1; }
  std::int64_t length(std::int64_t example) const override {
    const auto [begin, end] = ends_of(example);
    const auto images = static_cast<std::int64_t>(end.image - begin.image);
    return static_cast<std::int64_t>(end.id - begin.id) + images * (tokens_ - 1);
  }
  std::int64_t longest() const override { return longest_; }
  void lengths(std::int64_t first, std::int64_t count, const std::function<void(std::int64_t)>& take) const override {
    for (std::int64_t i = first; i < first + count; ++i) take(length(i));
  }
  void append(std::int64_t example, std::vector<std::int64_t>& ids, std::vector<std::int64_t>& labels) const override {
    const auto [begin, end] = ends_of(example);
    for (std::size_t i = begin.id; i < end.id; ++i) {
      const bool is_image = ids_[i] == image_mark;
      const auto count = is_image ? static_cast<std::size_t>(tokens_) : std::size_t{1};
      ids.insert(ids.end(), count, is_image ? token_ : ids_[i]);
      labels.insert(labels.end(), count, scored_[i] ? ids_[i] : not_scored);
    }
  }
  void append_images(std::int64_t example, std::vector<std::string>& files) const override {
    const auto [begin, end] = ends_of(example);
    for (std::size_t i = begin.image; i < end.image; ++i) files.push_back(path_join(folder_, images_[i]));
  }

 private:
  struct Begin {
    std::size_t id = 0, image = 0;
  };

  std::pair<Begin, Begin> ends_of(std::int64_t example) const {
    TESSERA_CHECK(example >= 0 && example < size(), "example ", example, " of ", size());
    const auto i = static_cast<std::size_t>(example);
    return {begins_[i], begins_[i + 1]};
  }

  std::string folder_;
  std::int64_t token_, tokens_, longest_ = 0;
  std::vector<std::int32_t> ids_;  // contains image_mark for each image
  std::vector<bool> scored_;
  std::vector<std::string> images_;
  std::vector<Begin> begins_ = {{}};
};

bool is_null(const Value& record, const char* name) {
  const Value* list = record.is_object() ? record.find(name) : nullptr;
  return list != nullptr && list->is_null();
}

/// The first record with a non-null list, otherwise the first record. Returns nullopt if it cannot be read: the full
/// read reports the error.
std::optional<Value> first_of(const std::vector<corpus::SourceFile>& files) {
  std::optional<Value> first;
  try {
    for (const corpus::SourceFile& file : files)
      for (const corpus::Piece& piece : corpus::pieces_of(file, file.bytes + 1)) {
        const auto reader = corpus::read_records(file, piece);
        while (auto record = reader->next()) {
          if (!is_null(*record, "messages") && !is_null(*record, "conversations")) return record;
          if (!first) first = std::move(record);
        }
      }
  } catch (const InputError&) {
  }
  return first;
}

class Builder {
 public:
  Builder(const text::Tokenizer& tokenizer, const ExampleOptions& options, const ImageOptions& images)
      : tokenizer_(tokenizer),
        options_(options),
        images_(images),
        source_(std::make_shared<StoredImages>(images.folder, images.input ? images.input->token : 0,
                                               images.input ? images.input->tokens : 1)) {}

  void add(std::vector<Value> records) {
    std::vector<EncodedImages> encoded(records.size());
    nn::parallel_for(0, static_cast<std::int64_t>(records.size()), 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<std::size_t>(i);
        encoded[at] = encode_images(records[at], tokenizer_, options_, images_);
      }
    });
    for (std::size_t i = 0; i < records.size(); ++i) take(records[i], encoded[i]);
  }

  ImageExamples finish() {
    out_.source = source_;
    out_.unused_fields.assign(unused_.begin(), unused_.end());
    return std::move(out_);
  }

 private:
  static void note(corpus::Findings& findings, const std::string& said, const Value& record) {
    if (!said.empty() && findings[said].count++ == 0) findings[said].place = record.where().str();
  }

  void take(const Value& record, const EncodedImages& example) {
    note(out_.left_out, example.left_out, record);
    note(out_.remarks, example.remark, record);
    if (!example.left_out.empty()) return;
    const char* kind = kind_of_record(record) == ImageRecord::messages ? "messages" : "conversations";
    if (out_.kind.empty()) {
      out_.kind = kind;
      first_ = record.where().str();
    } else if (out_.kind != kind) {
      throw InputError(concat(record.where().str(), ": contains ", kind, ", but ", first_, " contains ", out_.kind,
                              ": all examples of a file must be of one kind"));
    }
    unused_.insert(example.unused_fields.begin(), example.unused_fields.end());
    out_.stray += example.stray_mark;
    out_.unclear += example.unclear;
    const std::int64_t scored =
        example.scored.empty() ? 0 : std::count(example.scored.begin() + 1, example.scored.end(), true);
    if (scored == 0) {
      out_.dropped += !example.unclear;
      return;
    }
    source_->add(example);
    out_.tokens += source_->length(source_->size() - 1);
    out_.scored += scored;
    out_.images += static_cast<std::int64_t>(example.images.size());
    out_.cut += example.cut;
  }

  const text::Tokenizer& tokenizer_;
  const ExampleOptions& options_;
  const ImageOptions& images_;
  std::shared_ptr<StoredImages> source_;
  ImageExamples out_;
  std::set<std::string> unused_;
  std::string first_;
};

}  // namespace

bool has_image_records(const std::vector<corpus::SourceFile>& files, const ImageOptions& images) {
  const auto first = first_of(files);
  if (!first || !first->is_object()) return false;
  const ImageRecord kind = kind_of_record(*first);
  if (kind == ImageRecord::messages) return images.input.has_value();
  if (kind == ImageRecord::conversations) {
    const std::vector<Value>& said = first->at("conversations").items();
    const bool llava = said.empty() || (said.front().is_object() && said.front().find("from") != nullptr);
    return llava && images.conversation != nullptr;
  }
  if (images.input)
    for (const char* name : {"image", "images"})
      if (first->find(name) != nullptr)
        throw InputError(concat(first->where().str(),
                                ": names images, but has neither a list `conversations` nor a "
                                "list `messages`: convert it to one of the two"));
  return false;
}

ImageExamples read_image_examples(const std::vector<corpus::SourceFile>& files, const text::Tokenizer& tokenizer,
                                  const ExampleOptions& options, const ImageOptions& images,
                                  const ReadProgress& progress) {
  TESSERA_CHECK(options.max_length >= 2, "max_length ", options.max_length);
  Builder builder(tokenizer, options, images);
  for (const corpus::SourceFile& file : files) {
    for (const corpus::Piece& piece : corpus::pieces_of(file, file.bytes + 1)) {
      const auto reader = corpus::read_records(file, piece);
      std::vector<Value> records;
      for (auto record = reader->next(); record; record = reader->next()) {
        records.push_back(std::move(*record));
        if (records.size() < at_once) continue;
        builder.add(std::exchange(records, {}));
        if (progress) progress(file.path, reader->bytes_read(), file.bytes);
      }
      builder.add(std::move(records));
    }
  }
  return builder.finish();
}

}  // namespace tessera::data
