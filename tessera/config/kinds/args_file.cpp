#include <tessera/config/kinds/args_file.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/hf/training_args.h>
#include <tessera/config/kinds/file_kind.h>

#include <algorithm>

namespace tessera::config {
namespace {

/// Whether the file belongs to another system; if so, reports this instead of every unknown key.
bool is_of_another_system(const std::string& path, const Value& file, Problems& problems) {
  const auto ours = std::count_if(file.members().begin(), file.members().end(), [](const Value::Member& member) {
    return find_training_argument(member.first) != nullptr || find_field(member.first) != nullptr;
  });
  if (2 * static_cast<std::size_t>(ours) >= file.members().size()) return false;
  const auto kind = guess_kind(file);
  if (!kind || *kind == FileKind::training_args || *kind == FileKind::tessera) return false;
  problems.lines.push_back(
      concat(path, ": its keys are those of ", kind_title(*kind), ": pass it as ", kind_flag(*kind), " ", path));
  problems.doubtful.insert("args_file");
  return true;
}

}  // namespace

Translation read_training_args_file(const std::string& path, const Resolved& so_far, Problems& problems) {
  std::vector<FileArgument> arguments;
  try {
    std::vector<std::string> repeated;
    const Value file = read_settings_file(path, "--args_file", &repeated);
    if (file.is_null()) return {};  // comments only
    if (!file.is_object()) {
      problems.lines.push_back(
          concat(file.where().str(), ": expected an object of arguments such as {\"learning_rate\": 5e-5}"));
      return {};
    }
    for (const auto& [key, value] : file.members()) arguments.push_back({key, value});
    Problems own;
    Translation read = read_file_arguments(path, arguments, so_far, own);
    read.notes.insert(read.notes.begin(), repeated.begin(), repeated.end());
    if (!own.told().empty() && is_of_another_system(path, file, problems)) return {};
    problems.lines.insert(problems.lines.end(), own.lines.begin(), own.lines.end());
    problems.foreign.insert(problems.foreign.end(), own.foreign.begin(), own.foreign.end());
    problems.doubtful.insert(own.doubtful.begin(), own.doubtful.end());
    return read;
  } catch (const InputError& error) {
    problems.lines.push_back(error.what());
    return {};
  }
}

}  // namespace tessera::config
