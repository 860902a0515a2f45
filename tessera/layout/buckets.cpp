#include <tessera/base/error.h>
#include <tessera/layout/flat.h>
#include <algorithm>
#include <map>

namespace tessera::layout {

namespace {

struct Bucket {
  std::vector<std::size_t> parameters;
  std::int64_t bytes = 0;
  std::size_t last = 0;  ///< position of the last member in the order, when the bucket can be reduced
};

}  // namespace

std::vector<std::vector<std::size_t>> assign_buckets(std::span<const Parameter> parameters,
                                                     std::span<const std::size_t> order,
                                                     std::int64_t first_bucket_bytes, std::int64_t bucket_bytes) {
  if (first_bucket_bytes < 0 || bucket_bytes < 0) {
    throw InputError(concat("bucket caps must not be negative: first ", first_bucket_bytes, " bytes, others ",
                            bucket_bytes, " bytes"));
  }
  std::vector<Bucket> closed;
  std::map<std::int64_t, Bucket> filling;    // by element size
  std::map<std::int64_t, std::int64_t> cap;  // cap of the bucket being filled, in bytes
  std::vector<bool> placed(parameters.size(), false);
  for (std::size_t position = 0; position < order.size(); ++position) {
    const std::size_t index = order[position];
    TESSERA_CHECK(index < parameters.size(), "index ", index, " among ", parameters.size(), " parameters");
    TESSERA_CHECK(!placed[index], "parameter '", parameters[index].name, "' is named twice");
    placed[index] = true;
    const std::int64_t key = parameters[index].element_size;
    Bucket& bucket = filling[key];
    if (__builtin_add_overflow(bucket.bytes, parameters[index].bytes(), &bucket.bytes)) {
      throw InputError(
          concat("the size of the bucket of parameter '", parameters[index].name, "' does not fit in 64 bits"));
    }
    bucket.parameters.push_back(index);
    bucket.last = position;
    if (bucket.bytes >= cap.try_emplace(key, first_bucket_bytes).first->second) {
      closed.push_back(std::move(bucket));
      bucket = {};
      cap[key] = bucket_bytes;
    }
  }
  for (auto& [key, bucket] : filling) {
    if (!bucket.parameters.empty()) closed.push_back(std::move(bucket));
  }
  std::sort(closed.begin(), closed.end(), [](const Bucket& a, const Bucket& b) { return a.last < b.last; });
  std::vector<std::vector<std::size_t>> result;
  result.reserve(closed.size());
  for (Bucket& bucket : closed) result.push_back(std::move(bucket.parameters));
  return result;
}

}  // namespace tessera::layout
