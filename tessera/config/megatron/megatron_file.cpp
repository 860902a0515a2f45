// The YAML files of Megatron's functional tests: arguments below MODEL_ARGS.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/yaml.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/megatron/megatron_args.h>

#include <algorithm>

namespace tessera::config {
namespace {

constexpr std::uint64_t kMostBytes = 256 << 10;

bool is_yaml(const std::string& word) {
  const std::string lower = to_lower(word);
  return lower.ends_with(".yaml") || lower.ends_with(".yml");
}

/// Finds a file of arguments, given alone or after --args_file; `end` if none is given.
std::pair<std::size_t, std::size_t> find_file(const std::vector<FileWord>& words, std::string& path) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i].text;
    for (const char* flag : {"--args_file", "--args-file"}) {
      if (word == flag && i + 1 < words.size() && is_yaml(words[i + 1].text)) {
        path = words[i + 1].text;
        return {i, i + 2};
      }
      if (word.starts_with(concat(flag, "=")) && is_yaml(word)) {
        path = word.substr(word.find('=') + 1);
        return {i, i + 1};
      }
    }
    if (is_yaml(word) && !word.starts_with("--") && (i == 0 || !words[i - 1].text.starts_with("--"))) {
      path = word;
      return {i, i + 1};
    }
  }
  return {words.size(), words.size()};
}

class ModelArguments {
 public:
  ModelArguments(Problems& problems, const GetEnvironment& environment)
      : problems_(problems), environment_(environment) {}

  std::vector<FileWord> read(const Value& section) {
    const std::size_t before = problems_.lines.size();
    std::size_t left = section.members().size();
    for (const auto& [key, value] : section.members()) {
      if (problems_.lines.size() - before >= most_megatron_problems) {
        problems_.lines.push_back(concat(section.where().str(), ": ", left,
                                         left == 1 ? " more argument was" : " more arguments were", " not checked"));
        break;
      }
      --left;
      if (!key.starts_with("--") || key.size() == 2) {
        misnamed(key, value);
        continue;
      }
      const auto text = as_text(value, false);
      const auto flag = value.kind() == Value::Kind::boolean ? std::optional(value.as_bool()) : std::nullopt;
      if (value.is_null() || flag == false) continue;
      const auto first = static_cast<std::ptrdiff_t>(words_.size());
      words_.push_back({key, value.where()});
      if (flag) continue;
      if (value.is_array())
        for (const Value& item : value.items()) add(key, as_text(item, false).value_or(""), item.where());
      else if (text && text->starts_with("[") && text->ends_with("]"))
        for (const std::string& word : split(text->substr(1, text->size() - 2), ' ')) add(key, word, value.where());
      else if (text)
        add(key, *text, value.where());
      else
        wrong(key, value.where(), " must be a value, a list, or true");
      if (drops_) words_.erase(words_.begin() + first, words_.end());
      drops_ = false;
    }
    return std::move(words_);
  }

 private:
  /// Reports a key without dashes, which would become a value of the previous argument.
  void misnamed(const std::string& key, const Value& value) {
    const std::string name = key.substr(std::min(key.find_first_not_of('-'), key.size()));
    problems_.lines.push_back(
        concat(value.where().str(), ": ", key,
               key == "<<" ? " must refer to one mapping by its anchor, such as <<: *BASE"
                           : concat(" is not an argument: write --", name.empty() ? "seed, for example" : name)));
  }

  void wrong(const std::string& key, const SourcePos& where, const std::string& what) {
    problems_.lines.push_back(concat(where.str(), ": ", key, what));
    drops_ = true;
  }

  void add(const std::string& key, const std::string& text, const SourcePos& where) {
    const std::string value = with_variables(key, trim(text), where);
    if (value.starts_with("--")) {
      wrong(key, where, concat(" ", value, ": a value cannot start with --; use a different value, or remove it"));
    } else if (!value.empty()) {
      words_.push_back({value, where});
    }
  }

  /// ${NAME} is the environment variable NAME.
  std::string with_variables(const std::string& key, std::string text, const SourcePos& where) {
    for (std::size_t from = text.find("${"); from != std::string::npos; from = text.find("${", from)) {
      const std::size_t end = text.find('}', from);
      if (end == std::string::npos) break;
      const std::string name = text.substr(from + 2, end - from - 2);
      const auto value = look_up(environment_, name);
      if (!value) {
        std::string argument = key.substr(std::min(key.find_first_not_of('-'), key.size()));
        std::replace(argument.begin(), argument.end(), '-', '_');
        const KeyRow* row = find_megatron_key(argument);
        if (row != nullptr && row->effect == Effect::ignored) break;
        if (row != nullptr && !row->setting.empty()) problems_.doubtful.emplace(row->setting);
        if (const Field* ours = find_field(argument)) {
          problems_.doubtful.emplace(ours->name);
          drops_ = true;
        }
        problems_.lines.push_back(
            concat(where.str(), ": ", key, ": the variable ", name, " is not set; set it in the environment"));
        break;
      }
      text.replace(from, end + 1 - from, *value);
      from += value->size();
    }
    return text;
  }

  Problems& problems_;
  const GetEnvironment& environment_;
  std::vector<FileWord> words_;
  bool drops_ = false;  ///< the argument being read is invalid, which has been reported
};

}  // namespace

std::optional<std::vector<std::string>> read_model_args(std::vector<FileWord>& arguments, Problems& problems,
                                                        const GetEnvironment& environment) {
  std::string path;
  const auto [first, last] = find_file(arguments, path);
  if (first == last || !path_exists(path) || is_directory(path)) return std::nullopt;
  const std::string text = read_file(path, kMostBytes);
  if (text.find(model_args_key) == std::string::npos) return std::nullopt;
  Value file;
  std::vector<std::string> notes;
  try {
    file = parse_yaml(text, path, &notes);
  } catch (const InputError& error) {
    problems.lines.push_back(error.what());
    problems.doubtful.insert("args_file");
    return std::nullopt;
  }
  const Value* section = file.is_object() ? file.find(model_args_key) : nullptr;
  if (section == nullptr) return std::nullopt;
  if (!section->is_object()) {
    problems.lines.push_back(concat(section->where().str(), ": ", model_args_key, " must contain arguments by name"));
    problems.doubtful.insert("args_file");
    return std::nullopt;
  }
  std::vector<FileWord> words = ModelArguments(problems, environment).read(*section);
  arguments.erase(arguments.begin() + static_cast<std::ptrdiff_t>(first),
                  arguments.begin() + static_cast<std::ptrdiff_t>(last));
  arguments.insert(arguments.begin(), words.begin(), words.end());
  std::vector<std::string> others;
  for (const auto& [key, value] : file.members())
    if (key != model_args_key) others.push_back(key);
  if (!others.empty())
    notes.push_back(concat(path, ": ", join(others), others.size() == 1 ? " has" : " have",
                           " no effect: keys outside of ", model_args_key, " are for Megatron's test harness"));
  return notes;
}

}  // namespace tessera::config
