#include <tessera/checkpoint/stored_state.h>

#include <ATen/ATen.h>

#include <list>
#include <mutex>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/checkpoint/read_into.h>

namespace tessera::checkpoint {

/// Keeps the most recently read files open, so that the system's read-ahead continues in them: the states are
/// consecutive in each. Not all files: there may be more than a process may open.
struct StoredState::OpenFiles {
  using Reader = std::shared_ptr<const PieceReader>;
  static constexpr std::size_t most = 32;
  std::shared_ptr<format::ReadSums> sums;
  std::mutex mutex;
  std::list<std::pair<std::string, Reader>> last_first;  // by path

  Reader of(const File& file) {
    const std::lock_guard lock(mutex);
    for (auto at = last_first.begin(); at != last_first.end(); ++at) {
      if (at->first != file.path) continue;
      last_first.splice(last_first.begin(), last_first, at);
      return at->second;
    }
    last_first.emplace_front(file.path, std::make_shared<const PieceReader>(file.path, file.data_begin, sums));
    if (last_first.size() > most) last_first.pop_back();
    return last_first.front().second;
  }
};

StoredState::StoredState(const std::string& folder, std::shared_ptr<format::ReadSums> sums, const std::string& stem)
    : StateFolder(folder, stem), open_(std::make_shared<OpenFiles>()) {
  open_->sums = std::move(sums);
}

void StoredState::read(const std::string& name, std::int64_t begin, const at::Tensor& piece) const {
  const format::StoredTensor* tensor = find(name);
  TESSERA_CHECK(tensor != nullptr && piece.is_contiguous(), "no tensor '", name, "' in ",
                files().empty() ? "an empty state" : files()[0].path, ", or the destination does not fit");
  read(name, layout::flat_region(tensor->shape, begin, begin + piece.numel()), piece);
}

void StoredState::read(const std::string& name, const layout::Region& region, const at::Tensor& piece) const {
  const format::StoredTensor* tensor = find(name);
  TESSERA_CHECK(tensor != nullptr && piece.is_contiguous() && piece.numel() == region.numel(), "no tensor '", name,
                "' in ", files().empty() ? "an empty state" : files()[0].path, ", or the destination does not fit");
  const at::Tensor flat = piece.view({-1});
  for_each_run(*tensor, region, [&](const Run& run) {
    open_->of(run.file)->read(run.info, run.from, flat.narrow(0, run.to, run.count));
  });
}

}  // namespace tessera::checkpoint
