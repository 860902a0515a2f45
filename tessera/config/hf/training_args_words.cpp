// Arguments in a .args file: the words of a command line.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/hf/training_args.h>

#include <memory>

namespace tessera::config {
namespace {

constexpr std::uint64_t kMostWordBytes = 256 << 10;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

class Splitter {
 public:
  Splitter(std::string_view text, const std::string& path)
      : text_(text), file_(std::make_shared<const std::string>(path)) {}

  std::vector<FileWord> split() {
    while (skip_to_word()) words_.push_back(word());
    return std::move(words_);
  }

 private:
  char next() {
    const char c = text_[at_++];
    ++column_;
    if (c == '\n') ++line_, column_ = 1;
    return c;
  }
  SourcePos here() const { return {file_, line_, column_}; }

  bool skip_to_word() {
    while (at_ < text_.size()) {
      if (is_blank(text_[at_])) {
        next();
      } else if (text_[at_] == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') next();
      } else {
        return true;
      }
    }
    return false;
  }

  FileWord word() {
    FileWord word{{}, here()};
    while (at_ < text_.size() && !is_blank(text_[at_])) {
      const SourcePos start = here();
      const char c = next();
      if (c == '\'' || c == '"') {
        quoted(c, start, word.text);
      } else if (c == '\\' && at_ < text_.size()) {
        if (const char escaped = next(); escaped != '\n') word.text += escaped;  // a line may be continued
      } else {
        word.text += c;
      }
    }
    return word;
  }

  void quoted(char quote, const SourcePos& start, std::string& out) {
    while (at_ < text_.size()) {
      const char c = next();
      if (c == quote) return;
      if (c == '\\' && quote == '"' && at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\\'))
        out += next();
      else
        out += c;
    }
    throw InputError(concat(start.str(), ": the quote ", quote, " is not closed"));
  }

  std::string_view text_;
  std::shared_ptr<const std::string> file_;
  std::size_t at_ = 0;
  int line_ = 1, column_ = 1;
  std::vector<FileWord> words_;
};

}  // namespace

std::vector<FileWord> split_file_words(std::string_view text, const std::string& path) {
  if (!is_utf8(text) || text.find('\0') != std::string::npos)
    throw InputError(concat(path, ": not a text (UTF-8 without zero bytes)"));
  return Splitter(text, path).split();
}

std::vector<FileWord> read_file_words(const std::string& path, Problems& problems) {
  try {
    if (!path_exists(path)) throw InputError(concat("--args_file ", path, ": no such file"));
    if (is_directory(path))
      throw InputError(concat("--args_file ", path, " is a folder; expected a file of arguments"));
    return split_file_words(read_file(path, kMostWordBytes), path);
  } catch (const InputError& error) {
    problems.lines.push_back(error.what());
    problems.doubtful.insert("args_file");
    return {};
  }
}

}  // namespace tessera::config
