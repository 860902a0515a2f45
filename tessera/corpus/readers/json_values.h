#pragma once
/// \file
/// The values of a .json file one after another, without the file in memory: the items of an array, or values that
/// follow one another.

#include <tessera/corpus/bytes/window.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <tessera/base/value.h>

namespace tessera::corpus {

/// What a .json is expected to be:
///  - an array of objects;
///  - objects, one after another, however they are broken into lines (one a line, as in .jsonl);
///  - one object with a member "data" or "rows" that is an array of objects: these (as `datasets` with field="data"
///    reads them, and as SQuAD is); its other members are passed over.
class JsonValues {
 public:
  explicit JsonValues(Window window);

  /// The next value; nullopt at the end. Throws InputError with file:line:column. Behind a value that is no good the
  /// next call goes on; when commas and brackets are wrong it throws the same again.
  std::optional<Value> next();
  std::uint64_t used() const { return window_.used(); }

 private:
  enum class State { begin, items, values, end };

  std::optional<char> peek();  ///< behind blanks; nothing at the end of the file
  void pass(std::size_t bytes);
  void begin();
  bool enter_member();
  std::size_t value_size(std::size_t from);
  std::size_t string_size(std::size_t from);
  bool byte_at(std::size_t at);
  Value take(std::size_t size);
  void close();
  [[noreturn]] void fail(const std::string& what);

  Window window_;
  std::shared_ptr<const std::string> name_;
  int line_ = 1, column_ = 1;
  State state_ = State::begin;
  bool first_ = true;       ///< no item of the array was read yet
  bool in_member_ = false;  ///< the array is a member of an object
  std::string complaint_;
};

}  // namespace tessera::corpus
