#pragma once
/// \file
/// Reading members of a config.json with ranges. Every error is an InputError "file:line:column: ...".

#include <tessera/base/value.h>

#include <cstdint>
#include <initializer_list>
#include <string>

namespace tessera::models {

/// Null or absent is "not given".
const Value* given(const Value& json, const char* key);
/// A needed integer in [1, 2^31].
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

}  // namespace tessera::models
