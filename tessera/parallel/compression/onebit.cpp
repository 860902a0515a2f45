#include <tessera/parallel/compression/onebit.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <tessera/base/error.h>

#include <algorithm>
#include <cmath>

namespace tessera::parallel {

namespace {

template <class Body>
void with_type(at::ScalarType dtype, const Body& body) {
  if (dtype == at::kDouble) {
    body(double());
  } else {
    body(float());
  }
}

// Ranges with one magnitude each: the rows of matrices (an embedding's unused rows stay zero), or the whole parameter
// if rows are so short that there would be many magnitudes.
std::vector<FlatRange> blocks_of(const std::vector<CompressedSegment>& segments) {
  constexpr std::int64_t long_enough = 64;
  std::vector<FlatRange> result;
  for (const CompressedSegment& s : segments) {
    const std::int64_t rows =
        s.shape.size() >= 2 && s.numel > 0 && s.numel / s.shape[0] >= long_enough ? s.shape[0] : 1;
    for (std::int64_t r = 0; r < rows; ++r) result.push_back({s.offset + r * (s.numel / rows), s.numel / rows});
  }
  return result;
}

// The intersection of each block with the part of flat that is coded.
std::vector<FlatRange> pieces_in(const std::vector<FlatRange>& blocks, FlatRange part) {
  std::vector<FlatRange> result;
  result.reserve(blocks.size());
  for (const FlatRange& s : blocks) {
    const std::int64_t from = std::max(s.begin, part.begin), to = std::min(s.begin + s.numel, part.begin + part.numel);
    result.push_back({from, std::max<std::int64_t>(to - from, 0)});
  }
  return result;
}

// [pieces]: mean magnitude of each piece in `values`, which starts at element `begin` of flat. It is the least-squares
// optimal factor of the signs.
at::Tensor magnitudes(const at::Tensor& values, std::int64_t begin, const std::vector<FlatRange>& pieces) {
  const at::Tensor result = at::zeros({static_cast<std::int64_t>(pieces.size())}, values.options());
  with_type(values.scalar_type(), [&]<class T>(T) {
    const T* const x = values.const_data_ptr<T>();
    T* const out = result.data_ptr<T>();
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::int64_t from = pieces[i].begin - begin, n = pieces[i].numel;
      double sum = 0;
      for (std::int64_t j = from; j < from + n; ++j) sum += std::abs(x[j]);
      if (n > 0) out[i] = static_cast<T>(sum / static_cast<double>(n));
    }
  });
  return result;
}

// signs x magnitudes; zero outside of the pieces.
at::Tensor decoded(const at::Tensor& bits, std::int64_t n, std::int64_t begin, const std::vector<FlatRange>& pieces,
                   const at::Tensor& factors) {
  const at::Tensor result = at::zeros({n}, factors.options());
  with_type(factors.scalar_type(), [&]<class T>(T) {
    const auto* const in = bits.const_data_ptr<std::uint8_t>();
    const T* const factor = factors.const_data_ptr<T>();
    T* const out = result.data_ptr<T>();
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::int64_t from = pieces[i].begin - begin;
      for (std::int64_t j = from; j < from + pieces[i].numel; ++j) {
        out[j] = (in[j >> 3] >> (j & 7) & 1) != 0 ? factor[i] : -factor[i];
      }
    }
  });
  return result;
}

}  // namespace

at::Tensor pack_signs(const at::Tensor& values) {
  const std::int64_t n = values.numel();
  const at::Tensor bits = at::zeros({(n + 7) / 8}, at::kByte);
  auto* const out = bits.data_ptr<std::uint8_t>();
  with_type(values.scalar_type(), [&]<class T>(T) {
    const T* const in = values.const_data_ptr<T>();
    for (std::int64_t i = 0; i < n; ++i) out[i >> 3] |= static_cast<std::uint8_t>((in[i] < 0 ? 0 : 1) << (i & 7));
  });
  return bits;
}

