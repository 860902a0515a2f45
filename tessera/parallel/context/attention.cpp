#include <tessera/parallel/context/attention.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/nn/autocast.h>
#include <tessera/parallel/context/block_attention.h>
#include <tessera/parallel/context/exchange.h>

#include <cmath>
#include <string>

namespace tessera {
namespace {

void check_tensors(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const bool shapes = q.dim() == 4 && k.dim() == 4 && v.sizes() == k.sizes() && q.size(0) == k.size(0) &&
                      q.size(1) == k.size(1) && q.size(3) == k.size(3) && k.size(2) > 0 && q.size(2) % k.size(2) == 0;
  if (!shapes)
    throw InputError(
        concat("context_attention expects q [B, t, heads, D] and k, v [B, t, key heads, D] with key heads "
               "dividing heads; q is ",
               c10::str(q.sizes()), ", k ", c10::str(k.sizes()), ", v ", c10::str(v.sizes())));
  if (q.scalar_type() != k.scalar_type() || q.scalar_type() != v.scalar_type() || !q.is_floating_point())
    throw InputError(concat("context_attention expects q, k, v of one floating-point type; they are ",
                            c10::toString(q.scalar_type()), ", ", c10::toString(k.scalar_type()), ", ",
                            c10::toString(v.scalar_type())));
}

/// Casts to the type that attention computes in under autocast, as scaled_dot_product_attention does.
at::Tensor cast(const at::Tensor& x) {
  const auto type = nn::libtorch_autocast_type(x.device().type());
  return type && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16)
             ? x.to(*type)
             : x;
}

/// Repeats keys so that every rank of the all-to-all receives the keys of its queries: each key head once per rank that
/// uses it.
at::Tensor for_ranks(const at::Tensor& k, std::int64_t ranks) {
  return k.size(2) % ranks == 0 ? k : k.repeat_interleave(ranks / k.size(2), 2);
}

}  // namespace

at::Tensor context_attention(const at::Tensor& given_q, const at::Tensor& given_k, const at::Tensor& given_v,
                             const ContextGroups& groups, const ContextAttentionOptions& options) {
  at::Tensor q = cast(given_q), k = cast(given_k), v = cast(given_v);
  check_tensors(q, k, v);
  const std::int64_t rows = q.size(0), heads = q.size(2), key_heads = k.size(2), d = q.size(3);
  const std::int64_t sharing = groups.head_ranks();
  if (heads % sharing != 0 || (key_heads % sharing != 0 && sharing % key_heads != 0))
    throw InputError(concat("context parallelism by ", context_method_name(groups.method), " divides heads over ",
                            sharing, " ranks: the number of heads (", heads,
                            ") must be a multiple of that, and the number of key heads (", key_heads,
                            ") a multiple or a divisor; use p2p or all_gather, which keep heads whole"));
  const layout::SequenceCut cut = groups.cut(q.size(1) * groups.ranks());
  const layout::Sight sight{.causal = options.causal,
                            .window = options.window >= cut.length ? 0 : options.window,
                            .documents = options.documents,
                            .lengths = options.lengths};
  layout::check_sight(cut, rows, sight);
  const double scale = options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(d));
  nn::WeightDropout dropout = options.dropout;
  if (sharing > 1) dropout.place.head += heads / sharing * groups.heads.rank();  // this rank's heads
  const auto plan = parallel::make_block_plan(groups.ring, groups.method == ContextMethod::all_gather, cut, rows, sight,
                                              {.scale = scale, .softcap = options.softcap, .dropout = dropout});
  if (sharing == 1) return parallel::block_attention(q, k, v, plan);
  const auto mine = parallel::tokens_for_heads({q, for_ranks(k, sharing), for_ranks(v, sharing)}, groups.heads);
  const at::Tensor mixed = parallel::block_attention(mine.q, mine.k, mine.v, plan);  // [B, a t, heads / a * D]
  return parallel::heads_for_tokens(mixed.view(mine.q.sizes()), groups.heads).reshape({rows, q.size(1), heads * d});
}

at::Tensor context_part(const at::Tensor& x, const ContextGroups& groups) {
  if (x.dim() < 2) throw InputError(concat("context_part expects [B, T, ...], got ", c10::str(x.sizes())));
  std::vector<at::Tensor> pieces;
  for (const layout::Range& range : layout::tokens_of(groups.cut(x.size(1)), groups.all.rank()))
    pieces.push_back(x.slice(1, range.begin, range.end));
  return at::cat(pieces, 1);
}

nn::AttentionFunction context_attention_function(const ContextGroups& groups) {
  return [groups](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const nn::AttentionCall& call) {
    TESSERA_CHECK(call.length == q.size(1) * groups.ranks(), "a part of ", q.size(1), " tokens on each of ",
                  groups.ranks(), " ranks, of a sequence of ", call.length);
    return context_attention(q, k, v, groups,
                             {.scale = call.options.scale,
                              .softcap = call.options.softcap,
                              .causal = call.causal,
                              .window = call.options.window,
                              .documents = call.documents,
                              .lengths = call.lengths,
                              .dropout = {call.options.dropout, call.options.random}});
  };
}

}  // namespace tessera
