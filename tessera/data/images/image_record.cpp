#include <tessera/data/images/image_record.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/corpus/left_out.h>
#include <tessera/data/example_line.h>

namespace tessera::data {
namespace {

using Style = text::Conversation::Style;

constexpr std::string_view mark = "<image>";

std::int64_t count_marks(std::string_view text) {
  std::int64_t count = 0;
  for (std::size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, at + mark.size())) ++count;
  return count;
}

std::string without_marks(std::string text) {
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) text.erase(at, mark.size());
  return text;
}

/// LLaVA's preprocess_multimodal: moves the images of a turn before its text.
std::string with_marks_first(const std::string& text, bool around) {
  const std::int64_t count = count_marks(text);
  if (count == 0) return text;
  std::string marks;
  for (std::int64_t i = 0; i < count; ++i) marks += concat(around ? concat("<Image>", mark, "</Image>") : mark, "\n");
  return trim(concat(marks, trim(without_marks(text))));
}

/// Splits the text at the marks; returns at least one piece.
std::vector<std::string_view> between_marks(std::string_view text) {
  std::vector<std::string_view> pieces;
  std::size_t begin = 0;
  for (std::size_t at = text.find(mark); at != std::string_view::npos; at = text.find(mark, begin)) {
    pieces.push_back(text.substr(begin, at - begin));
    begin = at + mark.size();
  }
  pieces.push_back(text.substr(begin));
  return pieces;
}

void append(EncodedImages& out, const std::vector<std::int32_t>& ids, bool scored) {
  out.ids.insert(out.ids.end(), ids.begin(), ids.end());
  out.scored.insert(out.scored.end(), ids.size(), scored);
}

void append_mark(EncodedImages& out) { append(out, {image_mark}, false); }

/// Collects the images that a value names: null, a name, an object with a path, or a list of these.
void names_in(const Value& value, std::vector<std::string>& names) {
  if (value.is_null()) return;
  if (value.is_array()) {
    for (const Value& item : value.items()) names_in(item, names);
    return;
  }
  const Value& name = value.is_object() ? value.at("path") : value;
  if (name.as_string().empty()) throw InputError(concat(name.where().str(), ": the image name is empty"));
  names.push_back(name.as_string());
}

void check_names(const std::vector<std::string>& names, const Value& record, const ImageOptions& images) {
  if (names.empty()) return;
  const std::string where = record.where().str();
  if (!images.input)
    throw InputError(concat(where, ": the record has an image (", names.front(),
                            "), but the model has no image input: use one that has (--vision_tower)"));
  if (images.folder.empty())
    throw InputError(concat(where, ": the record has an image (", names.front(),
                            "), but --image_folder is not set: set it to the folder of the images"));
  for (const std::string& name : names) {
    const std::vector<std::string> steps = split(name, '/');
    if (name.front() == '/' || std::find(steps.begin(), steps.end(), "..") != steps.end())
      throw InputError(concat(where, ": the image ", name, " is outside --image_folder ", images.folder,
                              ": use a path inside that folder"));
    if (!path_exists(path_join(images.folder, name)))
      throw InputError(concat(where, ": the image ", path_join(images.folder, name), " does not exist"));
  }
}

void check_count(std::int64_t marks, const EncodedImages& out, const Value& record) {
  if (marks == static_cast<std::int64_t>(out.images.size())) return;
  throw InputError(concat(record.where().str(), ": the text has ", marks, " <image>, but the record names ",
                          out.images.size(), out.images.size() == 1 ? " image" : " images",
                          ": the numbers must be equal"));
}

/// The ids that a round's text has in the whole conversation. The special token that ends a round, `before`, separates
/// the texts around it, so the text after it is tokenized separately. Returns nullopt if the tokenizer merges across
/// it.
std::optional<std::vector<std::int32_t>> ids_behind(std::string_view before, std::string_view text,
                                                    const text::Tokenizer& tokenizer) {
  if (before.empty()) return tokenizer.encode(text);
  const std::vector<std::int32_t> head = tokenizer.encode(before);
  std::vector<std::int32_t> ids = tokenizer.encode(concat(before, text));
  if (ids.size() < head.size() || !std::equal(head.begin(), head.end(), ids.begin())) return std::nullopt;
  ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(head.size()));
  return ids;
}

/// Appends the piece of a round in which the answer begins. The question's tokens must be the same without the answer.
/// LLaVA tokenizes the pieces between images separately.
bool append_border(EncodedImages& out, std::string_view before, std::string_view asked, std::string_view answered,
                   const text::Tokenizer& tokenizer) {
  const auto question = ids_behind(before, asked, tokenizer);
  const auto both = ids_behind(before, concat(asked, answered), tokenizer);
  if (!question || !both || both->size() < question->size() ||
      !std::equal(question->begin(), question->end(), both->begin()))
    return false;
  append(out, *question, false);
  append(out, {both->begin() + static_cast<std::ptrdiff_t>(question->size()), both->end()}, true);
  return true;
}

