#pragma once
/// \file
/// Reads members of a model's config.json with their bounds, for models and planner. Every error is an InputError
/// "file:line:column: ...".

#include <tessera/base/value.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace tessera::architectures {

/// Null or absent means not given.
const Value* given(const Value& json, const char* key);
/// A required integer in [1, 2^24]: products of two sizes and a small number stay far below 2^63.
std::int64_t positive(const Value& json, const char* key);
std::int64_t positive_or(const Value& json, const char* key, std::int64_t otherwise);
double positive_real(const Value& json, const char* key, double otherwise);
/// In [0, 1).
double probability(const Value& json, const char* key, double otherwise);
/// Throws if the word is given but not in `accepted`.
void refuse_other(const Value& json, const char* key, std::initializer_list<const char*> accepted);
bool flag(const Value& json, const char* key, bool otherwise);
/// Throws unless the configuration is a JSON object.
void require_object(const Value& json);
/// Throws if `part`, the value of `key`, is greater than `whole`; `what` describes both, such as "experts in
/// num_experts_per_tok".
void check_part(const Value& json, const char* key, std::int64_t part, std::int64_t whole, const char* what);
/// Every decoder_sparse_step-th layer has experts, except those listed in mlp_only_layers.
std::vector<bool> sparse_layers(const Value& json, std::int64_t layers);

}  // namespace tessera::architectures
