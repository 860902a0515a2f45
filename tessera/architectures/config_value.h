#pragma once
/// \file
/// Members of a model's config.json with their bounds, as models and the planner read them. Every error is an
/// InputError "file:line:column: ...".

#include <tessera/base/value.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace tessera::architectures {

/// Null or absent is "not given".
const Value* given(const Value& json, const char* key);
/// A needed integer in [1, 2^24]: products of two sizes and a small number stay far below 2^63.
std::int64_t positive(const Value& json, const char* key);
std::int64_t positive_or(const Value& json, const char* key, std::int64_t otherwise);
double positive_real(const Value& json, const char* key, double otherwise);
/// In [0, 1).
double probability(const Value& json, const char* key, double otherwise);
/// A word, where given, that is none of `accepted` throws.
void refuse_other(const Value& json, const char* key, std::initializer_list<const char*> accepted);
bool flag(const Value& json, const char* key, bool otherwise);
/// The configuration itself must be a JSON object.
void require_object(const Value& json);
/// "experts in num_experts_per_tok" and the like: throws where `part`, which `key` says, is more than `whole`; `what`
/// says of what.
void check_part(const Value& json, const char* key, std::int64_t part, std::int64_t whole, const char* what);
/// Every decoder_sparse_step-th layer has experts, but for those that mlp_only_layers lists.
std::vector<bool> sparse_layers(const Value& json, std::int64_t layers);

}  // namespace tessera::architectures