comm::Work OneBitCompression::reduce(const ReductionRequest& request) {
  const at::NoGradGuard no_grad;
  begin(request);
  const comm::Group& group = request.group;
  if (!request.flat.is_cpu())  // checked in the first step already, not only after the uncompressed first steps
    throw InputError(concat("compression 'onebit' packs signs on the CPU; flat gradient '", request.key, "' is on ",
                            request.flat.device().str(), ": use powersgd or bf16 there"));
  if (group.size() == 1 || steps() < warmup_ || request.segments.empty()) return plain(request);
  const std::int64_t n = request.flat.numel(), size = group.size(), part = (n + size - 1) / size;
  const std::int64_t rank = group.rank(), bytes = (part + 7) / 8;
  std::vector<FlatRange> segments;
  for (const CompressedSegment& s : request.segments) segments.push_back({s.offset, s.numel});
  const std::vector<FlatRange> rest = complement(segments, n);
  const std::vector<FlatRange> blocks = blocks_of(request.segments);
  const auto count = static_cast<std::int64_t>(blocks.size());

  const at::Tensor gradient = in_compute_dtype(request.flat);
  const at::Tensor exact = packed(gradient, rest);
  all_reduce(group, exact).wait();

  // Worker: signs per part, one magnitude per block.
  at::Tensor& error = error_of(errors_, concat(request.key, ".worker"), steps(), n, gradient.options());
  const at::Tensor corrected = gradient.add(error);
  const at::Tensor factors = magnitudes(corrected, 0, blocks);
  const at::Tensor sent = at::zeros({size, bytes}, at::kByte);
  const at::Tensor left = corrected.clone();
  for (std::int64_t r = 0; r < size; ++r) {
    const std::int64_t begin = std::min(r * part, n), numel = std::min(part, n - begin);
    const at::Tensor bits = pack_signs(corrected.narrow(0, begin, numel));
    sent[r].narrow(0, 0, bits.numel()).copy_(bits);
    left.narrow(0, begin, numel).sub_(decoded(bits, numel, begin, pieces_in(blocks, {begin, numel}), factors));
  }
  for (const FlatRange& range : rest) left.narrow(0, range.begin, range.numel).zero_();
  if (all_finite(left)) error.copy_(left);

  const at::Tensor received = at::empty({size, bytes}, at::kByte),
                   all_factors = at::empty({size, count}, factors.options());
  comm::Work bits_work = all_to_all(group, received.view({-1}), sent.view({-1}));
  all_gather(group, all_factors.view({-1}), factors).wait();
  bits_work.wait();

  // Server of part `rank`.
  const std::int64_t begin = std::min(rank * part, n), numel = std::min(part, n - begin);
  const std::vector<FlatRange> mine = pieces_in(blocks, {begin, numel});
  const at::Tensor sum = at::zeros({numel}, factors.options());
  for (std::int64_t r = 0; r < size; ++r) sum.add_(decoded(received[r], numel, begin, mine, all_factors[r]));
  sum.div_(divisor(request));
  if (request.scatter) {
    request.output.copy_(sum);
    write_output(request, rest, exact.div(divisor(request)));
    return {};
  }
  at::Tensor& server_error = error_of(errors_, concat(request.key, ".server"), steps(), numel, gradient.options());
  sum.add_(server_error);
  const at::Tensor server_factors = magnitudes(sum, begin, mine);
  const at::Tensor bits = at::zeros({bytes}, at::kByte), server_bits = pack_signs(sum);
  bits.narrow(0, 0, server_bits.numel()).copy_(server_bits);
  const at::Tensor server_left = sum.sub(decoded(bits, numel, begin, mine, server_factors));
  if (all_finite(server_left)) server_error.copy_(server_left);

  const at::Tensor all_bits = at::empty({size, bytes}, at::kByte);
  bits_work = all_gather(group, all_bits.view({-1}), bits);
  all_gather(group, all_factors.view({-1}), server_factors).wait();
  bits_work.wait();
  for (std::int64_t r = 0; r < size; ++r) {
    const std::int64_t from = std::min(r * part, n), length = std::min(part, n - from);
    request.output.narrow(0, from, length)
        .copy_(decoded(all_bits[r], length, from, pieces_in(blocks, {from, length}), all_factors[r]));
  }
  write_output(request, rest, exact.div(divisor(request)));
  return {};
}

std::vector<std::pair<std::string, at::Tensor>> OneBitCompression::state() const {
  auto result = errors_.state();
  add_steps(result);
  return result;
}

void OneBitCompression::restore(const std::vector<std::pair<std::string, at::Tensor>>& state) {
  restore_steps(state);
  errors_.restore(state, steps());
}

}  // namespace tessera::parallel
