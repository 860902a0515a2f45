#pragma once
/// \file
/// Values of the template language: Python's, as far as chat templates use them. Lists and dicts are immutable, as in
/// transformers' sandbox, and shared; strings are well-formed UTF-8 and counted in code points; integers have 64 bits
/// (Python's are unbounded: a result that does not fit is an error, never a wrong number).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/base/text.h>
#include <tessera/base/value.h>

namespace tessera::text::jinja {

/// An error thrown where the place in the template is unknown; the evaluator adds the place (InputError).
struct Fault {
  std::string what;
};

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Fault{concat(parts...)};
}

class Value;

/// A missing name or member: it is false, prints as an empty text, and iterates over nothing; any other use throws
/// `why`.
struct Undefined {
  std::string why;  ///< "'x' is undefined"
};

/// An indexable or iterable value. `depth` counts nested containers and is limited, so that recursion into a value is
/// safe.
struct Sequence {
  enum class Kind { list, tuple, range, keys, values, items, iterator };

  Kind kind = Kind::list;
  std::vector<Value> items;
  int depth = 1;
  mutable std::size_t taken = 0;  ///< iterator: number of items consumed
  std::string shown;              ///< range: its printed form, if known
};

/// Members in insertion order; few, so they are searched linearly.
struct Dict {
  std::vector<std::pair<Value, Value>> members;
  int depth = 1;
};

/// A value with behaviour: function, macro, namespace, loop. Owned by the run (Machine), never by a value, so that a
/// macro stored in its own scope does not create an ownership cycle.
class Object {
 public:
  virtual ~Object() = default;
  virtual const char* type() const = 0;
};

class Value {
 public:
  enum class Kind { undefined, none, boolean, integer, real, string, sequence, dict, object };

  Value() = default;  ///< undefined, without a reason
  static Value undefined(std::string why);
  static Value none() { return Value(Data(std::in_place_type<None>)); }
  static Value of(bool v) { return Value(Data(v)); }
  static Value of(std::int64_t v) { return Value(Data(v)); }
  static Value of(std::size_t v) { return Value(Data(static_cast<std::int64_t>(v))); }
  static Value of(int v) { return Value(Data(static_cast<std::int64_t>(v))); }
  static Value of(double v) { return Value(Data(v)); }
  static Value of(std::string v) { return Value(Data(std::make_shared<const Text>(Text{std::move(v), false}))); }
  /// A text made by |safe or |escape: text added to it is HTML-escaped, as with Jinja's Markup.
  static Value safe(std::string v) { return Value(Data(std::make_shared<const Text>(Text{std::move(v), true}))); }
  static Value of(const char* v) { return of(std::string(v)); }
  static Value of(Object& v) { return Value(Data(&v)); }
  /// Throws Fault for containers nested deeper than max_depth.
  static Value of(Sequence v);
  static Value of(Dict v);
  static constexpr int max_depth = 100;

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is(Kind kind) const { return this->kind() == kind; }
  bool is_undefined() const { return is(Kind::undefined); }
  bool is_none() const { return is(Kind::none); }
  bool is_string() const { return is(Kind::string); }
  bool is_integer() const { return is(Kind::integer) || is(Kind::boolean); }  ///< Python's bool is an int
  bool is_number() const { return is_integer() || is(Kind::real); }
  bool is_sequence() const { return is(Kind::sequence); }
  bool is_sequence(Sequence::Kind kind) const { return is_sequence() && sequence().kind == kind; }
  bool is_dict() const { return is(Kind::dict); }

  // Each accessor is valid only for a value of its kind.
  const std::string& why() const;  ///< the reason why a value is undefined
  bool boolean() const { return std::get<bool>(data_); }
  std::int64_t integer() const;  ///< also accepts a boolean
  double real() const;           ///< any number's
  const std::string& string() const { return std::get<TextPtr>(data_)->text; }
  bool is_safe() const { return is_string() && std::get<TextPtr>(data_)->safe; }
  const Sequence& sequence() const { return *std::get<SequencePtr>(data_); }
  const Dict& dict() const { return *std::get<DictPtr>(data_); }
  Object& object() const { return *std::get<Object*>(data_); }
  /// The object as a T, or nullptr for anything else.
  template <class T>
  T* as() const {
    return is(Kind::object) ? dynamic_cast<T*>(&object()) : nullptr;
  }
  /// Whether both are the same object (Python's `is`).
  bool same(const Value& other) const;

  /// A string-keyed member of a dict, or nullptr.
  const Value* member(std::string_view key) const;

 private:
  struct None {
    bool operator==(const None&) const = default;
  };
  using UndefinedPtr = std::shared_ptr<const Undefined>;
  struct Text {
    std::string text;
    bool safe = false;
  };
  using TextPtr = std::shared_ptr<const Text>;
  using SequencePtr = std::shared_ptr<const Sequence>;
  using DictPtr = std::shared_ptr<const Dict>;
  using Data = std::variant<UndefinedPtr, None, bool, std::int64_t, double, TextPtr, SequencePtr, DictPtr, Object*>;

  explicit Value(Data data) : data_(std::move(data)) {}

  Data data_;
};

using Values = std::vector<Value>;
using Members = std::vector<std::pair<Value, Value>>;

/// Converts JSON as Python's json module does.
Value from_json(const tessera::Value& json);

/// Name of Python's type: "str", "NoneType", "dict".
std::string type_name(const Value& value);

/// Python's bool(value).
bool truth(const Value& value);

}  // namespace tessera::text::jinja
