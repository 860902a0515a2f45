#include <tessera/checkpoint/stored_state.h>

#include <ATen/ATen.h>

#include <optional>

#include <tessera/base/error.h>
#include <tessera/checkpoint/read_into.h>

namespace tessera::checkpoint {

void StoredState::read(const std::string& name, std::int64_t begin, const at::Tensor& piece) const {
  const format::StoredTensor* tensor = find(name);
  TESSERA_CHECK(tensor != nullptr && piece.is_contiguous(), "no tensor '", name, "' in ",
                files().empty() ? "an empty state" : files()[0].path, ", or nowhere to put it");
  const at::Tensor flat = piece.view({-1});
  std::optional<PieceReader> reader;
  const File* open = nullptr;  // what `reader` reads: boxes have many runs in one file
  for_each_run(*tensor, begin, begin + piece.numel(), [&](const Run& run) {
    if (open != &run.file) reader.emplace(run.file.path, run.file.data_begin), open = &run.file;
    reader->read(run.info, run.from, flat.narrow(0, run.to, run.count));
  });
}

}  // namespace tessera::checkpoint
