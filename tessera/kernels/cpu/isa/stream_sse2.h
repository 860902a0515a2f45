#pragma once
/// \file
/// Stores that bypass the cache, with instructions that every x86-64 processor has. Included by table_baseline_x86.cpp
/// inside an anonymous namespace.

/// Stores bytes, bypassing the cache; `to` is aligned to Bytes, a multiple of 16.
template <int Bytes>
inline void stream_store(void* to, const void* from) {
  for (int i = 0; i < Bytes / 16; ++i)
    _mm_stream_si128(static_cast<__m128i*>(to) + i, _mm_loadu_si128(static_cast<const __m128i*>(from) + i));
}
inline void stream_fence() { _mm_sfence(); }
