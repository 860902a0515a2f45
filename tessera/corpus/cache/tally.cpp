#include <tessera/corpus/cache/tally.h>

#include <algorithm>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::corpus {
namespace {

void add_findings(Findings& to, const Findings& next) {
  for (const auto& [said, finding] : next) {
    Finding& known = to[said];
    if (known.count == 0) known.place = finding.place;
    known.count += finding.count;
  }
}

Value findings_json(const Findings& findings) {
  std::vector<Value::Member> members;
  for (const auto& [said, finding] : findings)
    members.emplace_back(said, Value::make_array({Value::of(finding.count), Value::of(finding.place)}));
  return Value::make_object(std::move(members));
}

/// Reads findings; entries made by earlier versions have none.
Findings findings_from_json(const Value& tally, const char* name) {
  Findings findings;
  const Value* value = tally.find(name);
  if (value == nullptr) return findings;
  for (const auto& [said, finding] : value->members()) {
    if (finding.items().size() != 2)
      throw InputError(concat(finding.where().str(), ": a finding must have two values"));
    findings[said] = {finding.items()[0].as_int(), finding.items()[1].as_string()};
  }
  return findings;
}

}  // namespace

void Tally::add(const EncodedRecord& record) {
  tokens += static_cast<std::int64_t>(record.ids.size());
  longest = std::max(longest, static_cast<std::int64_t>(record.ids.size()));
  for (const std::int32_t id : record.ids) largest_id = std::max<std::int64_t>(largest_id, id);
  if (!record.scored.empty()) scored += std::count(record.scored.begin() + 1, record.scored.end(), true);
  cut += record.cut;
}

void Tally::add(const Tally& next) {
  tokens += next.tokens;
  records += next.records;
  scored += next.scored;
  cut += next.cut;
  dropped += next.dropped;
  longest = std::max(longest, next.longest);
  largest_id = std::max(largest_id, next.largest_id);
  text_bytes += next.text_bytes;
  text_tokens += next.text_tokens;
  ill_formed |= next.ill_formed;
  if (kind.empty()) {
    kind = next.kind;
    kind_place = next.kind_place;
  }
  unused_fields.insert(next.unused_fields.begin(), next.unused_fields.end());
  add_findings(left_out, next.left_out);
  add_findings(remarks, next.remarks);
}

std::int64_t Tally::all_left_out() const {
  std::int64_t all = 0;
  for (const auto& [said, finding] : left_out) all += finding.count;
  return all;
}

Value to_json(const Tally& tally) {
  std::vector<Value> unused;
  for (const std::string& name : tally.unused_fields) unused.push_back(Value::of(name));
  return Value::make_object({{"tokens", Value::of(tally.tokens)},
                             {"records", Value::of(tally.records)},
                             {"scored", Value::of(tally.scored)},
                             {"cut", Value::of(tally.cut)},
                             {"dropped", Value::of(tally.dropped)},
                             {"longest", Value::of(tally.longest)},
                             {"largest_id", Value::of(tally.largest_id)},
                             {"text_bytes", Value::of(static_cast<std::int64_t>(tally.text_bytes))},
                             {"text_tokens", Value::of(static_cast<std::int64_t>(tally.text_tokens))},
                             {"ill_formed", Value::of(tally.ill_formed)},
                             {"kind", Value::of(tally.kind)},
                             {"kind_place", Value::of(tally.kind_place)},
                             {"unused_fields", Value::make_array(std::move(unused))},
                             {"left_out", findings_json(tally.left_out)},
                             {"remarks", findings_json(tally.remarks)}});
}

Tally tally_from_json(const Value& value) {
  Tally tally;
  tally.tokens = value.at("tokens").as_int();
  tally.records = value.at("records").as_int();
  tally.scored = value.at("scored").as_int();
  tally.cut = value.at("cut").as_int();
  tally.dropped = value.at("dropped").as_int();
  tally.longest = value.at("longest").as_int();
  tally.largest_id = value.at("largest_id").as_int();
  tally.text_bytes = static_cast<std::uint64_t>(value.at("text_bytes").as_int());
  tally.text_tokens = static_cast<std::uint64_t>(value.at("text_tokens").as_int());
  tally.ill_formed = value.at("ill_formed").as_bool();
  tally.kind = value.at("kind").as_string();
  tally.kind_place = value.at("kind_place").as_string();
  for (const Value& name : value.at("unused_fields").items()) tally.unused_fields.insert(name.as_string());
  tally.left_out = findings_from_json(value, "left_out");
  tally.remarks = findings_from_json(value, "remarks");
  return tally;
}

std::string mixed_kinds(const std::string& place, const std::string& kind, const Tally& before) {
  return concat(place, ": contains ", kind, ", but ", before.kind_place, " contains ", before.kind,
                ": all examples of a file must be of one kind");
}

}  // namespace tessera::corpus
