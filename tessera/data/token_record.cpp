#include <tessera/data/token_record.h>

#include <algorithm>
#include <limits>
#include <string>

#include <tessera/base/error.h>
#include <tessera/corpus/left_out.h>

namespace tessera::data {
namespace {

constexpr const char* ids_name = "input_ids";
constexpr std::int64_t not_scored_label = -100;

/// The list with this name, checked to have `size` items; nullptr if absent.
const std::vector<Value>* list_of(const Value& record, const char* name, std::size_t size) {
  const Value* found = record.find(name);
  if (found == nullptr) return nullptr;
  const std::vector<Value>& items = found->items();
  if (items.size() != size)
    throw InputError(concat(found->where().str(), ": \"", name, "\" has ", items.size(), " items, but \"", ids_name,
                            "\" has ", size, ": they need one item per token"));
  return &items;
}

bool is_set(const Value& item) { return item.kind() == Value::Kind::boolean ? item.as_bool() : item.as_int() != 0; }

/// The range [begin, end) of tokens that are not padding.
std::pair<std::size_t, std::size_t> attended(const Value& record, std::size_t size) {
  const std::vector<Value>* mask = list_of(record, "attention_mask", size);
  if (mask == nullptr) return {0, size};
  const auto first = std::find_if(mask->begin(), mask->end(), is_set);
  const auto last = std::find_if(mask->rbegin(), mask->rend(), is_set).base();
  if (first >= last) return {0, 0};
  if (!std::all_of(first, last, is_set))
    throw InputError(concat(record.at("attention_mask").where().str(),
                            ": \"attention_mask\" masks tokens in the middle; padding must be at the ends"));
  return {static_cast<std::size_t>(first - mask->begin()), static_cast<std::size_t>(last - mask->begin())};
}

}  // namespace

bool has_labels(const Value& record) {
  return record.contains("labels") || record.contains("completion_mask") || record.contains("assistant_masks");
}

TokenRecord read_token_record(const Value& record, bool completion_only) {
  const Value& list = record.at(ids_name);
  const std::vector<Value>& ids = list.items();
  const auto [begin, end] = attended(record, ids.size());
  if (begin == end) throw corpus::LeftOut(concat("\"", ids_name, "\" is empty"));
  const std::vector<Value>* labels = list_of(record, "labels", ids.size());
  const std::vector<Value>* masks[] = {list_of(record, "assistant_masks", ids.size()),
                                       completion_only ? list_of(record, "completion_mask", ids.size()) : nullptr};
  TokenRecord out;
  for (std::size_t i = begin; i < end; ++i) {
    const std::int64_t id = ids[i].as_int();
    if (id < 0 || id > std::numeric_limits<std::int32_t>::max())
      throw InputError(
          concat(list.where().str(), ": \"", ids_name, "\" has ", id, " at ", i, ", which is not a token id"));
    const std::int64_t label = labels == nullptr ? id : (*labels)[i].as_int();
    if (label != id && label != not_scored_label)
      throw InputError(concat(record.at("labels").where().str(), ": \"labels\" has ", label, " at ", i,
                              ", where the token is ", id, ": a label must be its token, or ", not_scored_label,
                              " where it is not scored"));
    bool scored = label == id;
    for (const std::vector<Value>* mask : masks) scored &= mask == nullptr || is_set((*mask)[i]);
    out.ids.push_back(static_cast<std::int32_t>(id));
    out.scored.push_back(scored);
  }
  return out;
}

}  // namespace tessera::data
