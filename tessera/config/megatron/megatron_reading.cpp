// The arguments as typed, and their problems.
#include <tessera/config/megatron/megatron_reading.h>

#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/run_config.h>

#include <algorithm>
#include <cmath>

namespace tessera::config {

void MegatronArguments::add(const std::string& name, Given given) {
  const auto [before, first] = given_.emplace(name, given);
  if (first || before->second.values == given.values) return;
  const bool typed_over_file = before->second.where.file && !given.where.file;
  if (!typed_over_file)
    note(name, concat("is given twice: ", join(given.values, " "), " is used, not ", join(before->second.values, " ")));
  before->second = std::move(given);
}

const MegatronArguments::Given* MegatronArguments::find(std::string_view name) const {
  const auto found = given_.find(std::string(name));
  return found == given_.end() ? nullptr : &found->second;
}

void MegatronArguments::forget(std::string_view name) { given_.erase(std::string(name)); }

std::optional<std::string> MegatronArguments::text(std::string_view name) {
  const auto found = given_.find(std::string(name));
  if (found == given_.end()) return std::nullopt;
  std::vector<std::string>& values = found->second.values;
  if (values.size() == 1 && !values[0].empty()) return values[0];
  if (values != said_)
    problem(name, values.empty() || values[0].empty() ? "needs a value"
                                                      : concat("must have one value, not ", join(values, " ")));
  values = said_;
  return std::nullopt;
}

std::optional<std::int64_t> MegatronArguments::whole(std::string_view name, std::int64_t least) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const auto number = parse_int(ungrouped(*value));
  if (number && *number >= least && *number <= std::int64_t{1} << 40) return number;
  problem(name, concat("is '", *value, "'; it must be a whole number from ", least));
  given_.at(std::string(name)).values = said_;
  return std::nullopt;
}

std::optional<double> MegatronArguments::real(std::string_view name, double least) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const auto number = parse_real(ungrouped(*value));
  if (number && std::isfinite(*number) && *number >= least) return number;
  problem(name, concat("is '", *value, "'; it must be a number from ", format_real(least)));
  given_.at(std::string(name)).values = said_;
  return std::nullopt;
}

std::optional<std::string> MegatronArguments::word(std::string_view name,
                                                   std::initializer_list<std::string_view> words) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const std::string lower = to_lower(*value);
  if (std::find(words.begin(), words.end(), lower) != words.end()) return lower;
  const std::vector<std::string> all(words.begin(), words.end());
  const auto near = nearest(lower, all);
  problem(name, concat("is '", *value, "'; it must be one of ", join(all),
                       near ? concat(" (did you mean ", *near, "?)") : ""));
  given_.at(std::string(name)).values = said_;
  return std::nullopt;
}

void MegatronArguments::give(std::string_view name, std::string_view setting, const std::string& text) {
  RunConfig scratch;
  const Given& given = *find(name);
  if (const auto wrong = find_field(setting)->set(scratch, text)) {
    problem(name, *wrong, {setting});
    given_.at(std::string(name)).values = said_;
    return;
  }
  to_.give(setting, given.flag, text, given.position());
}

void MegatronArguments::problem(std::string_view name, const std::string& what,
                                std::initializer_list<std::string_view> doubtful) {
  for (const std::string_view setting : doubtful) problems_.doubtful.emplace(setting);
  const KeyRow* row = find_megatron_key(name);
  if (row != nullptr && !row->setting.empty()) problems_.doubtful.emplace(row->setting);
  const Given& given = *find(name);
  problems_.lines.push_back(
      concat(file_and_line(given.position()), given.where.file ? ": " + given.flag : "", " ", what));
}

void MegatronArguments::note(std::string_view name, const std::string& what) {
  const Given& given = *find(name);
  to_.note(given.position(), given.where.file ? concat(given.flag, " ", what) : what);
}

}  // namespace tessera::config
