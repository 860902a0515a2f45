#pragma once
/// \file
/// A dataset that loads its rows' images.

#include <tessera/data/dataset.h>
#include <tessera/data/images/image_reader.h>

#include <memory>
#include <utility>

namespace tessera::data {

/// The rows of another dataset; batches also get the pixels of their images.
class ImageRows final : public Dataset {
 public:
  ImageRows(std::shared_ptr<const Dataset> rows, ImageReader reader)
      : rows_(std::move(rows)), reader_(std::move(reader)) {}
  std::int64_t size() const override { return rows_->size(); }
  std::int64_t max_length() const override { return rows_->max_length(); }
  std::int64_t length(std::int64_t row) const override { return rows_->length(row); }
  Row read(std::int64_t row) const override { return rows_->read(row); }
  Row read_sample(std::int64_t row, std::int64_t sample) const override { return rows_->read_sample(row, sample); }
  std::int64_t tokens() const override { return rows_->tokens(); }
  const Blend* blend() const override { return rows_->blend(); }
  bool streamed() const override { return rows_->streamed(); }
  Batch complete(Batch batch, const std::vector<std::string>& images, std::int64_t first) const override {
    if (!images.empty()) batch.images = reader_(images);
    return rows_->complete(std::move(batch), {}, first);
  }

 private:
  std::shared_ptr<const Dataset> rows_;
  ImageReader reader_;
};

}  // namespace tessera::data
