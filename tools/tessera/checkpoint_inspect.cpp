/// \file
/// tessera checkpoint inspect: shows the contents of a model folder or file.

#include <tessera/base/error.h>
#include <tessera/config/resolve/command_flags.h>
#include <tools/tessera/checkpoint_tools.h>
#include <tools/tessera/inspection.h>

#include <algorithm>
#include <iostream>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera checkpoint inspect: contents of a model folder or file; reads no weights\n\n"
    "usage: tessera checkpoint inspect PATH [flags]\n\n"
    "PATH: a Hugging Face folder, a checkpoint-N or PEFT adapter folder, or a .safetensors,\n"
    ".safetensors.index.json or .gguf file.\n\n"
    "  --tensors    also a table of all tensors\n"
    "  --json       one JSON object for scripts\n";

}  // namespace

int checkpoint_inspect(const Arguments& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::cout << help;
    return 0;
  }
  const auto [paths, rest] = split_positional(arguments, {});
  const config::Flags flags("checkpoint inspect", rest, {}, {"tensors", "json"});
  if (paths.size() != 1) throw InputError(concat("tessera checkpoint inspect takes one path, found ", paths.size()));
  const Inspection found = inspect(paths[0]);
  std::cout << (flags.has("json") ? inspection_json : inspection_text)(found, flags.has("tensors")) << std::flush;
  return 0;
}

}  // namespace tessera::tool
