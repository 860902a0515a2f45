/// \file
/// tessera checkpoint verify: reads every byte of checkpoints and compares it with the checksums.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/object_url.h>
#include <tessera/base/value.h>
#include <tessera/config/resolve/command_flags.h>
#include <tessera/format/manifest/verify.h>
#include <tools/tessera/checkpoint_tools.h>
#include <tools/tessera/text_progress.h>

#include <algorithm>
#include <iostream>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera checkpoint verify: compares every byte with the checksums in manifest.json\n\n"
    "usage: tessera checkpoint verify PATH... [--json]\n\n"
    "PATH: a checkpoint-N folder, an output folder (all its checkpoint-N), or s3://BUCKET/PREFIX\n"
    "(streamed, not stored). Prints one line for\n"
    "each; for a damaged one the file, the byte range and the affected tensors.\n\n"
    "  --json   one JSON object per checkpoint on a line: folder, whole, step, files, bytes, and\n"
    "           damages (file, begin, end, tensors, text)\n\n"
    "Exit code: 0 all are intact, 1 one is damaged, 2 no checkpoint found.\n";

/// The checkpoint-N folders of an output folder, or the folder itself.
std::vector<std::string> checkpoints_in(const std::string& path) {
  if (!is_directory(path))
    throw InputError(concat(path, path_exists(path) ? " is a file; expected a checkpoint folder" : ": no such folder"));
  if (path_exists(path_join(path, format::kManifestName))) return {path};
  std::vector<std::pair<std::int64_t, std::string>> steps;
  for (const std::string& name : list_folder(path))
    if (name.starts_with("checkpoint-"))
      if (const auto step = parse_int(name.substr(11))) steps.emplace_back(*step, path_join(path, name));
  if (steps.empty())
    throw InputError(concat(path, ": contains neither ", format::kManifestName,
                            ", the last file of a checkpoint, nor folders checkpoint-N"));
  std::sort(steps.begin(), steps.end());
  std::vector<std::string> folders;
  for (auto& [step, folder] : steps) folders.push_back(std::move(folder));
  return folders;
}

std::uint64_t bytes_of(const format::Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const format::ManifestFile& file : manifest.files) bytes += file.digest.size;
  return bytes;
}

void print_lines(const std::string& folder, const format::Verdict& verdict) {
  const format::Manifest& manifest = verdict.manifest;
  if (verdict.whole())
    std::cout << concat("whole    ", folder, "  step ", manifest.step, ", ", manifest.files.size(), " files, ",
                        format_bytes(bytes_of(manifest)), "\n");
  else
    std::cout << concat("damaged  ", folder, "\n");
  for (const format::Damage& damage : verdict.damages) std::cout << "  " << damage.text << "\n";
}

void print_json(const std::string& folder, const format::Verdict& verdict) {
  const auto number = [](std::uint64_t value) { return Value::of(static_cast<std::int64_t>(value)); };
  Value damages = Value::make_array();
  for (const format::Damage& damage : verdict.damages) {
    Value tensors = Value::make_array();
    for (const std::string& name : damage.tensors) tensors.push_back(Value::of(name));
    damages.push_back(Value::make_object({{"file", Value::of(damage.file)},
                                          {"begin", number(damage.begin)},
                                          {"end", number(damage.end)},
                                          {"tensors", std::move(tensors)},
                                          {"text", Value::of(damage.text)}}));
  }
  const Value line = Value::make_object({{"folder", Value::of(folder)},
                                         {"whole", Value::of(verdict.whole())},
                                         {"step", Value::of(verdict.manifest.step)},
                                         {"files", number(verdict.manifest.files.size())},
                                         {"bytes", number(bytes_of(verdict.manifest))},
                                         {"damages", std::move(damages)}});
  std::cout << dump_json(line, -1) << "\n";
}

}  // namespace

int checkpoint_verify(const Arguments& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::cout << help;
    return 0;
  }
  const auto [paths, rest] = split_positional(arguments, {});
  const config::Flags flags("checkpoint verify", rest, {}, {"json"});
  if (paths.empty()) throw InputError("tessera checkpoint verify takes at least one folder");
  std::vector<std::string> folders;
  bool whole = true;
  for (const std::string& path : paths)
    if (is_object_url(path)) whole = verify_objects(path, flags.has("json")) && whole;
  for (const std::string& path : paths)
    if (!is_object_url(path))
      for (std::string& folder : checkpoints_in(path)) folders.push_back(std::move(folder));
  TextProgress progress;
  for (const std::string& folder : folders) {
    const format::Verdict verdict = format::verify_folder(folder, {}, [&](std::uint64_t done, std::uint64_t all) {
      progress.show(concat("verifying ", folder), static_cast<std::int64_t>(done), static_cast<std::int64_t>(all),
                    true);
    });
    flags.has("json") ? print_json(folder, verdict) : print_lines(folder, verdict);
    whole = whole && verdict.whole();
  }
  return static_cast<int>(whole ? ExitCode::done : ExitCode::failed);
}

}  // namespace tessera::tool
