#include <tessera/config/core/translation.h>

#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/resolved.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace tessera::config {
namespace {

bool is_whole(double value) {
  return value >= 0 && value < 9e15 && value == static_cast<double>(static_cast<std::int64_t>(value));
}

bool takes_integer(const Field& field) { return std::holds_alternative<std::int64_t& (*)(RunConfig&)>(field.access); }

/// The key relative to its section: "zero_optimization.stage" below "zero_optimization" is "stage".
std::string_view below(std::string_view section, std::string_view key) {
  if (section.empty()) return key.find('.') == std::string_view::npos ? key : std::string_view{};
  if (key.size() <= section.size() + 1 || !key.starts_with(section) || key[section.size()] != '.') return {};
  key.remove_prefix(section.size() + 1);
  return key.find('.') == std::string_view::npos ? key : std::string_view{};
}

}  // namespace

std::string file_and_line(const SourcePos& where) { return Origin::at(where).str(); }

std::optional<std::string> look_up(const GetEnvironment& environment, const std::string& variable) {
  if (environment) return environment(variable);
  const char* text = std::getenv(variable.c_str());
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

SourcePos environment_position(const std::string& variable) {
  return {std::make_shared<const std::string>(variable), 0, 0, SourcePos::Kind::environment};
}

std::vector<FileWord> typed_words(const std::vector<std::string>& words) {
  std::vector<FileWord> out;
  for (const std::string& word : words) out.push_back({word, {}});
  return out;
}

SourcePos flag_position(const std::string& flag) {
  return {std::make_shared<const std::string>(flag), 0, 0, SourcePos::Kind::flag};
}

std::optional<std::string> as_text(const Value& value, bool integer) {
  switch (value.kind()) {
    case Value::Kind::boolean:
      return value.as_bool() ? "true" : "false";
    case Value::Kind::integer:
      return std::to_string(value.as_int());
    case Value::Kind::real:
      if (integer && is_whole(value.as_real())) return std::to_string(static_cast<std::int64_t>(value.as_real()));
      return format_real(value.as_real());
    case Value::Kind::string: {
      const std::string text = trim(value.as_string());
      if (const auto real = parse_real(text); integer && real && is_whole(*real))
        return std::to_string(static_cast<std::int64_t>(*real));
      return text;
    }
    case Value::Kind::array: {
      std::vector<std::string> words;
      for (const Value& item : value.items()) {
        if (!item.is_string()) return std::nullopt;
        words.push_back(trim(item.as_string()));
      }
      return join(words, ",");
    }
    default:
      return std::nullopt;
  }
}

bool means_no(const Value& value) {
  const auto text = as_text(value, false);
  return text && !value.is_array() && parse_bool(*text) == false;
}

bool means_nothing(const Value& value) {
  if (value.is_null()) return true;
  if (!value.is_string()) return false;
  const std::string word = to_lower(trim(value.as_string()));
  return word.empty() || word == "none" || word == "null";
}

void Translator::give(std::string_view setting, const std::string& key, const Value& value) {
  const Field* field = find_field(setting);
  const auto text = as_text(value, takes_integer(*field));
  if (!text)
    return problem(value.where(),
                   concat(key, " takes ", field->rule.words.empty() ? field->placeholder() : field->rule.describe(),
                          ", not an object or a list with anything but words"),
                   {setting});
  give(setting, key, *text, value.where());
}

void Translator::give(std::string_view setting, const std::string& key, const std::string& text,
                      const SourcePos& where) {
  RunConfig first, second;  // compare the meaning of the two spellings
  const Field* field = find_field(setting);
  if (const auto wrong = field->set(second, text)) return problem(where, concat(key, " ", *wrong), {setting});
  for (const FileSetting& before : out_.settings) {
    if (before.name != setting) continue;
    field->set(first, before.text);
    if (dump_json(field->get(first)) == dump_json(field->get(second))) return;
    return problem(where,
                   concat(key, " ", text, " contradicts ", before.key, " ", before.text,
                          before.where.line == 0 ? concat(" (", file_and_line(before.where), ")")
                                                 : concat(" on line ", before.where.line),
                          "; keep one of them"),
                   {setting});
  }
  out_.settings.push_back({.name = std::string(setting), .text = text, .key = key, .where = where});
}

void Translator::let_win(std::string_view setting) {
  for (FileSetting& given : out_.settings)
    if (given.name == setting) given.wins = true;
}

std::optional<std::string> Translator::given(std::string_view setting) const {
  for (const FileSetting& before : out_.settings)
    if (before.name == setting) return before.text;
  return std::nullopt;
}

void Translator::problem(const SourcePos& where, const std::string& what,
                         std::initializer_list<std::string_view> doubtful) {
  for (const std::string_view setting : doubtful) problems_.doubtful.emplace(setting);
  problems_.lines.push_back(concat(where.line == 0 ? file_and_line(where) : where.str(), ": ", what));
}

void Translator::ignored(const Value& value, const std::string& key, std::string_view why) {
  note(value.where(), concat(key, " has no effect: ", why));
}

void Translator::note(const SourcePos& where, const std::string& what) {
  out_.notes.push_back(concat(file_and_line(where), ": ", what));
}

void Translator::unknown(const std::string& key, const Value& value, std::span<const KeyRow> rows,
                         std::string_view section) {
  std::vector<std::string> names;
  for (const KeyRow& row : rows)
    if (const std::string_view name = below(section, row.key); !name.empty()) names.emplace_back(name);
  const auto near = nearest(key, names);
  if (near)
    if (const KeyRow* row = find(rows, section, *near); !row->setting.empty()) problems_.doubtful.emplace(row->setting);
  problem(value.where(), concat("unknown key ", key,
                                near ? concat("; did you mean ", *near, "?") : concat("; the keys are ", join(names))));
}

const KeyRow* Translator::find(std::span<const KeyRow> rows, std::string_view section, std::string_view key) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const KeyRow& row) { return below(section, row.key) == key; });
  return found == rows.end() ? nullptr : &*found;
}

void Translator::follow(const KeyRow& row, const std::string& key, const Value& value) {
  if (value.is_null()) return;
  if (row.effect == Effect::ignored) return ignored(value, key, row.why);
  if (row.effect == Effect::refused) return problem(value.where(), concat(key, ": ", row.why));
  give(row.setting, key, value);
}

void apply(Translation translation, Resolved& resolved) {
  for (std::string& note : translation.notes) resolved.notes.push_back(std::move(note));
  const auto stronger = static_cast<std::ptrdiff_t>(resolved.implied.size());
  for (Implied& implied : translation.implied)
    if (std::none_of(resolved.implied.begin(), resolved.implied.begin() + stronger,
                     [&](const Implied& before) { return before.argument == implied.argument; }))
      resolved.implied.push_back(std::move(implied));
  for (const FileSetting& setting : translation.settings) {
    const auto implied = std::find_if(resolved.implied.begin(), resolved.implied.end(), [&](const Implied& taken) {
      return taken.taken && taken.setting == setting.name;
    });
    if (implied != resolved.implied.end())
      implied->taken = false;  // explicit settings replace implied ones
    else if (!resolved.is_default(setting.name) && !setting.wins)
      continue;
    find_field(setting.name)->set(resolved.values, setting.text);
    resolved.origins[setting.name] = Origin::at(setting.where);
  }
}

}  // namespace tessera::config