/// Returns false if the tokenizer merges the question's end with the answer: LLaVA's "tokenization mismatch".
bool append_round(EncodedImages& out, const text::Round& round, std::string_view before, bool plain, bool has_images,
                  const text::Tokenizer& tokenizer) {
  const auto pieces = [&](const std::string& text) {
    return has_images ? between_marks(text) : std::vector<std::string_view>{text};
  };
  std::vector<std::string_view> asked = pieces(round.asked), answered = pieces(round.answered);
  for (std::size_t i = 0; i + 1 < asked.size(); ++i) {
    if (!asked[i].empty()) {
      const auto ids = ids_behind(i == 0 ? before : "", asked[i], tokenizer);
      if (!ids) return false;
      append(out, *ids, false);
    }
    append_mark(out);
  }
  if (plain)
    append(out, tokenizer.encode(answered.front()), true);
  else if (!append_border(out, asked.size() == 1 ? before : "", asked.back(), answered.front(), tokenizer))
    return false;
  for (std::size_t i = 1; i < answered.size(); ++i) {
    append_mark(out);
    append(out, tokenizer.encode(answered[i]), true);
  }
  return true;
}

std::vector<text::Turn> turns_of(const Value& list) {
  std::vector<text::Turn> turns;
  for (const Value& said : list.items()) {
    const Value& from = said.at("from");
    const bool assistant = from.as_string() == "gpt";
    if (!assistant && from.as_string() != "human")
      throw InputError(concat(from.where().str(), ": \"from\" is \"", from.as_string(), "\"; it must be human or gpt"));
    if (said.at("value").is_null()) throw corpus::LeftOut("a message's content is null");
    turns.push_back({assistant, said.at("value").as_string()});
  }
  return turns;
}

void encode_conversation(const Value& record, const text::Tokenizer& tokenizer, const ImageOptions& options,
                         EncodedImages& out) {
  const std::string where = record.where().str();
  const text::Conversation* conversation = options.conversation;
  if (conversation == nullptr)
    throw InputError(concat(where, ": contains `conversations`, which need --version: set it, for example to v1"));
  if (const Value* image = record.find("image")) names_in(*image, out.images);
  check_names(out.images, record, options);
  std::vector<text::Turn> turns = turns_of(record.at("conversations"));
  std::int64_t marks = 0;
  for (const text::Turn& turn : turns) marks += count_marks(turn.text);
  const bool has_images = !out.images.empty();
  if (has_images) {
    check_count(marks, out, record);
    for (text::Turn& turn : turns) turn.text = with_marks_first(turn.text, conversation->marks_images);
  }
  out.stray_mark = !has_images && marks > 0;
  const std::vector<text::Round> rounds = text::rounds_of(*conversation, std::move(turns), where);
  const bool plain = conversation->style == Style::plain;
  if (plain && !has_images)
    throw InputError(concat(where, ": --version ", conversation->version,
                            " is for an image and its caption, but the "
                            "record names no image"));
  append(out, tokenizer.prefix(), false);
  std::string_view before;
  out.unclear = rounds.empty();
  for (const text::Round& round : rounds) {
    if (!append_round(out, round, before, plain, has_images, tokenizer)) out.unclear = true;
    before = conversation->end;
  }
  if (out.unclear) std::fill(out.scored.begin(), out.scored.end(), false);
}

/// Collects image names from the parts of messages.
void names_in_messages(const Value& messages, std::vector<std::string>& names, std::int64_t& parts) {
  for (const Value& message : messages.items()) {
    const Value* content = message.find("content");
    if (content == nullptr || !content->is_array()) continue;
    for (const Value& part : content->items()) {
      const Value* type = part.is_object() ? part.find("type") : nullptr;
      if (type == nullptr || !type->is_string() || type->as_string() != "image") continue;
      ++parts;
      for (const char* name : {"image", "path"})
        if (const Value* given = part.find(name)) names_in(*given, names);
    }
  }
}

