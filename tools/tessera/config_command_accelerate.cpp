/// \file
/// tessera config default, update, to-fsdp2 and the questionnaire: the operations of `accelerate config` on its file.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/accelerate/questionnaire.h>
#include <tessera/config/convert/convert_accelerate.h>
#include <tessera/config/resolve/command_flags.h>
#include <tools/tessera/config_command.h>

#include <unistd.h>
#include <algorithm>
#include <cctype>
#include <iostream>

namespace tessera::tool {
namespace {

/// Counts GPUs by their device files: /dev/nvidia0, ... (no driver library is loaded for the question).
int count_gpus() {
  const auto names = list_folder("/dev");
  return static_cast<int>(std::count_if(names.begin(), names.end(), [](const std::string& name) {
    return name.starts_with("nvidia") && name.size() > 6 &&
           std::all_of(name.begin() + 6, name.end(), [](unsigned char c) { return std::isdigit(c); });
  }));
}

std::string text_for(const std::string& path, const Value& file) {
  return config::file_text(file, config::FileKind::accelerate, to_lower(path).ends_with(".json"));
}

void make_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash != std::string::npos && slash > 0) make_folders(path.substr(0, slash));
}

std::string file_of(const config::Flags& flags) {
  const auto given = flags.text("config_file");
  return given ? *given : config::default_accelerate_path();
}

Value read_existing(const std::string& path) {
  if (!path_exists(path)) throw InputError(concat(path, ": no such file; create one with `tessera config`"));
  return config::read_any(path);
}

}  // namespace

int config_default(const Arguments& arguments) {
  const config::Flags flags("config default", arguments, {"config_file", "mixed_precision"}, {});
  const std::string path = file_of(flags);
  const Value file = config::new_accelerate_file(flags.text("mixed_precision").value_or("no"), count_gpus());
  if (path_exists(path)) {
    std::cout << "Configuration already exists at " << path
              << ", will not override. Run `tessera config` or pass another --config_file.\n";
    return 0;
  }
  make_folder_of(path);
  write_configuration(path, text_for(path, file), false);
  std::cout << "accelerate configuration saved at " << path << '\n';
  return 0;
}

int config_update(const Arguments& arguments) {
  const config::Flags flags("config update", arguments, {"config_file"}, {});
  const std::string path = file_of(flags);
  std::vector<std::string> notes;
  const Value file = config::update_accelerate_file(read_existing(path), notes);
  write_configuration(path, text_for(path, file), true);
  for (const std::string& note : notes) std::cerr << note << '\n';
  std::cout << "Successfully updated the configuration file at " << path << ".\n";
  return 0;
}

int config_to_fsdp2(const Arguments& arguments) {
  const config::Flags flags("config to-fsdp2", arguments, {"config_file", "output_file"}, {"overwrite"});
  const std::string path = flags.required("config_file", "the file to convert");
  const auto output = flags.text("output_file");
  if (!output && !flags.has("overwrite"))
    throw InputError("tessera config to-fsdp2: use --output_file FILE, or --overwrite to change the file in place");
  std::vector<std::string> notes;
  const Value file = config::to_fsdp2(read_existing(path), notes);
  const std::string target = output.value_or(path);
  write_configuration(target, text_for(target, file), flags.has("overwrite"));
  for (const std::string& note : notes) std::cerr << note << '\n';
  std::cout << "configuration saved at " << target << '\n';
  return 0;
}

int config_questionnaire(const Arguments& arguments) {
  const config::Flags flags("config", arguments, {"config_file"}, {});
  const std::string path = file_of(flags);
  config::Dialog dialog(std::cin, std::cout, ::isatty(STDIN_FILENO) != 0);
  const Value file = config::ask_configuration(dialog);
  make_folder_of(path);
  write_configuration(path, text_for(path, file), true);
  std::cout << "accelerate configuration saved at " << path << '\n';
  return 0;
}

}  // namespace tessera::tool
