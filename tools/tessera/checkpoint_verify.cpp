/// \file
/// tessera checkpoint verify: reads every byte of checkpoints and says whether it is the one that was written.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/command_flags.h>
#include <tessera/format/manifest.h>
#include <tessera/format/safetensors.h>
#include <tools/tessera/checkpoint_tools.h>
#include <tools/tessera/text_progress.h>

#include <algorithm>
#include <iostream>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera checkpoint verify: compares every byte with the checksums in manifest.json\n\n"
    "usage: tessera checkpoint verify PATH...\n\n"
    "PATH: a checkpoint-N folder, or an output folder (all its checkpoint-N). Prints a line for\n"
    "each; a damaged one is named with file, bytes and the tensors that lie there.\n"
    "Exit code: 0 all are whole, 1 one is not, 2 there is none.\n";

/// Names of the tensors that bytes [begin, end) of a safetensors file belong to; empty when its header cannot be read.
std::string tensors_at(const std::string& path, std::uint64_t begin, std::uint64_t end) {
  std::vector<std::string> names;
  try {
    const format::SafetensorsFile file(path);
    if (begin < file.data_begin()) names.emplace_back("the header");
    for (const format::TensorInfo& tensor : file.tensors())
      if (file.data_begin() + tensor.begin < end && begin < file.data_begin() + tensor.end) names.push_back(tensor.name);
  } catch (const InputError& error) {
    return concat(": ", error.what());
  }
  const std::size_t shown = std::min<std::size_t>(names.size(), 3);
  return names.empty() ? "" : concat(" (", join(std::span(names).first(shown)), names.size() > shown ? concat(" and ", names.size() - shown, " more") : "", ")");
}

/// What is wrong with one listed file, a line each.
std::vector<std::string> problems_of(const std::string& folder, const format::ManifestFile& file) {
  const std::string path = path_join(folder, file.name);
  if (!path_exists(path)) return {concat(file.name, " is missing")};
  const format::Digest found = format::digest_of_file(path);
  if (found.size != file.digest.size) return {concat(file.name, " has ", found.size, " bytes instead of ", file.digest.size)};
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < found.chunks.size(); ++i) {
    if (found.chunks[i] == file.digest.chunks[i]) continue;
    const std::uint64_t begin = i * format::kDigestChunk, end = std::min(begin + format::kDigestChunk, found.size);
    lines.push_back(concat(file.name, ": bytes ", begin, " to ", end, " are damaged", file.name.ends_with(".safetensors") ? tensors_at(path, begin, end) : ""));
  }
  return lines;
}

/// The checkpoint-N folders of an output folder, or the folder itself.
std::vector<std::string> checkpoints_in(const std::string& path) {
  if (!is_directory(path)) throw InputError(concat(path, path_exists(path) ? " is a file; expected a checkpoint folder" : ": no such folder"));
  if (path_exists(path_join(path, format::kManifestName))) return {path};
  std::vector<std::pair<std::int64_t, std::string>> steps;
  for (const std::string& name : list_folder(path))
    if (name.starts_with("checkpoint-"))
      if (const auto step = parse_int(name.substr(11))) steps.emplace_back(*step, path_join(path, name));
  if (steps.empty()) throw InputError(concat(path, ": has neither a ", format::kManifestName, ", which a checkpoint ends with, nor folders checkpoint-N"));
  std::sort(steps.begin(), steps.end());
  std::vector<std::string> folders;
  for (auto& [step, folder] : steps) folders.push_back(std::move(folder));
  return folders;
}

/// Prints the verdict; true when whole.
bool verify(const std::string& folder, TextProgress& progress) {
  std::vector<std::string> lines;
  std::uint64_t bytes = 0;
  format::Manifest manifest;
  try {
    manifest = format::read_manifest(folder);
    std::uint64_t all = 0;
    for (const format::ManifestFile& file : manifest.files) all += file.digest.size;
    for (const format::ManifestFile& file : manifest.files) {
      progress.show(concat("verifying ", folder), static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(all), true);
      for (std::string& line : problems_of(folder, file)) lines.push_back(std::move(line));
      bytes += file.digest.size;
    }
  } catch (const InputError& error) {
    lines.push_back(error.what());
  }
  if (lines.empty()) {
    std::cout << concat("whole    ", folder, "  step ", manifest.step, ", ", manifest.files.size(), " files, ", format_bytes(bytes), "\n");
    return true;
  }
  std::cout << concat("damaged  ", folder, "\n");
  for (const std::string& line : lines) std::cout << "  " << line << "\n";
  return false;
}

}  // namespace

int checkpoint_verify(const Arguments& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::cout << help;
    return 0;
  }
  const auto [paths, rest] = split_positional(arguments, {});
  const config::Flags flags("checkpoint verify", rest, {}, {});
  if (paths.empty()) throw InputError("tessera checkpoint verify takes at least one folder");
  std::vector<std::string> folders;
  for (const std::string& path : paths)
    for (std::string& folder : checkpoints_in(path)) folders.push_back(std::move(folder));
  TextProgress progress;
  bool whole = true;
  for (const std::string& folder : folders) whole = verify(folder, progress) && whole;
  return static_cast<int>(whole ? ExitCode::done : ExitCode::failed);
}

}  // namespace tessera::tool
