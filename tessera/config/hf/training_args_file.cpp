// TrainingArguments in a file.

#include <tessera/base/byte_order_mark.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/yaml.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/resolved.h>
#include <tessera/config/hf/fsdp_config.h>
#include <tessera/config/hf/training_args.h>
#include <tessera/config/hf/unknown_words.h>

#include <algorithm>

namespace tessera::config {
namespace {

constexpr std::uint64_t kMostBytes =
    256 << 10;  // settings files are smaller; larger (hostile) ones are refused before parsing
constexpr std::size_t kMostProblems = 20;    // reported per file
constexpr std::size_t kMostLookedUp = 200;   // unknown arguments that are compared with the known ones
constexpr std::size_t kMostText = 64 << 10;  // bytes of a value that is not an object; chat templates have thousands

using Strings = std::vector<std::string>;

std::string underscored(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

class FileReader {
 public:
  FileReader(const std::string& path, const Resolved& so_far, Problems& problems)
      : path_(path), so_far_(so_far), problems_(problems), before_(problems.lines.size()), to_(problems) {}

  void read(const std::vector<FileArgument>& arguments) {
    look_ahead(arguments);
    std::size_t left = arguments.size();
    for (const auto& [key, value] : arguments) {
      if (problems_.lines.size() - before_ >= kMostProblems) {
        problems_.lines.push_back(
            concat(path_, ": ", left, left == 1 ? " more argument was" : " more arguments were", " not checked"));
        break;
      }
      --left;
      read_one(key, value);
    }
    settle_fsdp();
  }

  Translation take() {
    Translation all = to_.take();
    for (FileSetting& setting : fsdp_.settings) {
      const bool given = std::any_of(all.settings.begin(), all.settings.end(),
                                     [&](const FileSetting& other) { return other.name == setting.name; });
      if (!given) all.settings.push_back(std::move(setting));
    }
    for (std::string& note : fsdp_.notes) all.notes.push_back(std::move(note));
    all.implied = std::move(implied_);
    if (!passed_over_.empty()) all.notes.push_back(concat(path_, ": ", passed_over_note(passed_over_)));
    if (without_effect_.size() == 1)
      all.notes.push_back(concat(path_, ":", line_, ": ", without_effect_note({{key_, without_effect_.front().why}})));
    else if (!without_effect_.empty())
      all.notes.push_back(concat(path_, ": ", without_effect_note(without_effect_)));
    return all;
  }

 private:
  struct Match {
    const TrainingArgument* argument = nullptr;
    const Field* field = nullptr;
    std::string name;
  };
  static Match match(const std::string& key) {
    std::string name = underscored(key);
    const TrainingArgument* argument = name.find('.') == std::string::npos ? find_training_argument(name) : nullptr;
    for (const auto& [alias, ours] : aliases())
      if (argument == nullptr && name == alias) name = ours;
    return {argument, argument == nullptr ? find_field(name) : nullptr, name};
  }

  /// Determines, before the first argument is read, `unknown` and the program that unknown arguments belong to.
  void look_ahead(const std::vector<FileArgument>& arguments) {
    passes_over_ = so_far_.values.files.unknown == UnknownWords::warn;
    std::vector<std::string> names;
    bool components = false;
    for (const auto& [key, value] : arguments) {
      const Match found = match(key);
      if (found.argument == nullptr && found.field == nullptr)
        names.push_back(key);
      else if (found.name == "unknown" && so_far_.is_default("unknown"))
        passes_over_ = value.is_string() && to_lower(trim(value.as_string())) == "warn";
      components = components || (value.is_object() && value.find("_component_") != nullptr);
    }
    if (components) names.emplace_back("_component_");  // torchtune's name for the class of a section
    const auto foreign = foreign_words(names);
    foreign_ = foreign.has_value();
    if (foreign) problems_.foreign.push_back(concat(path_, ": ", join(foreign->names), ": ", foreign->why));
  }

  void problem(const Value& value, const std::string& key, const std::string& what, std::string_view setting) {
    if (setting.empty())
      to_.problem(value.where(), concat(key, what));
    else
      to_.problem(value.where(), concat(key, what), {setting});
  }

  void read_one(const std::string& key, const Value& value) {
    const auto [argument, field, name] = match(key);
    if (argument == nullptr && field == nullptr) return unknown(key, value);
    if (value.is_null()) return;
    if (field != nullptr && (name == "args_file" || name == "config"))
      return problem(value, key, ": a file cannot name a file that is read before it: use the command line", name);
    if (argument != nullptr && argument->row.key == "fsdp_config" && value.is_object()) return fsdp_section(value);
    const std::string_view setting = argument != nullptr ? argument->row.setting : field->name;
    const auto text = text_of(value, setting);
    if (argument != nullptr && argument->row.effect != Effect::acts)
      return follow(*argument, key, value, text.value_or(dump_json(value, -1)));
    if (!text) return problem(value, key, " is a list with anything but words; use one value, or words", setting);
    if (text->size() > kMostText && !value.is_object())
      return problem(value, key, concat(" is a text of ", text->size(), " bytes; at most ", kMostText, " are read"),
                     setting);
    if (argument == nullptr) {
      if (!text->empty()) to_.give(name, key, *text, value.where());
      return;
    }
    follow(*argument, key, value, *text);
  }

  void follow(const TrainingArgument& argument, const std::string& key, const Value& value, const std::string& text) {
    const bool words = argument.shape == ArgumentShape::words;  // for these, [] is a value
    if (argument.row.effect == Effect::acts && text.empty() && !words) return;
    const ArgumentMeaning meaning = meaning_of(argument, text);
    for (const auto& [what, why] : meaning.without_effect) {
      key_ = what.empty() ? key : concat(key, " ", what);
      line_ = value.where().line;
      without_effect_.push_back({concat(key_, " (line ", line_, ")"), why});
    }
    if (!meaning.problem.empty()) return problem(value, key, meaning.problem, argument.row.setting);
    for (const auto& [name, given] : meaning.settings) to_.give(name, key, given, value.where());
    std::erase_if(implied_, [&](const Implied& implied) { return implied.argument == argument.row.key; });
    for (Implied& implied : implied_by(argument, meaning, key, Origin::at(value.where())))
      implied_.push_back(std::move(implied));
  }

  /// A list of words, JSON of an object, or a scalar. Integral settings accept 1e8.
  static std::optional<std::string> text_of(const Value& value, std::string_view setting) {
    if (value.is_object()) return dump_json(value, -1);
    const Field* field = find_field(setting);
    return as_text(value, field != nullptr && std::holds_alternative<std::int64_t& (*)(RunConfig&)>(field->access));
  }

  void unknown(const std::string& key, const Value& value) {
    if (foreign_) return;
    const std::string name = underscored(key);
    if (passes_over_ && looked_up_ < kMostLookedUp && !concerns_training(name) && ++looked_up_ && !meant_by(name))
      return passed_over_.push_back(concat(key, " (line ", value.where().line, ")"));
    const auto near = meant_by(name);
    if (near) {
      const TrainingArgument* argument = find_training_argument(*near);
      problems_.doubtful.insert(argument != nullptr ? std::string(argument->row.setting) : *near);
    }
    to_.problem(
        value.where(),
        concat("unknown argument ", key.substr(0, 64), key.size() > 64 ? "..." : "",
               near ? concat("; did you mean ", *near, "?")
                    : concat("; tessera train --help lists all settings",
                             concerns_training(name) ? "" : ", and --unknown warn ignores other programs' flags")));
  }

  /// An object in the file is read in place, so that its problems and origins have line numbers.
  void fsdp_section(const Value& value) {
    const std::size_t before = problems_.lines.size();
    fsdp_ = read_fsdp_section(value, problems_);
    if (problems_.lines.size() > before) problems_.doubtful.insert("fsdp_config");
    fsdp_where_ = value.where();
    has_fsdp_ = true;
  }

  bool given(const char* name) const { return to_.given(name) || !so_far_.is_default(name); }

  /// fsdp_config alone means full_shard, as on the command line; with fsdp: false it has no effect.
  void settle_fsdp() {
    if (!has_fsdp_) return;
    const auto words = to_.given("fsdp");
    if (words && parse_bool(trim(*words)) == false) {
      if (!fsdp_.settings.empty()) to_.note(fsdp_where_, "fsdp_config has no effect: fsdp is off");
      fsdp_ = {};
      return;
    }
    const bool named = std::any_of(fsdp_.settings.begin(), fsdp_.settings.end(),
                                   [](const FileSetting& setting) { return setting.name == "strategy"; });
    if (!named && !given("fsdp") && !given("strategy") && !given("zero_stage") && !fsdp_.settings.empty())
      to_.give("strategy", "fsdp_config", "full_shard", fsdp_where_);
  }

  const std::string& path_;
  const Resolved& so_far_;
  Problems& problems_;
  const std::size_t before_;
  Translator to_;
  Translation fsdp_;
  SourcePos fsdp_where_;
  bool has_fsdp_ = false;
  std::vector<Implied> implied_;
  std::vector<WithoutEffect> without_effect_;
  bool passes_over_ = false;  ///< --unknown warn
  bool foreign_ = false;      ///< the arguments belong to another program, which has been reported
  std::size_t looked_up_ = 0;
  std::vector<std::string> passed_over_;
  std::string key_;  ///< key of the last argument that was read
  int line_ = 0;
};

}  // namespace

Value read_settings_file(const std::string& path, const std::string& flag, std::vector<std::string>* repeated) {
  if (!path_exists(path)) throw InputError(concat(flag, " ", path, ": no such file"));
  if (is_directory(path)) throw InputError(concat(flag, " ", path, " is a folder; expected a JSON or YAML file"));
  const std::string text = read_file(path, kMostBytes);
  const std::string lower = to_lower(path);
  return lower.ends_with(".yaml") || lower.ends_with(".yml") ? parse_yaml(text, path, repeated)
                                                             : parse_json(without_byte_order_mark(text), path);
}

Translation read_file_arguments(const std::string& path, const std::vector<FileArgument>& arguments,
                                const Resolved& so_far, Problems& problems) {
  FileReader reader(path, so_far, problems);
  reader.read(arguments);
  return reader.take();
}

}  // namespace tessera::config
