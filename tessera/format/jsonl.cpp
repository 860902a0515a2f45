#include <tessera/format/jsonl.h>

#include <algorithm>

#include <tessera/base/byte_order_mark.h>
#include <tessera/base/json/json_line.h>

namespace tessera::format {
namespace {

constexpr std::string_view blanks = " \t\r";  // JSON's white space around a value, except the line feed

std::string_view as_text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace

JsonlReader::JsonlReader(const std::string& path)
    : file_(path), name_(std::make_shared<const std::string>(path)), text_(as_text(file_)) {
  if (text_.starts_with(byte_order_mark)) at_ = byte_order_mark.size();
}

JsonlReader::JsonlReader(std::string_view bytes, const std::string& name)
    : name_(std::make_shared<const std::string>(name)), text_(bytes) {
  if (text_.starts_with(byte_order_mark)) at_ = byte_order_mark.size();
}

std::optional<JsonlReader::Line> JsonlReader::next_line() {
  while (at_ < text_.size()) {
    const std::size_t end = std::min(text_.find('\n', at_), text_.size());
    std::string_view text = text_.substr(at_, end - at_);
    at_ = std::min(end + 1, text_.size());
    ++line_;
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.find_first_not_of(blanks) != std::string_view::npos) return Line{text, line_};
  }
  return std::nullopt;
}

Value JsonlReader::parse(const Line& line) const { return parse_json_line(line.text, name_, line.number); }

std::optional<Value> JsonlReader::next() {
  const auto line = next_line();
  if (!line) return std::nullopt;
  return parse(*line);
}

}  // namespace tessera::format
