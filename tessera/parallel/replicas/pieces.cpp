#include <tessera/parallel/replicas/pieces.h>

#include <tessera/base/error.h>

#include <ATen/ATen.h>

namespace tessera::parallel::pieces {

void Collected::add(const at::Tensor& tensor) {
  const bool scattered = tensor.defined() && tensor.dim() > 0;
  inputs_.push_back({tensor, !scattered});
  if (scattered) found_rows(tensor.size(0));
}

void Collected::found_rows(std::int64_t rows) {
  if (!rows_) {
    rows_ = rows;
    first_ = argument_;
  } else if (*rows_ != rows) {
    throw InputError(concat("DataParallel: argument ", first_, " has ", *rows_, " rows and ",
                            first_ == argument_ ? "another tensor in it" : concat("argument ", argument_), " has ",
                            rows,
                            "; all tensors that are cut along dimension 0 must have the same size there. Wrap an "
                            "argument that every replica should get whole in tessera::whole(...)"));
  }
}

}  // namespace tessera::parallel::pieces
