#include <tessera/config/resolve/flag_reader.h>

#include <tessera/config/hf/unknown_words.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/corpus/data_list.h>

#include <algorithm>

namespace tessera::config {
namespace {

constexpr std::size_t kMostUnknown = 20;    // number of unknown flags that are reported
constexpr std::size_t kMostLookedUp = 200;  // number of unknown flags that are compared with the known ones

std::string underscored(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

/// "x_y" for --x-y and --no_x_y, which name the same argument.
std::string argument_of(const std::string& flag) {
  const std::string name = underscored(flag.substr(2));
  return name.starts_with("no_") ? name.substr(3) : name;
}

/// Whether an argument is a flag rather than a value: negative numbers are values.
bool looks_like_flag(const std::string& argument) { return argument.size() > 2 && argument.starts_with("--"); }

bool names_file_of_arguments(const std::string& word) {
  const std::string lower = to_lower(word);
  return lower.ends_with(".json") || lower.ends_with(".yaml") || lower.ends_with(".yml") || lower.ends_with(".args");
}

bool is_json(const std::string& word) { return to_lower(word).ends_with(".json"); }

const Field* field_of(std::string name) {
  for (const auto& [alias, ours] : aliases())
    if (name == alias) name = ours;
  return find_field(name);
}

/// The argument or setting that "--name" spells, or the boolean that "--no_name" turns off.
struct Match {
  const TrainingArgument* argument = nullptr;
  const Field* field = nullptr;
  bool negated = false;
};

Match match(const std::string& name) {
  if (name.find('.') != std::string::npos) return {};
  if (const TrainingArgument* argument = find_training_argument(name))
    return {argument, find_field(argument->row.setting), false};
  if (const Field* field = field_of(name)) return {nullptr, field, false};
  if (!name.starts_with("no_")) return {};
  const Match positive = match(name.substr(3));
  const bool boolean = positive.argument != nullptr ? positive.argument->shape == ArgumentShape::boolean
                                                    : positive.field != nullptr && positive.field->is_boolean();
  return boolean && !positive.negated ? Match{positive.argument, positive.field, true} : Match{};
}

bool is_boolean(const Match& match) {
  return match.argument != nullptr ? match.argument->shape == ArgumentShape::boolean : match.field->is_boolean();
}

}  // namespace

void FlagReader::read(std::vector<FileWord> given) {
  read_words(std::move(given));
  for (const auto& [setting, flag] : given_) typed_settings_.insert(setting);
  typed_names_ = std::move(names_);
  given_.clear();
  names_.clear();
  const std::string& file = resolved_.values.files.args_file;
  if (to_lower(file).ends_with(".args") && !problems_.doubtful.contains("args_file"))
    read_words(read_file_words(file, problems_));
  finish();
}

void FlagReader::read_words(std::vector<FileWord> words) {
  words_ = std::move(words);
  next_ = 0;
  look_ahead();
  while (next_ < words_.size()) read_one();
  if (unknown_ > kMostUnknown) problems_.lines.push_back(concat(unknown_ - kMostUnknown, " more unknown flags"));
  unknown_ = 0;
}

void FlagReader::look_ahead() {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    const std::string& word = words_[i].text;
    if (!looks_like_flag(word)) continue;
    const std::size_t equals = word.find('=');
    const std::string name = underscored(word.substr(2, equals == std::string::npos ? equals : equals - 2));
    if (name == "unknown") {
      const std::string value = equals != std::string::npos ? word.substr(equals + 1)
                                : i + 1 < words_.size()     ? words_[i + 1].text
                                                            : "";
      passes_over_ = to_lower(value) == "warn";
      strict_ = to_lower(value) == "refuse";
    } else if (name == "strict") {
      const bool with_value = equals == std::string::npos && i + 1 < words_.size();
      const std::string value =
          equals != std::string::npos ? word.substr(equals + 1) : words_[with_value ? i + 1 : i].text;
      strict_ = parse_bool(value) != false;
    } else if (const Match found = match(name);
               found.argument == nullptr && found.field == nullptr && !completed(name)) {
      names.push_back(word.substr(0, equals));
      names.back().erase(0, 2);
    }
  }
  const auto foreign = foreign_words(names);
  foreign_ = foreign.has_value();
  if (!foreign) return;
  const SourcePos& where = words_.front().where;
  problems_.foreign.push_back(
      concat(where.file ? *where.file + ": " : "", "--", join(foreign->names, ", --"), ": ", foreign->why));
}

std::string FlagReader::said(const std::string& flag) const {
  return where_.file ? concat(file_and_line(where_), ": ", flag) : flag;
}

bool FlagReader::value_follows() const { return next_ < words_.size() && !looks_like_flag(words_[next_].text); }

void FlagReader::positional(const FileWord& word) {
  if (!where_.file && names_file_of_arguments(word.text)) {
    if (const auto before = given_.find("args_file"); before != given_.end() && before->second.second != word.text)
      return problem(concat("unexpected argument '", word.text, "'"), ": ", before->second.second,
                     " already contains the arguments");
    return store("args_file", word.text, word.text);
  }
  problem(concat("unexpected argument '", word.text, "'"), ": write settings as --name value");
}

void FlagReader::read_one() {
  const FileWord word = words_[next_++];
  where_ = word.where;
  if (!looks_like_flag(word.text)) return positional(word);
  const std::size_t equals = word.text.find('=');
  const std::string flag = word.text.substr(0, equals), name = underscored(flag.substr(2));
  const bool has_text = equals != std::string::npos;
  std::string text = has_text ? word.text.substr(equals + 1) : std::string();

  Match found = match(name);
  if (found.argument == nullptr && found.field == nullptr) {
    const auto whole = strict_ ? std::nullopt : completed(name);
    if (!whole) return unknown(flag, has_text);
    resolved_.notes.push_back(
        concat(said(flag), " is interpreted as --", *whole, ", the only argument with this prefix"));
    found = match(*whole);
  }
  names_.insert(name);
  if (found.negated && has_text)
    return problem(flag, " takes no value; write --",
                   found.argument != nullptr ? found.argument->row.key : found.field->name, "=", text);
  if (found.negated)
    text = "false";
  else if (!has_text && !take_value(flag, found.argument, found.field, text))
    return;
  if (where_.file && typed_names_.contains(name)) return;  // the typed one takes precedence
  if (text.empty() && found.field != nullptr && name != "fsdp") {
    problems_.doubtful.emplace(found.field->name);
    return problem(flag, " has an empty value; remove the flag to keep the default");
  }
  if (found.argument != nullptr)
    follow(*found.argument, flag, text);
  else
    store(found.field->name, flag, text);
}

bool FlagReader::take_value(const std::string& flag, const TrainingArgument* argument, const Field* field,
                            std::string& text) {
  const std::string_view name = argument != nullptr ? argument->row.key : field->name;
  if (is_boolean({argument, field, false})) {
    text = value_follows() && parse_bool(words_[next_].text) ? words_[next_++].text : "true";
    return true;
  }
  if (value_follows() && !(name == "fsdp" && names_file_of_arguments(words_[next_].text))) {
    text = words_[next_++].text;
    const bool files = field != nullptr && (field->name == "train_file" || field->name == "validation_file");
    const bool of_json = files && is_json(text);
    // a .json ends a list, since it is a file of arguments, unless the list contains .json files
    const auto one_more = [&] {
      return value_follows() &&
             (!names_file_of_arguments(words_[next_].text) || (of_json && is_json(words_[next_].text)));
    };
    if (files && argument != nullptr && one_more()) text = corpus::quoted(text);
    while (argument != nullptr && argument->shape == ArgumentShape::words && one_more()) {
      const std::string& word = words_[next_++].text;
      text += " " + (files ? corpus::quoted(word) : word);  // --fsdp full_shard auto_wrap
    }
    return true;
  }
  RunConfig scratch;
  const bool may_be_boolean = field != nullptr && !field->rule.words.empty() && !field->set(scratch, "true");
  if (name == "fsdp" || may_be_boolean) {  // boolean in some version of transformers
    text = "true";
    return true;
  }
  if (argument != nullptr && field == nullptr) return true;  // ignored or refused, regardless of its value
  if (name == "deepspeed") {
    bare_deepspeed_ = said(flag);
    return false;
  }
  problems_.doubtful.emplace(field->name);
  problem(flag, " needs a value (", field->placeholder(), ")");
  return false;
}

void FlagReader::follow(const TrainingArgument& argument, const std::string& flag, const std::string& text) {
  const ArgumentMeaning meaning =
      meaning_of(argument, argument.row.effect != Effect::acts && text.empty() ? "true" : text);
  const std::string label = where_.file ? concat(flag, " (", file_and_line(where_), ")") : flag;
  for (const auto& [what, why] : meaning.without_effect)
    without_effect_.push_back({what.empty() ? label : concat(label, " ", what), why});
  if (!meaning.problem.empty()) {
    if (!argument.row.setting.empty()) problems_.doubtful.emplace(argument.row.setting);
    return problem(flag, meaning.problem);
  }
  for (const auto& [setting, given] : meaning.settings) store(setting, flag, given);
  const auto same = [&](const Implied& implied) { return implied.argument == argument.row.key; };
  if (where_.file && std::any_of(resolved_.implied.begin(), resolved_.implied.end(),
                                 [&](const Implied& implied) { return same(implied) && implied.origin.is_flag(); }))
    return;                                // the typed one takes precedence
  std::erase_if(resolved_.implied, same);  // as in argparse, the last one wins
  for (Implied& implied : implied_by(argument, meaning, flag, where_.file ? Origin::at(where_) : Origin::flag(flag)))
    resolved_.implied.push_back(std::move(implied));
}

std::optional<std::string> FlagReader::meant(const std::string& name) const { return meant_by(name, beside_megatron_); }

void FlagReader::unknown(const std::string& flag, bool has_value) {
  if (!has_value && value_follows()) ++next_;  // skip its value, so that it is not reported as well
  const std::string name = underscored(flag.substr(2));
  const bool passed =
      passes_over_ && looked_up_ < kMostLookedUp && !concerns_training(name) && ++looked_up_ && !meant(name);
  while ((passed || foreign_) && !has_value && value_follows() && !names_file_of_arguments(words_[next_].text)) ++next_;
  if (passed) return passed_over_.push_back(said(flag));
  if (foreign_ || ++unknown_ > kMostUnknown) return;
  const auto near = meant(name);
  if (near)
    if (const Match found = match(*near); found.field != nullptr) problems_.doubtful.emplace(found.field->name);
  problem(name.size() > 64 ? concat("unknown flag ", flag.substr(0, 66), "...") : concat("unknown flag ", flag),
          near ? concat("; did you mean --", *near, "?")
               : concat("; tessera train --help lists all flags",
                        concerns_training(name) ? "" : ", and --unknown warn ignores other programs' flags"));
}

void FlagReader::store(std::string_view setting, const std::string& flag, const std::string& text) {
  const std::string name(setting);
  const Field* field = find_field(name);
  const auto [first, is_first] = given_.emplace(name, std::pair(flag, text));
  if (!is_first) {
    const auto& [before, text_before] = first->second;
    if (text_before == text) return;
    if (argument_of(before) != argument_of(flag)) {
      problem(flag, " ", text, " contradicts ", before, " ", text_before, ", given earlier; keep one of them");
      problems_.doubtful.insert(name);
      return;
    }
    const bool typed_over_file = !where_.file && resolved_.origin(name).kind == Origin::Kind::file;
    if (!typed_over_file)
      resolved_.notes.push_back(concat(said(flag), " is given twice: ", text, " is used, not ", text_before));
    first->second.second = text;  // as in argparse, the last one wins
  }
  RunConfig scratch;
  const bool beaten = where_.file && typed_settings_.contains(name);
  if (const auto wrong = field->set(beaten ? scratch : resolved_.values, text)) {
    problem(flag, " ", *wrong);
    problems_.doubtful.insert(name);
    return;
  }
  if (!beaten) resolved_.origins[name] = where_.file ? Origin::at(where_) : Origin::flag(flag);
}

void FlagReader::finish() {
  const auto named = [&](const char* name) { return typed_names_.contains(name) || names_.contains(name); };
  if (resolved_.values.output.do_eval && resolved_.origin("do_eval").is_given() && named("do_eval") &&
      !named("do_train"))
    resolved_.notes.push_back(
        "--do_eval without --do_train only evaluates in transformers' scripts; tessera train always trains, then "
        "evaluates");
  if (!bare_deepspeed_.empty() && resolved_.values.files.deepspeed.empty()) {
    problems_.doubtful.insert("deepspeed");
    problems_.lines.push_back(concat(bare_deepspeed_, " needs a value (", find_field("deepspeed")->placeholder(), ")"));
  }
  if (const std::string note = without_effect_note(without_effect_); !note.empty()) resolved_.notes.push_back(note);
  if (const std::string note = passed_over_note(passed_over_); !note.empty()) resolved_.notes.push_back(note);
}

}  // namespace tessera::config
