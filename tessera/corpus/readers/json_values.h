#pragma once
/// \file
/// Reads the values of a .json file one by one, without holding the file in memory: the items of an array, or a
/// sequence of values.

#include <tessera/corpus/bytes/window.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <tessera/base/value.h>

namespace tessera::corpus {

/// Accepted contents of a .json file:
///  - an array of objects;
///  - objects, one after another, with any line breaks (including one per line, as in .jsonl);
///  - one object with a member "data" or "rows" that is an array of objects: the values are these objects (as
///    `datasets` reads with field="data", and as in SQuAD), and other members are ignored.
class JsonValues {
 public:
  explicit JsonValues(Window window);

  /// Returns the next value; nullopt at the end. Throws InputError with file:line:column. After an invalid value the
  /// next call continues; after an error in commas or brackets every later call throws the same.
  std::optional<Value> next();
  std::uint64_t used() const { return window_.used(); }

 private:
  enum class State { begin, items, values, end };

  std::optional<char> peek();  ///< the next character after blanks; nullopt at the end of the file
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
  bool first_ = true;       ///< true until the first item of the array is read
  bool in_member_ = false;  ///< the array is a member of an object
  std::string complaint_;
};

}  // namespace tessera::corpus
