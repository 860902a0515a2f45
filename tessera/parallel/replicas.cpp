#include <tessera/parallel/replicas.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/comm/world.h>
#include <tessera/parallel/dispatch/hash.h>
#include <tessera/parallel/replicas_differ.h>

#include <algorithm>
#include <cstring>

namespace tessera::parallel {
namespace {

constexpr std::int64_t piece_bytes =
    25 << 20;  // like DDP's buckets: large enough for full bandwidth, small compared to a model

std::int64_t as_number(std::uint64_t hash) { return static_cast<std::int64_t>(hash); }

std::string describe(const NamedTensor& named) {
  const at::Tensor& t = named.tensor;
  return concat("'", named.name, "' ", c10::toString(t.scalar_type()), " ", t.sizes(), " strides ", t.strides(),
                t.requires_grad() ? "" : " (no gradient)");
}

/// The bytes of a tensor: uint8 [nbytes]; copies only if it is not contiguous.
at::Tensor bytes_of(const at::Tensor& tensor) { return tensor.detach().contiguous().reshape({-1}).view(at::kByte); }

/// Hash of the values in memory order, without the strides (require_same_structure compares those).
std::uint64_t hash_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  const at::Tensor bytes = bytes_of(tensor).cpu();
  return hash_bytes(bytes.const_data_ptr(), static_cast<std::size_t>(bytes.numel()));
}

}  // namespace

void require_same_structure(const comm::Group& group, const std::vector<NamedTensor>& tensors,
                            const std::string& what) {
  std::string mine;
  for (const NamedTensor& named : tensors) mine += describe(named) + "\n";
  const auto hashes = comm::all_gather_numbers(group, {as_number(hash_bytes(mine.data(), mine.size()))});
  if (std::all_of(hashes.begin(), hashes.end(), [&](const auto& hash) { return hash == hashes[0]; })) return;
  const std::vector<std::string> texts = comm::all_gather_text(group, mine);
  const std::vector<std::string> first = split(texts[0], '\n');
  for (std::size_t r = 1; r < texts.size(); ++r) {
    if (texts[r] == texts[0]) continue;
    const std::vector<std::string> other = split(texts[r], '\n');
    std::size_t i = 0;
    while (i + 1 < first.size() && i + 1 < other.size() && first[i] == other[i]) ++i;
    const auto line = [&](const std::vector<std::string>& lines) {
      return i + 1 < lines.size() ? lines[i] : "no such " + what;
    };
    throw Error(concat("the module differs between ranks: ", what, " ", i, " is ", line(first), " on rank 0 but ",
                       line(other), " on rank ", r,
                       "; every rank must build the same module, in the same order (ranks of group '", group.name(),
                       "')"));
  }
  throw Error(concat("the module's ", what, "s have different hashes but equal descriptions on the ranks of group '",
                     group.name(), "'"));
}

void broadcast_tensors(const comm::Group& group, const std::vector<at::Tensor>& tensors, int root) {
  if (group.size() == 1) return;
  const at::NoGradGuard no_grad;
  const comm::Tag tag("replicas");
  std::size_t begin = 0;
  while (begin < tensors.size()) {
    std::size_t end = begin;
    std::int64_t bytes = 0;
    while (end < tensors.size() &&
           (end == begin || bytes + static_cast<std::int64_t>(tensors[end].nbytes()) <= piece_bytes))
      bytes += static_cast<std::int64_t>(tensors[end++].nbytes());
    if (bytes > 0) {
      at::Tensor piece = at::empty({bytes}, at::TensorOptions(at::kByte).device(group.device()));
      std::int64_t offset = 0;
      if (group.rank() == root)
        for (std::size_t i = begin; i < end; offset += static_cast<std::int64_t>(tensors[i++].nbytes()))
          piece.narrow(0, offset, static_cast<std::int64_t>(tensors[i].nbytes())).copy_(bytes_of(tensors[i]));
      group.broadcast(piece, root).wait();
      offset = 0;
      if (group.rank() != root)
        for (std::size_t i = begin; i < end; offset += static_cast<std::int64_t>(tensors[i++].nbytes())) {
          // clone(): a new allocation is aligned for the tensor's dtype; an offset into the piece may not be.
          at::Tensor part = piece.narrow(0, offset, static_cast<std::int64_t>(tensors[i].nbytes())).clone();
          at::Tensor target = tensors[i];
          target.copy_(part.view(target.scalar_type()).view(target.sizes()));
        }
    }
    begin = end;
  }
}

void require_same_bits(const comm::Group& group, const std::vector<NamedTensor>& tensors, const std::string& what) {
  std::vector<std::int64_t> mine;
  for (const NamedTensor& named : tensors) mine.push_back(as_number(hash_of(named.tensor)));
  // 8 bytes per rank; the hashes of single tensors are exchanged only when these differ
  const auto sums = comm::all_gather_numbers(group, {as_number(hash_bytes(mine.data(), mine.size() * sizeof mine[0]))});
  if (std::all_of(sums.begin(), sums.end(), [&](const auto& sum) { return sum == sums[0]; })) return;
  const auto hashes = comm::all_gather_numbers(group, mine);
  // Users and logs refer to the job's ranks; a group that the caller supplied may not belong to a job.
  const std::vector<std::string> ranks =
      comm::all_gather_text(group, concat(initialized() ? world().rank() : group.rank()));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::vector<std::int64_t> of_tensor;
    for (const auto& of_rank : hashes) of_tensor.push_back(of_rank[i]);
    const std::string odd = describe_odd_ranks(of_tensor, ranks);
    if (odd.empty()) continue;
    throw ReplicasDiffer(
        concat("replicas differ: ", what, " '", tensors[i].name, "'", odd, " (", tensors[i].tensor.numel(),
               " elements, group '", group.name(), "' of ranks ", join(ranks, ", "), initialized() ? " of the job" : "",
               "); something changed it on one rank only (failing memory?), or the update is not deterministic"));
  }
}

}  // namespace tessera::parallel
