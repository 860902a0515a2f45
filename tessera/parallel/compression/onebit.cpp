#include <tessera/parallel/compression/onebit.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <tessera/base/error.h>

#include <algorithm>

namespace tessera::parallel {

namespace {

// One magnitude per piece; a piece is what a segment has in the part of flat that is coded.
std::vector<FlatRange> pieces_in(const std::vector<FlatRange>& segments, FlatRange part) {
  std::vector<FlatRange> result;
  for (const FlatRange& s : segments) {
    const std::int64_t from = std::max(s.begin, part.begin), to = std::min(s.begin + s.numel, part.begin + part.numel);
    result.push_back({from, std::max<std::int64_t>(to - from, 0)});
  }
  return result;
}

// [pieces]: mean magnitude of each in `values`, whose first element is element `begin` of flat. It is the factor of the
// signs that is nearest in least squares.
at::Tensor magnitudes(const at::Tensor& values, std::int64_t begin, const std::vector<FlatRange>& pieces) {
  const at::Tensor result = at::zeros({static_cast<std::int64_t>(pieces.size())}, values.options());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].numel == 0) continue;
    result[static_cast<std::int64_t>(i)].copy_(values.narrow(0, pieces[i].begin - begin, pieces[i].numel).abs().mean());
  }
  return result;
}

// signs x magnitudes, zero outside of the pieces.
at::Tensor decoded(const at::Tensor& bits, std::int64_t n, std::int64_t begin, const std::vector<FlatRange>& pieces,
                   const at::Tensor& factors) {
  const at::Tensor signs = unpack_signs(bits, n, factors.scalar_type());
  const at::Tensor result = at::zeros({n}, factors.options());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const FlatRange& piece = pieces[i];
    if (piece.numel == 0) continue;
    result.narrow(0, piece.begin - begin, piece.numel)
        .copy_(signs.narrow(0, piece.begin - begin, piece.numel))
        .mul_(factors[static_cast<std::int64_t>(i)]);
  }
  return result;
}

}  // namespace

at::Tensor pack_signs(const at::Tensor& values) {
  const std::int64_t n = values.numel();
  const at::Tensor bits = at::zeros({(n + 7) / 8}, at::kByte);
  auto* const out = bits.data_ptr<std::uint8_t>();
  const auto pack = [&](const auto* in) {
    for (std::int64_t i = 0; i < n; ++i) out[i >> 3] |= static_cast<std::uint8_t>((in[i] < 0 ? 0 : 1) << (i & 7));
  };
  if (values.scalar_type() == at::kDouble) {
    pack(values.const_data_ptr<double>());
  } else {
    pack(values.const_data_ptr<float>());
  }
  return bits;
}

at::Tensor unpack_signs(const at::Tensor& bits, std::int64_t n, at::ScalarType dtype) {
  const at::Tensor signs = at::empty({n}, dtype);
  const auto* const in = bits.const_data_ptr<std::uint8_t>();
  const auto unpack = [&](auto* out) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = (in[i >> 3] >> (i & 7) & 1) != 0 ? 1 : -1;
  };
  if (dtype == at::kDouble) {
    unpack(signs.data_ptr<double>());
  } else {
    unpack(signs.data_ptr<float>());
  }
  return signs;
}

comm::Work OneBitCompression::reduce(const ReductionRequest& request) {
  const at::NoGradGuard no_grad;
  begin(request);
  const comm::Group& group = request.group;
  if (group.size() == 1 || steps() < warmup_ || request.segments.empty()) return plain(request);
  TESSERA_CHECK(request.flat.is_cpu(), "compression 'onebit' codes on the CPU; flat gradient '", request.key,
                "' is on ", request.flat.device().str(), ". Use powersgd or bf16 there.");
  const std::int64_t n = request.flat.numel(), size = group.size(), part = (n + size - 1) / size;
  const std::int64_t rank = group.rank(), bytes = (part + 7) / 8;
  std::vector<FlatRange> segments;
  for (const CompressedSegment& s : request.segments) segments.push_back({s.offset, s.numel});
  const std::vector<FlatRange> rest = complement(segments, n);
  const auto count = static_cast<std::int64_t>(segments.size());

  const at::Tensor gradient = in_compute_dtype(request.flat);
  const at::Tensor exact = packed(gradient, rest);
  all_reduce(group, exact).wait();

  // Worker: signs by part, one magnitude per parameter.
  at::Tensor& error = error_of(errors_, concat(request.key, ".worker"), steps(), n, gradient.options());
  const at::Tensor corrected = gradient.add(error);
  const at::Tensor factors = magnitudes(corrected, 0, segments);
  const at::Tensor sent = at::zeros({size, bytes}, at::kByte);
  const at::Tensor left = corrected.clone();
  for (std::int64_t r = 0; r < size; ++r) {
    const std::int64_t begin = std::min(r * part, n), numel = std::min(part, n - begin);
    const at::Tensor bits = pack_signs(corrected.narrow(0, begin, numel));
    sent[r].narrow(0, 0, bits.numel()).copy_(bits);
    left.narrow(0, begin, numel).sub_(decoded(bits, numel, begin, pieces_in(segments, {begin, numel}), factors));
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
  const std::vector<FlatRange> mine = pieces_in(segments, {begin, numel});
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
        .copy_(decoded(all_bits[r], length, from, pieces_in(segments, {from, length}), all_factors[r]));
  }
  write_output(request, rest, exact.div(divisor(request)));
  return {};
}

std::vector<std::pair<std::string, at::Tensor>> OneBitCompression::state() const {
  auto result = errors_.state();
  result.emplace_back("steps", steps_state());
  return result;
}

void OneBitCompression::restore(const std::vector<std::pair<std::string, at::Tensor>>& state) {
  restore_steps(state);
  errors_.restore(state, steps());
}

}  // namespace tessera::parallel
