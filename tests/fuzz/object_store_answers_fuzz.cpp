/// \file
/// libFuzzer entry for an object store's answers: listings, uploads, parts, refusals.

#include <tessera/base/error.h>
#include <tessera/storage/answers.h>

#include <cstddef>
#include <cstdint>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera::storage;
  HttpAnswer answer;
  answer.status = 500;
  answer.body.assign(reinterpret_cast<const char*>(data), size);
  (void)refusal_of(answer);
  try {
    const XmlElement root = parse_xml(answer.body);
    (void)problem_in_answer(answer);
    (void)read_uploads(root, "key");
    std::vector<StoredPart> parts;
    (void)read_parts(root, parts);
    Listing listing;
    (void)read_listing(root, listing);
  } catch (const tessera::Error&) {  // refused
  }
  return 0;
}
