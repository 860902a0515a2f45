#include <tessera/base/error.h>
#include <tessera/base/file_part.h>
#include <tessera/base/value.h>

#include <bit>
#include <cmath>
#include <functional>
#include <utility>

namespace tessera {

/// An open-addressing hash table over the names of a large object: slots hold member positions + 1, 0 = free.
/// Positions, not strings, so that a copy of the object may share it.
struct ValueIndex {
  std::vector<std::uint32_t> slots;

  explicit ValueIndex(const std::vector<Value::Member>& members) : slots(std::bit_ceil(4 * members.size())) {
    for (std::uint32_t i = 0; i < members.size(); ++i) add(members, i);
  }

  /// The slot that holds `key`, or the free one where it is to be inserted.
  std::uint32_t& slot(const std::vector<Value::Member>& members, std::string_view key) {
    std::size_t at = std::hash<std::string_view>()(key) & (slots.size() - 1);
    while (slots[at] != 0 && members[slots[at] - 1].first != key) at = (at + 1) & (slots.size() - 1);
    return slots[at];
  }

  void add(const std::vector<Value::Member>& members, std::uint32_t i) {
    if (std::uint32_t& here = slot(members, members[i].first); here == 0)
      here = i + 1;  // otherwise a duplicate, and the first one counts
  }
};

namespace {

constexpr std::size_t index_from = 16;  // members; below this, a linear search is faster

const char* kind_name(Value::Kind kind) {
  switch (kind) {
    case Value::Kind::null:
      return "null";
    case Value::Kind::boolean:
      return "a boolean";
    case Value::Kind::integer:
      return "an integer";
    case Value::Kind::real:
      return "a real number";
    case Value::Kind::string:
      return "a string";
    case Value::Kind::array:
      return "an array";
    case Value::Kind::object:
      return "an object";
  }
  return "?";
}

[[noreturn]] void wrong_kind(const Value& value, const char* expected) {
  throw InputError(concat(value.where().str(), ": expected ", expected, ", found ", kind_name(value.kind())));
}

}  // namespace

std::string SourcePos::str() const {
  if (file == nullptr) return "(made by the program)";
  if (kind == Kind::environment) return concat("environment ", *file);
  if (line < 0) return static_cast<const FilePart&>(*file).place(-line, column);
  return line == 0 ? *file : concat(*file, ":", line, ":", column);
}

Value Value::of(bool v) {
  Value value;
  value.kind_ = Kind::boolean;
  value.boolean_ = v;
  return value;
}

Value Value::of(std::int64_t v) {
  Value value;
  value.kind_ = Kind::integer;
  value.integer_ = v;
  return value;
}

Value Value::of(double v) {
  Value value;
  value.kind_ = Kind::real;
  value.real_ = v;
  return value;
}

Value Value::of(std::string v) {
  Value value;
  value.kind_ = Kind::string;
  value.string_ = std::move(v);
  return value;
}

Value Value::make_array(std::vector<Value> items) {
  Value value;
  value.kind_ = Kind::array;
  value.items_ = std::move(items);
  return value;
}

Value Value::make_object(std::vector<Member> members) {
  Value value;
  value.kind_ = Kind::object;
  value.members_ = std::move(members);
  return value;
}

bool Value::as_bool() const {
  if (kind_ != Kind::boolean) wrong_kind(*this, "true or false");
  return boolean_;
}

std::int64_t Value::as_int() const {
  if (kind_ == Kind::integer) return integer_;
  constexpr double exact = 9007199254740992.0;  // 2^53: beyond it a double does not identify one integer
  if (kind_ == Kind::real && std::abs(real_) <= exact && std::trunc(real_) == real_)
    return static_cast<std::int64_t>(real_);
  wrong_kind(*this, "an integer");
}

double Value::as_real() const {
  if (kind_ == Kind::integer) return static_cast<double>(integer_);
  if (kind_ != Kind::real) wrong_kind(*this, "a number");
  return real_;
}

const std::string& Value::as_string() const& {
  if (kind_ != Kind::string) wrong_kind(*this, "a string");
  return string_;
}

const std::vector<Value>& Value::items() const& {
  if (kind_ != Kind::array) wrong_kind(*this, "an array");
  return items_;
}

const std::vector<Value::Member>& Value::members() const& {
  if (kind_ != Kind::object) wrong_kind(*this, "an object");
  return members_;
}

std::optional<std::size_t> Value::position(std::string_view key) const {
  const auto& all = members();
  if (all.size() < index_from) {
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].first == key) return i;
    return std::nullopt;
  }
  if (index_ == nullptr) index_ = std::make_shared<ValueIndex>(all);
  const std::uint32_t found = index_->slot(all, key);
  return found == 0 ? std::nullopt : std::optional<std::size_t>(found - 1);
}

const Value* Value::find(std::string_view key) const& {
  const auto found = position(key);
  return found ? &members_[*found].second : nullptr;
}

std::optional<std::size_t> Value::duplicate() const {
  const auto& all = members();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (position(all[i].first) != i) return i;
  return std::nullopt;
}

const Value& Value::at(std::string_view key) const& {
  if (const Value* value = find(key)) return *value;
  std::vector<std::string> names;
  for (const Member& member : members_) names.push_back(member.first);
  const auto near = nearest(key, names);
  throw InputError(
      concat(pos_.str(), ": the key \"", key, "\" is missing", near ? concat(" (did you mean \"", *near, "\"?)") : ""));
}

std::string Value::as_string() && {
  static_cast<void>(std::as_const(*this).as_string());  // the check
  return std::move(string_);
}

std::vector<Value> Value::items() && {
  static_cast<void>(std::as_const(*this).items());
  return std::move(items_);
}

std::vector<Value::Member> Value::members() && {
  static_cast<void>(std::as_const(*this).members());
  return std::move(members_);
}

Value Value::at(std::string_view key) && {
  static_cast<void>(std::as_const(*this).at(key));  // throws if the key is missing
  return std::move(members_[*position(key)].second);
}

void Value::push_back(Value item) {
  if (kind_ != Kind::array) wrong_kind(*this, "an array");
  items_.push_back(std::move(item));
}

void Value::set(std::string key, Value value) {
  if (kind_ != Kind::object) wrong_kind(*this, "an object");
  if (const auto found = position(key)) {
    members_[*found].second = std::move(value);
    return;
  }
  members_.emplace_back(std::move(key), std::move(value));
  if (index_ == nullptr) return;
  if (index_.use_count() > 1 || index_->slots.size() < 2 * members_.size()) {
    index_.reset();  // shared with a copy, or too full: rebuilt by the next look-up
  } else {
    index_->add(members_, static_cast<std::uint32_t>(members_.size() - 1));
  }
}

}  // namespace tessera
