// LLaVA's records as rows: the ids and labels of its own code (tests/parity/llava_fixture.py), images, batches, errors.

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/sections/data_config.h>
#include <tessera/corpus/sources.h>
#include <tessera/data/dataset.h>
#include <tessera/data/images/image_examples.h>
#include <tessera/image/plugin.h>

#include <tests/error_of.h>
#include <tests/paths.h>

#include "marked_tokenizer.h"

namespace tessera::data {
namespace {

using tessera::testing::error_of;
using tessera::testing::source_path;
using Ids = std::vector<std::int64_t>;

constexpr std::int64_t image_token = 1000;

/// Llama's, as LLaVA loads it: adds a beginning-of-text token.
class WithBeginning final : public text::Tokenizer {
 public:
  explicit WithBeginning(std::shared_ptr<const text::Tokenizer> other) : other_(std::move(other)) {}
  std::vector<std::int32_t> encode(std::string_view text) const override { return other_->encode(text); }
  std::string decode(std::span<const std::int32_t> ids) const override { return other_->decode(ids); }
  std::int64_t vocab_size() const override { return other_->vocab_size(); }
  std::optional<std::int32_t> end_of_text() const override { return other_->end_of_text(); }
  std::vector<std::int32_t> prefix() const override { return {1}; }
  void save(const std::string& folder) const override { other_->save(folder); }

 private:
  std::shared_ptr<const text::Tokenizer> other_;
};

struct LlavaTest : ::testing::Test {
  void SetUp() override {
    if (!image::has_image_plugin()) GTEST_SKIP() << "libtessera_image.so was not built";
    config_.train_file = path("a.json");
    config_.image_folder = source_path("tests/fixtures/image");
    config_.max_seq_length = 4000;
    config_.data_cache_dir = "none";
    config_.version = "v1";
  }
  std::string path(const std::string& name) const { return path_join(folder_.path(), name); }
  void write(const std::string& text) { write_file_atomically(config_.train_file, text); }
  static std::string record(const std::string& rest, const std::string& asked = "<image>\\nwhat ?",
                            const std::string& answer = "cat") {
    return concat("{\"id\": \"1\", ", rest, R"("conversations": [{"from": "human", "value": ")", asked,
                  R"("}, {"from": "gpt", "value": ")", answer, "\"}]}");
  }
  Datasets open(std::optional<ImageInput> input) {
    return open_datasets(config_, *tokenizer_, 64, 1001, false, {}, "", 0, false, input);
  }
  Datasets open() { return open(input_); }
  /// The error message, without the folder's name.
  std::string complaint(const std::string& text, bool sees = true) {
    write(text);
    std::string what = error_of([&] { open(sees ? std::optional(input_) : std::nullopt); });
    for (std::size_t at; (at = what.find(folder_.path() + "/")) != std::string::npos;)
      what.erase(at, folder_.path().size() + 1);
    return what;
  }

