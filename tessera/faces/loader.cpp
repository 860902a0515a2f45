#include <tessera/faces/loader.h>

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
                              " rows: dimension 0 is the number of rows and must be the same for all"));
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

DataLoader::DataLoader(RowSource source, LoaderOptions options, faces::BatchPlan plan, std::int64_t rank,
                       c10::Device device, std::shared_ptr<faces::LoaderGroup> group)
    : source_(std::move(source)),
      options_(options),
      plan_(plan),
      rank_(rank),
      device_(device),
      state_(std::make_shared<faces::LoaderState>()),
      group_(group ? std::move(group) : std::make_shared<faces::LoaderGroup>()) {
  if (!source_.read) throw InputError("data loader: the RowSource has no read function");
  faces::check(plan_);
}

faces::BatchPlan DataLoader::plan() const {
  faces::BatchPlan plan = plan_;
  plan.even_batches = group_->even_batches.value_or(plan.even_batches);
  return plan;
}

std::int64_t DataLoader::batches(const faces::BatchPlan& plan) const {
  return group_->join ? plan.most_batches() : plan.batches(rank_);
}

DataLoader DataLoader::skip_first_batches(std::int64_t batches) const {
  DataLoader rest = *this;
  rest.skip_ = std::clamp<std::int64_t>(batches, 0, this->batches(plan()));
  return rest;
}

void DataLoader::release() {
  *this = DataLoader({.rows = 0, .read = [](const auto&) { return std::vector<at::Tensor>(); }}, {});
}

std::vector<std::int64_t> DataLoader::rows_of(std::int64_t epoch, std::vector<std::int64_t> positions) const {
  if (!options_.shuffle) return positions;
  const data::Sampler order(SamplingStrategy::random, source_.rows, options_.seed);
  for (std::int64_t& row : positions) row = order(epoch * source_.rows + row);
  return positions;
}

DataLoader::Iterator::Iterator(DataLoader* loader)
    : loader_(loader),
      plan_(loader->plan()),
      epoch_(loader->state_->epoch),
      next_(std::exchange(loader->skip_, 0)),
      count_(loader->batches(plan_)) {
  faces::LoaderState& state = *loader_->state_;
  state.remainder = plan_.even_batches ? plan_.remainder() : 0;
  state.common = loader->group_->join ? count_ : plan_.fewest_batches();
  read();
}

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  read();
  return *this;
}

void DataLoader::Iterator::read() {
  faces::LoaderState& state = *loader_->state_;
  if (next_ >= count_) {  // the pass is over
    state = {.epoch = epoch_ + 1};
    loader_ = nullptr;
    batch_.clear();
    return;
  }
  const std::int64_t rank = loader_->rank_;
  state.stand_in = next_ >= plan_.batches(rank);
  faces::BatchPlan filled = plan_;
  filled.even_batches = true;  // a substitute batch has the rows that would fill the last round
  batch_ = loader_->source_.read(loader_->rows_of(epoch_, (state.stand_in ? filled : plan_).positions(rank, next_)));
  for (at::Tensor& tensor : batch_) tensor = tensor.to(loader_->device_);
  ++next_;
  state.batches = next_;
  state.end_of_loader = next_ == count_;
  loader_->group_->last = loader_->state_;
}

}  // namespace tessera