void encode_messages(const Value& record, const text::Tokenizer& tokenizer, const ExampleOptions& options,
                     const ImageOptions& images, EncodedImages& out) {
  const Value& messages = record.at("messages");
  std::int64_t parts = 0;
  names_in_messages(messages, out.images, parts);
  if (!out.images.empty() && static_cast<std::int64_t>(out.images.size()) != parts) check_count(parts, out, record);
  if (const Value* list = record.find("images"); list != nullptr && !list->is_null()) {
    if (!out.images.empty())
      throw InputError(
          concat(list->where().str(), ": both \"images\" and parts of the messages name images: keep one of them"));
    names_in(*list, out.images);
  }
  check_names(out.images, record, images);
  ExampleOptions whole = options;
  // not truncated here: cut() also counts the images' tokens
  whole.max_length = std::numeric_limits<std::int32_t>::max();
  ExampleLine example = encode_example(
      record, tokenizer, whole, [&](std::string_view text, bool first, const text::ChatEncoder& encoder) {
        if (out.images.empty()) return encoder.encode(text, first);
        std::vector<std::int32_t> ids;
        const std::vector<std::string_view> pieces = between_marks(text);
        for (std::size_t i = 0; i < pieces.size(); ++i) {
          if (i > 0) ids.push_back(image_mark);
          if (pieces[i].empty()) continue;
          const std::vector<std::int32_t> more = encoder.encode(pieces[i], first && i == 0);
          ids.insert(ids.end(), more.begin(), more.end());
        }
        return ids;
      });
  out.ids = std::move(example.ids);
  out.scored = std::move(example.scored);
  out.remark = std::move(example.remark);
  for (std::string& name : example.unused_fields)
    if (name != "messages.content.image" && name != "messages.content.path") out.unused_fields.push_back(name);
  for (std::size_t i = 0; i < out.ids.size(); ++i)
    if (out.ids[i] == image_mark) out.scored[i] = false;
  check_count(out.images.empty() ? parts : std::count(out.ids.begin(), out.ids.end(), image_mark), out, record);
}

/// Truncates to `length` tokens; an image is kept whole or removed.
void cut(EncodedImages& out, std::int64_t length, std::int64_t image_tokens) {
  std::int64_t tokens = 0;
  std::size_t ids = 0, images = 0;
  for (; ids < out.ids.size(); ++ids) {
    const bool is_image = out.ids[ids] == image_mark;
    tokens += is_image ? image_tokens : 1;
    if (tokens > length) break;
    images += is_image;
  }
  out.cut = ids < out.ids.size();
  out.ids.resize(ids);
  out.scored.resize(ids);
  out.images.resize(images);
}

void check_ids(const EncodedImages& out, const Value& record, const ExampleOptions& options,
               const ImageOptions& images) {
  for (const std::int32_t id : out.ids) {
    if (id == image_mark) continue;
    if (id < 0 || id >= options.vocab_size)
      throw InputError(concat(record.where().str(), ": a token has id ", id, ", but the model's vocabulary has ",
                              options.vocab_size, " entries: tokenizer and model do not match"));
    if (images.input && id == images.input->token)
      throw InputError(concat(record.where().str(), ": a text has the token ", id,
                              ", which represents an image, but the record names no image for it"));
  }
}

/// Whether a list's cell is null.
bool is_empty_list(const Value& record) {
  for (const char* name : {"conversations", "messages"})
    if (const Value* list = record.find(name); list != nullptr && list->is_null()) return true;
  return false;
}

}  // namespace

ImageRecord kind_of_record(const Value& record) {
  if (!record.is_object()) return ImageRecord::none;
  if (const Value* list = record.find("conversations"); list != nullptr && list->is_array())
    return ImageRecord::conversations;
  if (const Value* list = record.find("messages"); list != nullptr && list->is_array()) return ImageRecord::messages;
  return ImageRecord::none;
}

EncodedImages encode_images(const Value& record, const text::Tokenizer& tokenizer, const ExampleOptions& options,
                            const ImageOptions& images) {
  EncodedImages out;
  std::vector<std::string_view> used;
  try {
    switch (kind_of_record(record)) {
      case ImageRecord::conversations:
        encode_conversation(record, tokenizer, images, out);
        used = {"conversations", "image", "id"};
        break;
      case ImageRecord::messages:
        encode_messages(record, tokenizer, options, images, out);
        used = {"messages", "images", "tools", "documents", "chat_template_kwargs"};
        break;
      case ImageRecord::none:
        if (is_empty_list(record)) throw corpus::LeftOut("the conversation has no messages");
        throw InputError(concat(record.where().str(), ": has neither a list `conversations` nor a list `messages`"));
    }
  } catch (const corpus::LeftOut& why) {
    out = {};
    out.left_out = why.what();
    return out;
  }
  for (const auto& [name, value] : record.members())
    if (std::find(used.begin(), used.end(), name) == used.end()) out.unused_fields.push_back(name);
  check_ids(out, record, options, images);
  cut(out, options.max_length, images.input ? images.input->tokens : 1);
  return out;
}

}  // namespace tessera::data
