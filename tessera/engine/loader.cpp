#include <tessera/engine/loader.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/data/dataset.h>

namespace tessera {

RowSource tensor_rows(std::vector<at::Tensor> tensors) {
  if (tensors.empty()) throw InputError("tensor_rows: no tensors");
  for (const at::Tensor& tensor : tensors)
    if (tensor.dim() == 0 || tensor.size(0) != tensors[0].size(0))
      throw InputError(concat("tensor_rows: tensors of ", tensors[0].dim() == 0 ? 0 : tensors[0].size(0), " and ",
                              tensor.dim() == 0 ? 0 : tensor.size(0),
                              " rows: dimension 0 counts the rows and is the same for all"));
  const std::int64_t rows = tensors[0].size(0);
  return {rows, [tensors = std::move(tensors)](const std::vector<std::int64_t>& rows) {
            const at::Tensor index = at::tensor(rows, at::kLong);
            std::vector<at::Tensor> batch;
            for (const at::Tensor& tensor : tensors) batch.push_back(tensor.index_select(0, index.to(tensor.device())));
            return batch;
          }};
}

DataLoader::DataLoader(RowSource source, LoaderOptions options)
    : DataLoader(source, options,
                 {.rows = source.rows,
                  .batch_size = options.batch_size,
                  .drop_last = options.drop_last,
                  .even_batches = false},
                 0, c10::Device(c10::kCPU)) {}

DataLoader::DataLoader(RowSource source, LoaderOptions options, engine::BatchPlan plan, std::int64_t rank,
                       c10::Device device)
    : source_(std::move(source)),
      options_(options),
      plan_(plan),
      rank_(rank),
      device_(device),
      state_(std::make_shared<engine::LoaderState>()) {
  if (!source_.read) throw InputError("data loader: the RowSource has no read function");
  engine::check(plan_);
}

DataLoader DataLoader::skip_first_batches(std::int64_t batches) const {
  DataLoader rest = *this;
  rest.skip_ = std::clamp<std::int64_t>(batches, 0, plan_.batches(rank_));
  return rest;
}

std::vector<std::int64_t> DataLoader::rows_of(std::int64_t epoch, std::int64_t batch) const {
  std::vector<std::int64_t> rows = plan_.positions(rank_, batch);
  if (!options_.shuffle) return rows;
  const data::Sampler order("random", source_.rows, options_.seed);
  for (std::int64_t& row : rows) row = order(epoch * source_.rows + row);
  return rows;
}

DataLoader::Iterator::Iterator(DataLoader* loader)
    : loader_(loader),
      epoch_(loader->state_->epoch),
      next_(std::exchange(loader->skip_, 0)),
      count_(loader->plan_.batches(loader->rank_)) {
  engine::LoaderState& state = *loader_->state_;
  state.remainder = loader_->plan_.even_batches ? loader_->plan_.remainder() : 0;
  read();
}

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  read();
  return *this;
}

void DataLoader::Iterator::read() {
  engine::LoaderState& state = *loader_->state_;
  if (next_ >= count_) {  // the pass is over
    state = {.epoch = epoch_ + 1};
    loader_ = nullptr;
    batch_.clear();
    return;
  }
  batch_ = loader_->source_.read(loader_->rows_of(epoch_, next_));
  for (at::Tensor& tensor : batch_) tensor = tensor.to(loader_->device_);
  ++next_;
  state.batches = next_;
  state.end_of_loader = next_ == count_;
}

}  // namespace tessera
