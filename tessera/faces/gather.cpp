#include <tessera/faces/gather.h>

#include <ATen/ATen.h>

#include <vector>

namespace tessera::faces {

at::Tensor gather_rows(const comm::Group& group, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor rows =
      (tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor).detach().to(group.device()).contiguous();  // [n, ...]
  const at::Tensor counts = at::empty({group.size()}, at::TensorOptions().dtype(at::kLong).device(group.device()));
  group.all_gather(counts, at::full({1}, rows.size(0), counts.options())).wait();
  const at::Tensor on_host = counts.cpu();
  const std::int64_t most = on_host.max().item<std::int64_t>();
  auto sizes = rows.sizes().vec();
  sizes[0] = most;
  at::Tensor padded = rows;
  if (rows.size(0) < most) {
    padded = at::zeros(sizes, rows.options());
    padded.narrow(0, 0, rows.size(0)).copy_(rows);
  }
  sizes[0] = most * group.size();
  const at::Tensor all = at::empty(sizes, rows.options());
  group.all_gather(all, padded).wait();
  if (on_host.min().item<std::int64_t>() == most) return all;
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < group.size(); ++rank)
    parts.push_back(all.narrow(0, rank * most, on_host[rank].item<std::int64_t>()));
  return at::cat(parts);
}

}  // namespace tessera::faces