  TemporaryFolder folder_;
  DataConfig config_;
  std::shared_ptr<const text::Tokenizer> tokenizer_ =
      std::make_shared<WithBeginning>(text::load_tokenizer(source_path("tests/fixtures/text/files/llama")));
  ImageInput input_{.token = image_token, .tokens = 3, .side = 16, .mean = {0.5F, 0.5F, 0.5F}, .deviation = {1, 1, 1}};
};

TEST_F(LlavaTest, IdsAndLabelsAreThoseOfItsCode) {
  const Value records = read_json(source_path("tests/fixtures/llava/records.json"));
  std::map<std::string, Value> by_id;
  for (Value record : records.items()) {
    if (record.find("image") != nullptr) record.set("image", Value::of("base.jpg"));
    by_id.emplace(record.at("id").as_string(), std::move(record));
  }
  ExampleOptions options{.max_length = 4000, .vocab_size = 1001};
  int compared = 0, ignored = 0;
  for (const std::string& line : split(trim(read_file(source_path("tests/fixtures/llava/expected.jsonl"))), '\n')) {
    const Value expected = parse_json(line, "expected.jsonl");
    const std::string version = expected.at("version").as_string(), id = expected.at("id").as_string();
    const ImageOptions images{input_, &text::conversation_of(version), config_.image_folder};
    const EncodedImages made = encode_images(by_id.at(id), *tokenizer_, options, images);
    if (expected.at("ids").is_null()) {
      EXPECT_TRUE(made.unclear) << version << " " << id;
      EXPECT_EQ(std::count(made.scored.begin(), made.scored.end(), true), 0) << version << " " << id;
      ++ignored;
      continue;
    }
    Ids ids, labels, wanted, wanted_labels;
    for (std::size_t i = 0; i < made.ids.size(); ++i) {
      ids.push_back(made.ids[i] == image_mark ? -200 : made.ids[i]);
      labels.push_back(made.scored[i] ? made.ids[i] : -100);
    }
    for (const Value& value : expected.at("ids").items()) wanted.push_back(value.as_int());
    for (const Value& value : expected.at("labels").items()) wanted_labels.push_back(value.as_int());
    EXPECT_EQ(ids, wanted) << version << " " << id;
    EXPECT_EQ(labels, wanted_labels) << version << " " << id;
    ++compared;
  }
  EXPECT_GE(compared, 24);
  EXPECT_GE(ignored, 8);
}

TEST_F(LlavaTest, RowsHaveTheTokensOfImagesAndBatchesTheirPixels) {
  write(concat("[", record(R"("image": "base.jpg", )"), ",\n", record("", "hello", "you"), ",\n",
               record(R"("image": ["rgb.png", "grey.png"], )", "<image> and <image> ?"), "]"));
  const Datasets data = open();
  ASSERT_EQ(data.train->size(), 3);
  const Row row = data.train->read(2);
  EXPECT_EQ(std::count(row.ids.begin(), row.ids.end(), image_token), 6);
  EXPECT_EQ(row.images, (std::vector<std::string>{path_join(config_.image_folder, "rgb.png"),
                                                  path_join(config_.image_folder, "grey.png")}));
  for (std::size_t i = 0; i < row.ids.size(); ++i)
    EXPECT_TRUE(row.ids[i] != image_token || row.labels[i] == not_scored) << i;
  EXPECT_EQ(data.train->length(2), static_cast<std::int64_t>(row.ids.size()));

  const Sampler order(SamplingStrategy::sequential, 3, 0);
  const Batch batch = make_batch(*data.train, order, 0, 3);
  EXPECT_EQ(batch.images.sizes(), (at::IntArrayRef{3, 3, 16, 16}));
  EXPECT_EQ(batch.images.scalar_type(), at::kFloat);
  EXPECT_TRUE(batch.images[1].equal(make_batch(*data.train, order, 2, 1).images[0])) << "in the order of the rows";
  EXPECT_FALSE(batch.images[0].equal(batch.images[1]));
  EXPECT_TRUE(batch.images[2][0].equal(batch.images[2][1])) << "grey";
  EXPECT_FALSE(make_batch(*data.train, order, 1, 1).images.defined());

  const at::Tensor square = batch.images.clone();
  config_.image_aspect_ratio = ImageAspectRatio::pad;
  const at::Tensor padded = make_batch(*open().train, order, 0, 3).images;
  EXPECT_FALSE(padded.equal(square));
  EXPECT_LT((padded[0].select(1, 0) - (127 / 255.0 - 0.5)).abs().max().item<double>(), 1e-6) << "the mean's border";
}

TEST_F(LlavaTest, JsonLinesAndPackingAndHoldingOut) {
  config_.train_file = path("a.jsonl");
  std::string lines;
  for (int i = 0; i < 8; ++i) lines += record(i % 2 ? R"("image": "base.jpg", )" : "", i % 2 ? "<image>" : "x") + "\n";
  write(lines);
  config_.packing = true;
  config_.max_seq_length = 600;
  const Datasets packed = open();
  EXPECT_LT(packed.train->size(), 8);
  std::size_t images = 0;
  for (std::int64_t i = 0; i < packed.train->size(); ++i) {
    const Row row = packed.train->read(i);
    images += row.images.size();
    EXPECT_EQ(std::count(row.ids.begin(), row.ids.end(), image_token),
              static_cast<std::int64_t>(3 * row.images.size()));
  }
  EXPECT_EQ(images, 4U);
  config_.packing = false;
  config_.validation_split_percentage = 25;
  const Datasets held = open_datasets(config_, *tokenizer_, 64, 1001, true, {}, "", 0, false, input_);
  ASSERT_EQ(held.validation->size(), 2);
  EXPECT_TRUE(make_batch(*held.validation, Sampler(SamplingStrategy::sequential, 2, 0), 1, 1).images.defined());
}

TEST_F(LlavaTest, TooLongExamplesLoseImagesWhole) {
  write(concat("[", record(R"("image": "base.jpg", )", "<image>\\nwhat ?", "a long answer that goes on"), "]"));
  const Row whole = open().train->read(0);
  config_.max_seq_length = static_cast<std::int64_t>(whole.ids.size()) - 4;
  const Datasets cut = open();
  const Row row = cut.train->read(0);
  EXPECT_EQ(row.ids, Ids(whole.ids.begin(), whole.ids.end() - 4)) << "the images' tokens count";
  EXPECT_EQ(cut.warnings.size(), 1U);
  const auto image = std::find(whole.ids.begin(), whole.ids.end(), image_token) - whole.ids.begin();
  config_.max_seq_length = image + 2;
  EXPECT_NE(error_of([&] { open(); }).find("including image tokens"), std::string::npos);
}

TEST_F(LlavaTest, TextAloneTakesATemplate) {
  write(concat("[", record("", "hello"), "]"));
  const Row row = open(std::nullopt).train->read(0);
  const std::string text = tokenizer_->decode(std::vector<std::int32_t>(row.ids.begin(), row.ids.end()));
  EXPECT_NE(text.find("USER: hello ASSISTANT: cat"), std::string::npos) << text;
  EXPECT_TRUE(row.images.empty());
  config_.version = "llava_llama_2";
  EXPECT_NE(open(std::nullopt).train->read(0).ids, row.ids);
  config_.version = "";
  EXPECT_NE(error_of([&] { open(std::nullopt); }).find("chat"), std::string::npos) << "the tokenizer's template";
}

TEST_F(LlavaTest, MessagesHaveImagesAsParts) {
  tokenizer_ = std::make_shared<MarkedTokenizer>();
  config_.version = "";
  config_.chat_template =
      "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content "
      "%}"
      "{% if p.type == 'image' %}<image>{% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %};{% endfor %}"
      "{% if add_generation_prompt %}assistant:{% endif %}";
  const std::string said = R"({"role": "assistant", "content": "cat"}])";
  const auto messages = [&](const std::string& part, const std::string& beside) {
    return concat(R"([{"messages": [{"role": "user", "content": [{"type": "image")", part,
                  R"(}, {"type": "text", "text": "what?"}]}, )", said, beside, "}]");
  };
  write(messages("", R"(, "images": ["rgb.png"])"));
  const Row row = open().train->read(0);
  EXPECT_EQ(row.images, (std::vector<std::string>{path_join(config_.image_folder, "rgb.png")}));
  EXPECT_EQ(std::count(row.ids.begin(), row.ids.end(), image_token), 3);
  EXPECT_EQ(std::count_if(row.labels.begin(), row.labels.end(), [](auto label) { return label != not_scored; }), 4);
  write(messages(R"(, "path": "rgb.png")", ""));
  EXPECT_EQ(open().train->read(0).ids, row.ids);
  EXPECT_EQ(complaint(messages("", "")),
            "a.json:1:2: the text has 1 <image>, but the record names 0 images: the numbers must be equal");
}

TEST_F(LlavaTest, WhatIsWrongIsNamed) {
  const std::string image = R"("image": "base.jpg", )";
  EXPECT_EQ(complaint(concat("[", record(R"("image": ["base.jpg", "rgb.png"], )"), "]")),
            "a.json:1:2: the text has 1 <image>, but the record names 2 images: the numbers must be equal");
  EXPECT_EQ(complaint(concat("[", record(image, "what ?"), "]")),
            "a.json:1:2: the text has 0 <image>, but the record names 1 image: the numbers must be equal");
  for (const char* name : {"../image/base.jpg", "/etc/passwd", "a/../../b.png"})
    EXPECT_NE(
        complaint(concat("[", record(concat("\"image\": \"", name, "\", ")), "]")).find("is outside --image_folder"),
        std::string::npos)
        << name;
  EXPECT_EQ(complaint(concat("[", record(image), ",\n", record(R"("image": "none.png", )"), "]")),
            concat("a.json:2:1: the image ", config_.image_folder, "/none.png does not exist"));
  EXPECT_NE(complaint(concat("[", record(image), "]"), false).find("but the model has no image input"),
            std::string::npos);
  EXPECT_NE(complaint(R"([{"conversations": [{"from": "user", "value": "x"}]}])").find("must be human or gpt"),
            std::string::npos);
  config_.image_folder = "";
  EXPECT_NE(complaint(concat("[", record(image), "]")).find("--image_folder is not set"), std::string::npos);
  config_.image_folder = source_path("tests/fixtures/image");
  config_.version = "plain";
  EXPECT_NE(complaint(concat("[", record("", "x"), "]")).find("for an image and its caption"), std::string::npos);
  config_.version = "mpt";
  EXPECT_NE(complaint(concat("[", record(image), "]")).find("this template of LLaVA is not supported"),
            std::string::npos);
  config_.version = "";
  EXPECT_NE(complaint(R"([{"text": "x", "image": "base.jpg"}])").find("names images, but has neither"),
            std::string::npos);
  config_.streaming = true;
  EXPECT_EQ(complaint(concat("[", record(image), "]")), "--streaming does not support images: remove it");
}

TEST_F(LlavaTest, ADamagedImageIsNamedWhenItsBatchIsMade) {
  config_.image_folder = folder_.path();
  write_file_atomically(path("bad.png"), read_file(source_path("tests/fixtures/image/rgb.png")).substr(0, 300));
  write(concat("[", record(R"("image": "bad.png", )"), "]"));
  const Datasets data = open();
  EXPECT_EQ(error_of([&] { make_batch(*data.train, Sampler(SamplingStrategy::sequential, 1, 0), 0, 1); }),
            concat(path("bad.png"), ": the PNG cannot be read: the file is truncated"));
}

TEST_F(LlavaTest, UnclearConversationsAreLeftOutAndCounted) {
  write(concat("[", record("", "hello"), ",\n", record("", "hello", ""), ",\n", record("", "a <image> tag"), "]"));
  const Datasets data = open();
  EXPECT_EQ(data.train->size(), 2);
  ASSERT_EQ(data.warnings.size(), 2U);
  EXPECT_NE(data.warnings[0].find("1 conversation was left out"), std::string::npos);
  EXPECT_NE(data.warnings[1].find("1 record without an image have <image>"), std::string::npos);
}

/// Rows with and without images, of different lengths.
class Mixed final : public Dataset {
 public:
  std::int64_t size() const override { return 203; }
  std::int64_t max_length() const override { return 100; }
  std::int64_t length(std::int64_t row) const override { return 1 + row * 37 % 97; }
  Row read(std::int64_t row) const override {
    Row out;
    if (has_images(row)) out.images = {"x"};
    return out;
  }
  static bool has_images(std::int64_t row) { return row * 7919 % 5 < 3; }
};

TEST(GroupByModalityLength, StepsHaveOneKindAndMicroBatchesLikeLengths) {
  const Mixed rows;
  const Sampler sampler(SamplingStrategy::group_by_modality_length, rows, 3, 8, 2);
  std::vector<std::int64_t> kinds;
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    std::set<std::int64_t> seen;
    std::int64_t mixed = 0;
    for (std::int64_t step = 0; step < 25; ++step) {
      std::int64_t images = 0;
      std::vector<std::int64_t> sums(4, 0);
      for (std::int64_t i = 0; i < 8; ++i) {
        const std::int64_t row = sampler(epoch * 203 + step * 8 + i);
        EXPECT_TRUE(seen.insert(row).second);
        images += Mixed::has_images(row);
        sums[static_cast<std::size_t>(i / 2)] += rows.length(row);
      }
      mixed += images % 8 != 0;
      if (images % 8 == 0) {
        kinds.push_back(images);
        EXPECT_LT(*std::max_element(sums.begin(), sums.end()) - *std::min_element(sums.begin(), sums.end()), 97);
      }
    }
    EXPECT_LE(mixed, 2) << "the rest of both kinds comes last";
    for (std::int64_t i = 200; i < 203; ++i) seen.insert(sampler(epoch * 203 + i));
    EXPECT_EQ(seen.size(), 203U) << "every row once";
  }
  EXPECT_FALSE(std::is_sorted(kinds.begin(), kinds.end()));
  EXPECT_FALSE(std::is_sorted(kinds.rbegin(), kinds.rend())) << "kinds come in a random order";

  const Sampler again(SamplingStrategy::group_by_modality_length, rows, 3, 8, 2);
  const Sampler other(SamplingStrategy::group_by_modality_length, rows, 4, 8, 2);
  std::int64_t differ = 0;
  for (std::int64_t i = 405; i >= 0; --i) {
    EXPECT_EQ(again(i), sampler(i));
    differ += other(i) != sampler(i);
  }
  EXPECT_GT(differ, 300);
  EXPECT_THROW(Sampler(SamplingStrategy::group_by_modality_length, 10, 5), InputError);
}

}  // namespace
}  // namespace tessera::data
