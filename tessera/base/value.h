#pragma once
/// \file
/// A JSON/YAML value that records where it was written, so that every error message can give file:line:column.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

/// Where something was written. line and column count from 1, columns in bytes; line 0: the file as a whole; line < 0:
/// see file_part.h; no file: made by the program. For a value from a variable or flag, `file` is that name.
struct SourcePos {
  enum class Kind : unsigned char { file, environment, flag };  ///< the kind of name in `file`

  std::shared_ptr<const std::string> file;  ///< the file's name as messages print it, shared by all values of the file
  int line = 0;                             ///< from 1; 0: the file as a whole
  int column = 0;                           ///< in bytes, from 1
  Kind kind = Kind::file;                   ///< not a file: str() shows no line
  std::string str() const;                  ///< "ds.json:14:3", "environment NAME", "--flag"
};

/// Immutable in use: parse it, or build it with the static makers and dump it.
/// Threads: find/at/duplicate of a large object build its index on first use. parse_json and parse_yaml already do so,
/// so several threads may read a parsed value.
class Value {
 public:
  /// real: a number that is written as a real, or does not fit int64.
  enum class Kind { null, boolean, integer, real, string, array, object };
  using Member = std::pair<std::string, Value>;  ///< name and value

  Value() = default;
  static Value of(bool v);                                             ///< true or false
  static Value of(std::int64_t v);                                     ///< an integer, dumped without a decimal point
  static Value of(int v) { return of(static_cast<std::int64_t>(v)); }  ///< the same
  static Value of(double v);                                     ///< a real number, even if it has no fractional part
  static Value of(std::string v);                                ///< UTF-8 text
  static Value of(const char* v) { return of(std::string(v)); }  ///< the same
  static Value make_array(std::vector<Value> items = {});        ///< in this order; push_back() appends
  static Value make_object(std::vector<Member> members = {});    ///< in this order; the names must differ

  Kind kind() const noexcept { return kind_; }                   ///< which of the typed accessors below is valid
  const SourcePos& where() const& noexcept { return pos_; }      ///< position of its first character, for messages
  SourcePos where() && noexcept { return std::move(pos_); }      ///< a copy, because a temporary value is destroyed
  void set_where(SourcePos pos) { pos_ = std::move(pos); }       ///< for values that the program derives from others
  bool is_null() const noexcept { return kind_ == Kind::null; }  ///< also true for a default Value()
  bool is_number() const noexcept { return kind_ == Kind::integer || kind_ == Kind::real; }  ///< integer or real
  bool is_string() const noexcept { return kind_ == Kind::string; }                          ///< as_string() is valid
  bool is_array() const noexcept { return kind_ == Kind::array; }                            ///< items() is valid
  bool is_object() const noexcept { return kind_ == Kind::object; }  ///< members(), find(), at() are valid

  /// Typed access; another kind throws InputError "file:line:column: expected an integer, found a string".
  bool as_bool() const;
  std::int64_t as_int() const;  ///< also a real with an integral value within +-2^53
  double as_real() const;       ///< integer or real
  const std::string& as_string() const&;
  const std::vector<Value>& items() const&;
  const std::vector<Member>& members() const&;  ///< in file order

  /// The member, or nullptr. Linear for few members, indexed when there are many (vocabularies).
  const Value* find(std::string_view key) const&;
  bool contains(std::string_view key) const { return position(key).has_value(); }  ///< whether it has this member
  /// Returns the member; a missing one throws InputError with this object's position and the key.
  const Value& at(std::string_view key) const&;

  // A temporary value gives up its parts: otherwise a loop over read_json(path).items() would use dangling references.
  std::string as_string() &&;
  std::vector<Value> items() &&;
  std::vector<Member> members() &&;
  Value at(std::string_view key) &&;
  const Value* find(std::string_view key) && = delete;  ///< keep the value, or use contains()

  /// Index of the first member whose name an earlier member has, if any.
  std::optional<std::size_t> duplicate() const;

  void push_back(Value item);              ///< arrays
  void set(std::string key, Value value);  ///< objects: appends, or replaces the member of that name

 private:
  std::optional<std::size_t> position(std::string_view key) const;

  Kind kind_ = Kind::null;
  SourcePos pos_;
  bool boolean_ = false;
  std::int64_t integer_ = 0;
  double real_ = 0;
  std::string string_;
  std::vector<Value> items_;
  std::vector<Member> members_;
  mutable std::shared_ptr<struct ValueIndex> index_;
};

/// Strict JSON (RFC 8259): no comments, no trailing commas, no duplicate keys, valid UTF-8, depth <= 256; numbers
/// that do not fit int64 become real. `name` is the file name used in messages. Throws InputError.
Value parse_json(std::string_view text, const std::string& name);
/// Reads and parses a file of at most `max_bytes`.
Value read_json(const std::string& path, std::uint64_t max_bytes = 256u << 20);
/// JSON text. indent < 0: one line. Reals have up to `real_digits` significant digits; nan/inf become null.
std::string dump_json(const Value& value, int indent = 2, int real_digits = 17);

/// Parses YAML 1.2 with the core schema's plain scalars, through yaml-cpp made strict. Throws InputError; also for
/// input that YAML readers interpret differently or that surprises users: octal-looking numbers (010, 0o10), duplicate
/// keys, merge keys (<<), tags, null or compound keys, several documents, aliases that expand to more than 1000000
/// values. yes/no/on/off are text.
Value parse_yaml(std::string_view text, const std::string& name);
Value read_yaml(const std::string& path);  ///< the same, from a file

}  // namespace tessera
