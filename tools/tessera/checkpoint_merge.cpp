/// \file tessera checkpoint merge: joins sharded weights into one model.safetensors.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/resolve/command_flags.h>
#include <tessera/format/safetensors/safetensors_index.h>
#include <tools/tessera/checkpoint_tools.h>
#include <tools/tessera/new_folder.h>
#include <tools/tessera/text_progress.h>

#include <algorithm>
#include <iostream>

namespace tessera::tool {
namespace {

constexpr const char* help =
    "tessera checkpoint merge: sharded weights as one model.safetensors\n\n"
    "usage: tessera checkpoint merge DIR OUT_DIR [--overwrite]\n\n"
    "DIR: a model or checkpoint-N folder with model.safetensors.index.json. Configuration and\n"
    "tokenizer are copied; optimizer state is not. Shards that PyTorch wrote (.bin, .distcp):\n"
    "tessera checkpoint convert.\n";

}  // namespace

int checkpoint_merge(const Arguments& arguments) {
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    std::cout << help;
    return 0;
  }
  const auto [paths, rest] = split_positional(arguments, {});
  const config::Flags flags("checkpoint merge", rest, {}, {"overwrite"});
  if (paths.size() != 2)
    throw InputError(concat("tessera checkpoint merge takes DIR and OUT_DIR, found ", paths.size(),
                            paths.size() == 1 ? " path" : " paths"));
  const std::string &source = paths[0], &out = paths[1];
  if (!is_directory(source)) throw InputError(concat("'", source, "' is not a folder"));
  check_output(out, source, flags.has("overwrite"));
  const format::SafetensorsFolder weights(source);
  {
    const StopOnSignal signals;
    NewFolder folder(out);
    TextProgress progress;
    std::uint64_t done = 0;
    std::vector<format::TensorSource> tensors;
    for (const auto& stored : weights.tensors())
      tensors.push_back({stored.info.name, stored.info.dtype, stored.info.shape, [&] {
                           StopOnSignal::check();
                           const auto bytes = weights.bytes(stored);
                           done += bytes.size();
                           progress.show("merging", static_cast<std::int64_t>(done),
                                         static_cast<std::int64_t>(weights.data_bytes()), true);
                           return bytes;
                         }});
    copy_model_files(source, folder.path());
    format::write_safetensors(path_join(folder.path(), "model.safetensors"), std::move(tensors));
    StopOnSignal::check();
    folder.publish();
  }
  std::cerr << concat("merge: ", weights.tensors().size(), " tensors of ", weights.files().size(),
                      weights.files().size() == 1 ? " file, " : " files, ", format_bytes(weights.data_bytes()), " -> ",
                      out, "\n");
  return 0;
}

}  // namespace tessera::tool
