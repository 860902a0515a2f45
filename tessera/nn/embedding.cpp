#include <tessera/nn/embedding.h>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tessera/base/error.h>
#include <tessera/kernels/cpu/rows.h>
#include <tessera/nn/accumulate.h>
#include <tessera/nn/attention.h>
#include <tessera/nn/device/kernels.h>
#include <tessera/nn/fused.h>
#include <tessera/nn/materialized.h>
#include <tessera/nn/parallel_for.h>
#include <tessera/nn/parameter_semantics.h>

#include <algorithm>

namespace tessera::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// sum[id] += its row of dy, in token order: threads divide the columns.
void add_token_rows(const at::Tensor& sum, const at::Tensor& dy, const at::Tensor& ids, std::int64_t padding_idx) {
  const std::int64_t columns = sum.size(1), tokens = ids.numel();
  const at::Tensor rows = dy.contiguous(), places = ids.contiguous();
  const float* const from = rows.const_data_ptr<float>();
  const std::int64_t* const id = places.const_data_ptr<std::int64_t>();
  float* const to = sum.mutable_data_ptr<float>();
  parallel_for(0, columns, std::max<std::int64_t>(16, 16384 / std::max<std::int64_t>(1, tokens)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = 0; i < tokens; ++i) {
                   if (id[i] == padding_idx) continue;
                   float* const place = to + id[i] * columns + begin;
                   kernels::add_rows(place, from + i * columns + begin, nullptr, place, 1, end - begin);
                 }
               });
}

/// at::embedding whose gradient is added to that of earlier passes (accumulate.h) without a table of zeros.
struct TableRows : torch::autograd::Function<TableRows> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& table, const at::Tensor& ids,
                            std::int64_t padding_idx) {
    ctx->save_for_backward({table, ids});
    ctx->saved_data["padding"] = padding_idx;
    return at::embedding(table, ids, padding_idx);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &table = saved[0], &ids = saved[1], &dy = gradients[0];
    const std::int64_t padding = ctx->saved_data["padding"].toInt();
    const at::Tensor sum =
        fusable({table, dy}) && ids.scalar_type() == at::kLong ? gradient_to_add_to(table) : at::Tensor();
    if (!sum.defined())
      return {at::embedding_dense_backward(dy, ids, table.size(0), padding, /*scale_grad_by_freq=*/false), {}, {}};
    add_token_rows(sum, dy, ids, padding);
    return {at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

/// The sum of rows of both tables, computed by a device's kernel. ids [B, T], positions [T, C]: the part that is used.
struct EmbeddedSum : torch::autograd::Function<EmbeddedSum> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& ids, const at::Tensor& tokens,
                            const at::Tensor& given_positions) {
    const Materialized materialized({&tokens, &given_positions});
    const at::Tensor table = tokens.contiguous(), positions = given_positions.contiguous(), rows = ids.contiguous();
    const at::Tensor y = at::empty({ids.size(0), ids.size(1), table.size(1)}, table.options());
    const c10::DeviceGuard guard(table.device());
    device_kernels({table})->embedded_sum({.ids = rows.const_data_ptr<std::int64_t>(),
                                           .tokens = const_reals(table),
                                           .places = const_reals(positions),
                                           .y = reals(y),
                                           .vocabulary = table.size(0),
                                           .period = ids.size(1)},
                                          ids.numel(), table.size(1));
    ctx->save_for_backward({rows});
    ctx->saved_data["vocabulary"] = table.size(0);
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const at::Tensor& dy = gradients[0];
    at::Tensor dtokens, dpositions;
    if (ctx->needs_input_grad(1))
      dtokens = at::embedding_dense_backward(dy, ctx->get_saved_variables()[0], ctx->saved_data["vocabulary"].toInt(),
                                             /*padding_idx=*/-1, /*scale_grad_by_freq=*/false);
    if (ctx->needs_input_grad(2)) dpositions = dy.sum(0);
    return {at::Tensor(), dtokens, dpositions};
  }
};

/// Whether a device kernel supports both look-ups in one pass.
bool embeds_at_once(const at::Tensor& ids, const at::Tensor& tokens, const at::Tensor& positions) {
  return ids.is_cuda() && ids.scalar_type() == at::kLong && ids.numel() > 0 && tokens.dim() == 2 &&
         tokens.scalar_type() == positions.scalar_type() && semantics_of(tokens) == nullptr &&
         device_kernels({tokens, positions}) != nullptr && ids.device() == tokens.device();
}

}  // namespace

at::Tensor embed_tokens(const at::Tensor& table, const at::Tensor& ids, std::int64_t padding_idx) {
  if (const ParameterSemantics* cut = semantics_of(table))
    return cut->embedding(table, ids, padding_idx, /*whole=*/true);
  if (AccumulateInPlace::active() && at::GradMode::is_enabled() && table.is_cpu())
    return TableRows::apply(table, ids, padding_idx);
  return at::embedding(table, ids, padding_idx);
}

at::Tensor own_tokens(const at::Tensor& table, const at::Tensor& x) {
  const ParameterSemantics* const cut = semantics_of(table);
  return cut != nullptr ? cut->own_tokens(x) : x;
}

at::Tensor all_tokens(const at::Tensor& table, const at::Tensor& x) {
  const ParameterSemantics* const cut = semantics_of(table);
  return cut != nullptr ? cut->all_tokens(x) : x;
}

void begin_with(const at::Tensor& parameter, const at::Tensor& x) {
  if (const ParameterSemantics* const cut = semantics_of(parameter)) cut->begin_with(x);
}

std::int64_t first_own_token(const at::Tensor& table, std::int64_t tokens) {
  const ParameterSemantics* const cut = semantics_of(table);
  return cut != nullptr ? cut->first_token(tokens) : 0;
}

std::int64_t first_own(const at::Tensor& parameter, int dim) {
  const ParameterSemantics* const cut = semantics_of(parameter);
  return cut != nullptr ? cut->first_along(dim) : 0;
}

at::Tensor embed(const at::Tensor& ids, const at::Tensor& tokens, const at::Tensor& positions,
                 std::int64_t first_position, const DocumentStarts& documents) {
  TESSERA_CHECK(ids.dim() == 2, "embed expects ids [B, T], got ", ids.dim(), " dimensions");
  const std::int64_t t = ids.size(1), end = first_position + t;
  TESSERA_CHECK(end <= positions.size(0), "positions up to ", end, " requested from a table of ", positions.size(0));
  if (!documents.empty()) return embed_at(ids, tokens, positions, document_positions(documents, ids.size(0), t));
  const at::Tensor places = positions.slice(0, first_position, end);
  if (embeds_at_once(ids, tokens, places)) return EmbeddedSum::apply(ids, tokens, places);
  return embed_tokens(tokens, ids) + places;
}

at::Tensor embed_at(const at::Tensor& ids, const at::Tensor& tokens, const at::Tensor& positions,
                    const at::Tensor& places) {
  return embed_tokens(tokens, ids) + at::embedding(positions, places.view({-1, ids.size(1)}).to(ids.device()));
}

}  // namespace tessera::nn
