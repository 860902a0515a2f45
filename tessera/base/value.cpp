#include <tessera/base/error.h>
#include <tessera/base/value.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

namespace tessera {

/// Positions of an object's members ordered by name, built on the first look-up in a large object. Positions, not strings, so
/// that a copy of the object may share it.
struct ValueIndex {
  std::vector<std::uint32_t> by_name;
};

namespace {

constexpr std::size_t index_from = 16;  // members; below, a linear look is faster

const char* kind_name(Value::Kind kind) {
  switch (kind) {
    case Value::Kind::null: return "null";
    case Value::Kind::boolean: return "a boolean";
    case Value::Kind::integer: return "an integer";
    case Value::Kind::real: return "a real number";
    case Value::Kind::string: return "a string";
    case Value::Kind::array: return "an array";
    case Value::Kind::object: return "an object";
  }
  return "?";
}

[[noreturn]] void wrong_kind(const Value& value, const char* expected) {
  throw InputError(concat(value.where().str(), ": expected ", expected, ", found ", kind_name(value.kind())));
}

}  // namespace

std::string SourcePos::str() const {
  if (file == nullptr) return "(made by the program)";
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
  constexpr double exact = 9007199254740992.0;  // 2^53: beyond it a double no longer names one integer
  if (kind_ == Kind::real && std::abs(real_) <= exact && std::trunc(real_) == real_) return static_cast<std::int64_t>(real_);
  wrong_kind(*this, "an integer");
}

double Value::as_real() const {
  if (kind_ == Kind::integer) return static_cast<double>(integer_);
  if (kind_ != Kind::real) wrong_kind(*this, "a number");
  return real_;
}

const std::string& Value::as_string() const {
  if (kind_ != Kind::string) wrong_kind(*this, "a string");
  return string_;
}

const std::vector<Value>& Value::items() const {
  if (kind_ != Kind::array) wrong_kind(*this, "an array");
  return items_;
}

const std::vector<Value::Member>& Value::members() const {
  if (kind_ != Kind::object) wrong_kind(*this, "an object");
  return members_;
}

const Value* Value::find(std::string_view key) const {
  const auto& all = members();
  if (all.size() < index_from) {
    for (const Member& member : all)
      if (member.first == key) return &member.second;
    return nullptr;
  }
  if (index_ == nullptr) {
    auto index = std::make_shared<ValueIndex>();
    index->by_name.resize(all.size());
    std::iota(index->by_name.begin(), index->by_name.end(), 0u);
    std::sort(index->by_name.begin(), index->by_name.end(), [&](auto a, auto b) { return all[a].first < all[b].first; });
    index_ = std::move(index);
  }
  const auto& order = index_->by_name;
  const auto found = std::lower_bound(order.begin(), order.end(), key, [&](auto a, std::string_view k) { return all[a].first < k; });
  return found != order.end() && all[*found].first == key ? &all[*found].second : nullptr;
}

const Value& Value::at(std::string_view key) const {
  if (const Value* value = find(key)) return *value;
  std::vector<std::string> names;
  for (const Member& member : members_) names.push_back(member.first);
  const auto near = nearest(key, names);
  throw InputError(concat(pos_.str(), ": the key \"", key, "\" is missing", near ? concat(" (did you mean \"", *near, "\"?)") : ""));
}

void Value::push_back(Value item) {
  if (kind_ != Kind::array) wrong_kind(*this, "an array");
  items_.push_back(std::move(item));
}

void Value::set(std::string key, Value value) {
  if (kind_ != Kind::object) wrong_kind(*this, "an object");
  index_.reset();
  for (Member& member : members_) {
    if (member.first == key) {
      member.second = std::move(value);
      return;
    }
  }
  members_.emplace_back(std::move(key), std::move(value));
}

}  // namespace tessera
