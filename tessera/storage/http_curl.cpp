// The plug-in: HTTP through libcurl, digests through libcrypto.

#include <tessera/storage/http.h>

#include <curl/curl.h>
#include <openssl/evp.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <string_view>

#include <tessera/base/text.h>

namespace tessera::storage {
namespace {

constexpr std::size_t most_header_bytes = std::size_t{64} << 10;
constexpr std::uint64_t most_refusal_bytes = std::uint64_t{64} << 10;  // an error's XML body

struct Handle {
  CURL* curl = nullptr;
  ~Handle() { curl_easy_cleanup(curl); }
};

/// This thread's handle, which keeps its connection between requests.
CURL* own_handle() {
  static const CURLcode once = curl_global_init(CURL_GLOBAL_DEFAULT);
  thread_local Handle handle;
  if (handle.curl == nullptr && once == CURLE_OK) handle.curl = curl_easy_init();
  if (handle.curl != nullptr) curl_easy_reset(handle.curl);
  return handle.curl;
}

/// Blocks SIGPIPE in this thread: a peer that closes the connection must not kill the program.
class NoSigpipe {
 public:
  NoSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &former_);
  }
  ~NoSigpipe() {
    sigset_t pending;
    sigpending(&pending);
    const timespec now{};
    if (!was_pending_ && sigismember(&pending, SIGPIPE) == 1) sigtimedwait(&pipe_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &former_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_, former_;
  bool was_pending_ = false;
};

struct Arriving {
  HttpAnswer answer = {};
  std::uint64_t most_bytes = 0;
  std::size_t header_bytes = 0;
  bool refused = false;  // the status is not 2xx, so the body is an error message
  const char* too_much = nullptr;
  const std::atomic<bool>* cancelled = nullptr;
};

// libcurl calls these from C: no exception may propagate through it.
std::size_t take_body(char* bytes, std::size_t, std::size_t count, void* into) noexcept {
  auto& arriving = *static_cast<Arriving*>(into);
  const std::uint64_t most = arriving.refused ? std::max(arriving.most_bytes, most_refusal_bytes) : arriving.most_bytes;
  if (arriving.answer.body.size() + count > most) {
    arriving.too_much = "the response is longer than requested";
    return 0;
  }
  try {
    arriving.answer.body.append(bytes, count);
  } catch (const std::bad_alloc&) {
    arriving.too_much = "out of memory for the response";
    return 0;
  }
  return count;
}

std::size_t take_header(char* bytes, std::size_t, std::size_t count, void* into) noexcept {
  auto& arriving = *static_cast<Arriving*>(into);
  arriving.header_bytes += count;
  if (arriving.header_bytes > most_header_bytes) {
    arriving.too_much = "the response's headers are longer than 64 KiB";
    return 0;
  }
  try {
    const std::string_view line(bytes, count);
    if (line.starts_with("HTTP/")) {  // "100 Continue" precedes the real response
      arriving.answer.headers.clear();
      arriving.refused = line.find(" 2") != line.find(' ');
    }
    if (const std::size_t colon = line.find(':'); colon != std::string_view::npos)
      arriving.answer.headers[to_lower(trim(line.substr(0, colon)))] = trim(line.substr(colon + 1));
  } catch (const std::bad_alloc&) {
    arriving.too_much = "out of memory for the response";
    return 0;
  }
  return count;
}

int look_up(void* into, curl_off_t, curl_off_t, curl_off_t, curl_off_t) noexcept {
  const std::atomic<bool>* cancelled = static_cast<Arriving*>(into)->cancelled;
  return cancelled != nullptr && cancelled->load(std::memory_order_relaxed) ? 1 : 0;
}

void set_request(CURL* curl, const HttpRequest& request) {
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L);  // the signature covers the path verbatim
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, request.url.starts_with("https:") ? "https" : "http");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 10L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, 30L);
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, long{CURL_HTTP_VERSION_1_1});
  if (request.method == "HEAD") {
    curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    return;
  }
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, request.method.c_str());
  if (request.method == "GET" || request.method == "DELETE") return;
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS,
                   request.body.empty() ? "" : reinterpret_cast<const char*>(request.body.data()));
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
}

HttpAnswer perform(const HttpRequest& request, const Access& access, const std::atomic<bool>* cancelled) {
  const NoSigpipe no_sigpipe;
  Arriving arriving{.most_bytes = request.most_bytes, .cancelled = cancelled};
  CURL* const curl = own_handle();
  if (curl == nullptr) {
    arriving.answer.failure = "libcurl cannot be initialized";
    return std::move(arriving.answer);
  }
  set_request(curl, request);
  const std::string scheme = concat("aws:amz:", access.region, ":s3");
  curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, scheme.c_str());
  curl_easy_setopt(curl, CURLOPT_USERNAME, access.key_id.c_str());
  curl_easy_setopt(curl, CURLOPT_PASSWORD, access.secret.c_str());
  curl_slist* list = nullptr;
  for (const auto& [name, value] : request.headers) list = curl_slist_append(list, concat(name, ": ", value).c_str());
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(list, curl_slist_free_all);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, list);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &arriving);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &arriving);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look_up);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &arriving);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  std::array<char, CURL_ERROR_SIZE> why{};
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why.data());
  const CURLcode code = curl_easy_perform(curl);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, nullptr);
  if (code == CURLE_OK) {
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    arriving.answer.status = static_cast<int>(status);
  } else {
    arriving.answer.failure = arriving.too_much != nullptr ? arriving.too_much
                              : why[0] != '\0'             ? why.data()
                                                           : curl_easy_strerror(code);
  }
  return std::move(arriving.answer);
}

std::string digest_text(std::span<const std::byte> bytes, const EVP_MD* kind) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, kind, nullptr) != 1) return "";
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    text += "0123456789abcdef"[digest[i] >> 4];
    text += "0123456789abcdef"[digest[i] & 15];
  }
  return text;
}

std::string sha256(std::span<const std::byte> bytes) { return digest_text(bytes, EVP_sha256()); }
std::string md5(std::span<const std::byte> bytes) { return digest_text(bytes, EVP_md5()); }

}  // namespace

extern "C" const HttpPlugin* tessera_http_plugin() {
  static constexpr HttpPlugin plugin{perform, sha256, md5};
  return &plugin;
}

}  // namespace tessera::storage
