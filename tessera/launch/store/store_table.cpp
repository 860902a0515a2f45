#include <tessera/launch/store/store_table.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <utility>

namespace tessera::launch {

using wire::Op;
using wire::Status;

namespace {

constexpr std::size_t entry_overhead = 128;  // approximate bytes of a tree node and two strings

/// Number of fields of a request: exactly `count`, or any positive multiple of `count`.
struct Shape {
  std::size_t count;
  bool any_multiple;
};

Shape shape_of(Op op) {
  switch (op) {
    case Op::set:
    case Op::append:
    case Op::will:
      return {2, false};
    case Op::compare_set:
      return {3, false};
    case Op::multi_set:
      return {2, true};
    case Op::get:
    case Op::wait:
    case Op::check:
      return {1, true};
    case Op::num_keys:
      return {0, false};
    case Op::add:
    case Op::erase:
    case Op::list:
      return {1, false};
  }
  return {0, false};
}

bool writes(Op op) {
  return op == Op::set || op == Op::add || op == Op::compare_set || op == Op::append || op == Op::multi_set ||
         op == Op::will;
}

bool is_key(Op op, std::size_t place) {
  if (op == Op::get || op == Op::wait || op == Op::check) return true;
  if (op == Op::multi_set) return place % 2 == 0;
  return place == 0;
}

}  // namespace

StoreAnswer StoreTable::refuse(Status status, std::string why) const {
  StoreAnswer answer;
  answer.status = status;
  answer.fields.push_back(std::move(why));
  return answer;
}

std::optional<StoreAnswer> StoreTable::check_fields(Op op, const Fields& fields, std::size_t others) const {
  const Shape shape = shape_of(op);
  const bool fits =
      shape.any_multiple ? !fields.empty() && fields.size() % shape.count == 0 : fields.size() == shape.count;
  if (!fits) return refuse(Status::bad_request, concat("operation with ", fields.size(), " fields"));
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    bytes += fields[i].size() + entry_overhead / 2;
    const bool key = is_key(op, i);
    const std::size_t limit = key ? limits_.key_bytes : limits_.value_bytes;
    if (fields[i].size() > limit) {
      return refuse(Status::bad_request, concat(key ? "a key" : "a value", " of ", fields[i].size(),
                                                " bytes; the store accepts at most ", limit));
    }
  }
  if (writes(op) && bytes_ + others + bytes > limits_.memory_bytes) {
    return refuse(Status::full,
                  concat("the store contains ", bytes_, " bytes (plus ", others, " in transit), and the limit is ",
                         limits_.memory_bytes, "; there is no room for ", bytes, " more"));
  }
  return std::nullopt;
}

StoreAnswer StoreTable::handle(const wire::Message& request, std::size_t others) {
  if (request.kind == 0 || request.kind > wire::last_op) {
    return refuse(Status::bad_request, concat("operation ", request.kind, " is not known"));
  }
  const Op op = static_cast<Op>(request.kind);
  const Fields& fields = request.fields;
  if (auto refusal = check_fields(op, fields, others)) return std::move(*refusal);
  StoreAnswer answer;
  switch (op) {
    case Op::set:
      put(fields[0], std::string(fields[1]), answer);
      break;
    case Op::get:
      return get_all(fields, true);
    case Op::wait:
      return get_all(fields, false);
    case Op::will:
      break;  // stored with the connection (store_server.cpp)
    case Op::check:
      answer.number =
          std::all_of(fields.begin(), fields.end(), [&](std::string_view key) { return values_.contains(key); });
      break;
    case Op::add:
      return add(fields[0], request.number);
    case Op::compare_set:
      return compare_set(fields);
    case Op::erase:
      answer.number = erase(fields[0]);
      break;
    case Op::num_keys:
      answer.number = static_cast<std::int64_t>(values_.size());
      break;
    case Op::append: {
      std::string value = get(fields[0]).value_or("");
      if (value.size() + fields[1].size() > limits_.value_bytes) {
        return refuse(Status::bad_request,
                      concat("appending to '", fields[0], "' results in a value of ", value.size() + fields[1].size(),
                             " bytes; the store accepts at most ", limits_.value_bytes));
      }
      value.append(fields[1]);
      put(fields[0], std::move(value), answer);
      break;
    }
    case Op::multi_set:
      for (std::size_t i = 0; i < fields.size(); i += 2) put(fields[i], std::string(fields[i + 1]), answer);
      break;
    case Op::list: {
      answer.fields = list(fields[0]);
      std::size_t bytes = 0;
      for (const std::string& key : answer.fields) bytes += key.size() + 4;
      if (bytes > limits_.value_bytes) {
        return refuse(Status::full, concat(answer.fields.size(), " keys start with '", fields[0], "', ", bytes,
                                           " bytes of names in total; use a longer prefix"));
      }
      break;
    }
  }
  return answer;
}

