#include <tessera/faces/smoothed_loss.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>

namespace tessera::faces {

at::Tensor smoothed_loss(const at::Tensor& logits, const at::Tensor& labels, double smoothing) {
  if (!logits.defined() || !labels.defined() || logits.dim() < 2 ||
      labels.sizes() != logits.sizes().slice(0, static_cast<std::size_t>(logits.dim() - 1)) ||
      !at::isIntegralType(labels.scalar_type(), /*includeBool=*/false))
    throw InputError(concat(
        "label_smoothing_factor: TrainerOptions::outputs gave ",
        logits.defined() ? concat(c10::toString(logits.scalar_type()), " of shape ", logits.sizes()) : "nothing",
        ", the labels are ",
        labels.defined() ? concat(c10::toString(labels.scalar_type()), " of shape ", labels.sizes()) : "nothing",
        "; outputs must be scores [..., classes] and labels whole numbers [...]: set TrainerOptions::labels if the "
        "last tensor of a batch is something else, or remove --label_smoothing_factor"));
  constexpr std::int64_t ignored = -100;  // transformers' ignore_index
  return at::cross_entropy_loss(logits.flatten(0, -2), labels.to(at::kLong).flatten(), {}, at::Reduction::Mean, ignored,
                                smoothing);
}

}  // namespace tessera::faces
