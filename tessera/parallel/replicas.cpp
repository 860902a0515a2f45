#include <tessera/parallel/replicas.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/parallel/sharding/hash.h>

#include <algorithm>
#include <cstring>

namespace tessera::parallel {
namespace {

constexpr std::int64_t piece_bytes =
    25 << 20;  // as DDP's buckets: large enough for full bandwidth, small beside a model

/// int64 [values.size()] of every rank: [ranks][values].
std::vector<std::vector<std::int64_t>> all_gather_numbers(const comm::Group& group,
                                                          const std::vector<std::int64_t>& values) {
  const auto n = static_cast<std::int64_t>(values.size());
  std::vector<std::vector<std::int64_t>> result(static_cast<std::size_t>(group.size()), values);
  if (n == 0) return result;
  const at::Tensor input = at::tensor(values, at::kLong).to(group.device());
  at::Tensor output = at::empty({group.size() * n}, input.options());
  group.all_gather(output, input).wait();
  output = output.cpu();
  for (std::size_t r = 0; r < result.size(); ++r)
    std::copy_n(output.const_data_ptr<std::int64_t>() + static_cast<std::int64_t>(r) * n, n, result[r].begin());
  return result;
}

std::int64_t as_number(std::uint64_t hash) { return static_cast<std::int64_t>(hash); }

std::string describe(const NamedTensor& named) {
  const at::Tensor& t = named.tensor;
  return concat("'", named.name, "' ", c10::toString(t.scalar_type()), " ", t.sizes(), " strides ", t.strides(),
                t.requires_grad() ? "" : " (no gradient)");
}

/// The bytes of a tensor: uint8 [nbytes], a copy unless it is contiguous already.
at::Tensor bytes_of(const at::Tensor& tensor) { return tensor.detach().contiguous().reshape({-1}).view(at::kByte); }

/// Bit by bit: the values in memory order, strides left out (require_same_structure compares those).
std::uint64_t hash_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  const at::Tensor bytes = bytes_of(tensor).cpu();
  return hash_bytes(bytes.const_data_ptr(), static_cast<std::size_t>(bytes.numel()));
}

}  // namespace

std::vector<std::string> all_gather_text(const comm::Group& group, const std::string& text) {
  const auto lengths = all_gather_numbers(group, {static_cast<std::int64_t>(text.size())});
  std::int64_t longest = 1;
  for (const auto& length : lengths) longest = std::max(longest, length[0]);
  at::Tensor input = at::zeros({longest}, at::kByte);
  std::memcpy(input.data_ptr(), text.data(), text.size());
  input = input.to(group.device());
  at::Tensor output = at::empty({group.size() * longest}, input.options());
  group.all_gather(output, input).wait();
  output = output.cpu();
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < lengths.size(); ++r)
    texts.emplace_back(static_cast<const char*>(output.const_data_ptr()) + static_cast<std::int64_t>(r) * longest,
                       static_cast<std::size_t>(lengths[r][0]));
  return texts;
}

void require_same_structure(const comm::Group& group, const std::vector<NamedTensor>& tensors,
                            const std::string& what) {
  std::string mine;
  for (const NamedTensor& named : tensors) mine += describe(named) + "\n";
  const auto hashes = all_gather_numbers(group, {as_number(hash_bytes(mine.data(), mine.size()))});
  if (std::all_of(hashes.begin(), hashes.end(), [&](const auto& hash) { return hash == hashes[0]; })) return;
  const std::vector<std::string> texts = all_gather_text(group, mine);
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
          // clone(): a fresh allocation is aligned for the tensor's dtype, an offset into the piece need not be.
          at::Tensor part = piece.narrow(0, offset, static_cast<std::int64_t>(tensors[i].nbytes())).clone();
          at::Tensor target = tensors[i];
          target.copy_(part.view(target.scalar_type()).view(target.sizes()));
        }
    }
    begin = end;
  }
}

namespace {

/// The first rank whose i-th number is not what most ranks have (of two that differ, or without a majority: not rank
/// 0's); the number of ranks when all are equal.
std::size_t odd_one_out(const std::vector<std::vector<std::int64_t>>& numbers, std::size_t i) {
  const auto votes = [&](std::int64_t value) {
    return static_cast<std::size_t>(
        std::count_if(numbers.begin(), numbers.end(), [&](const auto& n) { return n[i] == value; }));
  };
  std::int64_t usual = numbers[0][i];
  for (const auto& n : numbers)
    if (votes(n[i]) > votes(usual)) usual = n[i];
  for (std::size_t r = 0; r < numbers.size(); ++r)
    if (numbers[r][i] != usual) return r;
  return numbers.size();
}

}  // namespace

void require_same_bits(const comm::Group& group, const std::vector<NamedTensor>& tensors, const std::string& what) {
  std::vector<std::int64_t> mine;
  for (const NamedTensor& named : tensors) mine.push_back(as_number(hash_of(named.tensor)));
  // 8 bytes per rank; those of every tensor only when they differ
  const auto sums = all_gather_numbers(group, {as_number(hash_bytes(mine.data(), mine.size() * sizeof mine[0]))});
  if (std::all_of(sums.begin(), sums.end(), [&](const auto& sum) { return sum == sums[0]; })) return;
  const auto hashes = all_gather_numbers(group, mine);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t odd = odd_one_out(hashes, i);
    if (odd == hashes.size()) continue;
    const bool outvoted =
        std::count_if(hashes.begin(), hashes.end(), [&](const auto& h) { return h[i] != hashes[odd][i]; }) > 1;
    throw ReplicasDiffer(
        concat("replicas differ: ", what, " '", tensors[i].name, "' on rank ", odd, " has other bits than on ",
               outvoted ? "most ranks" : concat("rank ", odd == 0 ? 1 : 0), " (", tensors[i].tensor.numel(),
               " elements, group '", group.name(),
               "'); something changed it on one rank only (failing memory?), or the update is not deterministic"));
  }
}

}  // namespace tessera::parallel
