#include <tessera/text/jinja/value.h>

#include <algorithm>

namespace tessera::text::jinja {
namespace {

int depth_of(const Value& value) {
  if (value.is_sequence()) return value.sequence().depth;
  return value.is_dict() ? value.dict().depth : 0;
}

int checked_depth(int inner) {
  if (inner >= Value::max_depth)
    fail("lists and dicts are nested deeper than the limit of ", Value::max_depth, " levels");
  return inner + 1;
}

}  // namespace

Value Value::undefined(std::string why) {
  return Value(Data(std::make_shared<const Undefined>(Undefined{std::move(why)})));
}

Value Value::of(Sequence v) {
  int inner = 0;
  for (const Value& item : v.items) inner = std::max(inner, depth_of(item));
  v.depth = checked_depth(inner);
  return Value(Data(std::make_shared<const Sequence>(std::move(v))));
}

Value Value::of(Dict v) {
  int inner = 0;
  for (const auto& [key, value] : v.members) inner = std::max({inner, depth_of(key), depth_of(value)});
  v.depth = checked_depth(inner);
  return Value(Data(std::make_shared<const Dict>(std::move(v))));
}

const std::string& Value::why() const {
  static const std::string unknown = "the value is undefined";
  const UndefinedPtr& undefined = std::get<UndefinedPtr>(data_);
  return undefined ? undefined->why : unknown;
}

std::int64_t Value::integer() const { return is(Kind::boolean) ? boolean() : std::get<std::int64_t>(data_); }

double Value::real() const { return is(Kind::real) ? std::get<double>(data_) : static_cast<double>(integer()); }

bool Value::same(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::string:
      return string() == other.string();
    case Kind::undefined:
      return std::get<UndefinedPtr>(data_) == std::get<UndefinedPtr>(other.data_);
    default:
      return data_ == other.data_;
  }
}

const Value* Value::member(std::string_view key) const {
  for (const auto& [name, value] : dict().members)
    if (name.is_string() && name.string() == key) return &value;
  return nullptr;
}

Value from_json(const tessera::Value& json) {
  switch (json.kind()) {
    case tessera::Value::Kind::null:
      return Value::none();
    case tessera::Value::Kind::boolean:
      return Value::of(json.as_bool());
    case tessera::Value::Kind::integer:
      return Value::of(json.as_int());
    case tessera::Value::Kind::real:
      return Value::of(json.as_real());
    case tessera::Value::Kind::string:
      return Value::of(json.as_string());
    case tessera::Value::Kind::array: {
      Sequence list;
      for (const tessera::Value& item : json.items()) list.items.push_back(from_json(item));
      return Value::of(std::move(list));
    }
    case tessera::Value::Kind::object: {
      Dict dict;
      for (const auto& [name, value] : json.members()) dict.members.emplace_back(Value::of(name), from_json(value));
      return Value::of(std::move(dict));
    }
  }
  return Value::none();
}

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::undefined:
      return "Undefined";
    case Value::Kind::none:
      return "NoneType";
    case Value::Kind::boolean:
      return "bool";
    case Value::Kind::integer:
      return "int";
    case Value::Kind::real:
      return "float";
    case Value::Kind::string:
      return "str";
    case Value::Kind::dict:
      return "dict";
    case Value::Kind::object:
      return value.object().type();
    case Value::Kind::sequence:
      break;
  }
  switch (value.sequence().kind) {
    case Sequence::Kind::list:
      return "list";
    case Sequence::Kind::tuple:
      return "tuple";
    case Sequence::Kind::range:
      return "range";
    case Sequence::Kind::keys:
      return "dict_keys";
    case Sequence::Kind::values:
      return "dict_values";
    case Sequence::Kind::items:
      return "dict_items";
    case Sequence::Kind::iterator:
      return "generator";
  }
  return "?";
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::undefined:
    case Value::Kind::none:
      return false;
    case Value::Kind::boolean:
    case Value::Kind::integer:
      return value.integer() != 0;
    case Value::Kind::real:
      return value.real() != 0;
    case Value::Kind::string:
      return !value.string().empty();
    case Value::Kind::sequence:
      return value.sequence().kind == Sequence::Kind::iterator || !value.sequence().items.empty();
    case Value::Kind::dict:
      return !value.dict().members.empty();
    case Value::Kind::object:
      return true;
  }
  return false;
}

}  // namespace tessera::text::jinja