void StoreTable::put(std::string_view key, std::string value, StoreAnswer& answer) {
  const auto found = values_.find(key);
  if (found == values_.end()) {
    bytes_ += key.size() + value.size() + entry_overhead;
    values_.emplace(std::string(key), std::move(value));
  } else {
    bytes_ += value.size();
    bytes_ -= found->second.size();
    found->second = std::move(value);
  }
  answer.touched.emplace_back(key);
}

StoreAnswer StoreTable::get_all(const Fields& keys, bool values) const {
  StoreAnswer answer;
  std::size_t bytes = 0;
  for (const std::string_view key : keys) {
    const auto found = values_.find(key);
    const bool there = found != values_.end();
    if (there && values && answer.blocked_on.empty()) {
      bytes += found->second.size();
      if (bytes > limits_.value_bytes + limits_.key_bytes) {
        return refuse(Status::full, concat("the values of ", keys.size(), " keys exceed ", limits_.value_bytes,
                                           " bytes in total; request fewer at a time"));
      }
      answer.fields.push_back(found->second);
    }
    if (there) continue;
    if (answer.blocked_on.empty()) {
      answer.status = Status::timeout;
      answer.blocked_on = std::string(key);
      answer.fields.clear();
    }
    answer.fields.emplace_back(key);
  }
  return answer;
}

StoreAnswer StoreTable::add(std::string_view key, std::int64_t delta) {
  StoreAnswer answer;
  const auto found = values_.find(key);
  if (found != values_.end()) {
    const auto present = parse_int(found->second);
    if (!present) return refuse(Status::bad_request, concat("add to '", key, "', whose value is not a number"));
    answer.number = *present;
  }
  if (__builtin_add_overflow(answer.number, delta, &answer.number)) {
    return refuse(Status::bad_request, concat("add to '", key, "' exceeds the range of 64-bit integers"));
  }
  put(key, std::to_string(answer.number), answer);
  return answer;
}

StoreAnswer StoreTable::compare_set(const Fields& fields) {
  StoreAnswer answer;
  const std::string_view expected = fields[1], desired = fields[2];
  const auto found = values_.find(fields[0]);
  const bool absent = found == values_.end();
  if (absent ? expected.empty() : found->second == expected) {
    put(fields[0], std::string(desired), answer);
    answer.fields.emplace_back(desired);
  } else {
    answer.fields.emplace_back(absent ? std::string(expected) : found->second);
  }
  return answer;
}

std::optional<std::string> StoreTable::get(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> StoreTable::list(std::string_view prefix) const {
  std::vector<std::string> keys;
  for (auto i = values_.lower_bound(prefix); i != values_.end() && i->first.starts_with(prefix); ++i)
    keys.push_back(i->first);
  return keys;
}

bool StoreTable::erase(std::string_view key) {
  const auto value = values_.find(key);
  if (value == values_.end()) return false;
  bytes_ -= key.size() + value->second.size() + entry_overhead;
  values_.erase(value);
  return true;
}

void StoreTable::erase_prefix(std::string_view prefix) {
  for (const std::string& key : list(prefix)) erase(key);
}

}  // namespace tessera::launch
