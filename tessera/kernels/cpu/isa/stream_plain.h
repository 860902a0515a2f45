#pragma once
/// \file
/// Stores that bypass the cache without explicit instructions: 64-bit ARM processors detect that whole lines are
/// overwritten one after another, and do not read them first. Included by tables inside an anonymous namespace.

template <int Bytes>
inline void stream_store(void* to, const void* from) {
  __builtin_memcpy(to, from, Bytes);
}
inline void stream_fence() {}  // ordinary stores are ordered by the release store that publishes them
