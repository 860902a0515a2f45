#include <tessera/launch/store/store_connection.h>

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace tessera::launch {

namespace {

constexpr std::size_t piece_bytes = 64 << 10;  // maximum read, hashed or sent at once
constexpr std::size_t kept_bytes = 64 << 10;   // capacity that an idle connection may retain

void empty(std::string& buffer) {
  buffer.clear();
  if (buffer.capacity() > kept_bytes) buffer.shrink_to_fit();
}

std::string_view piece_of(const std::string& text, std::size_t begin, std::size_t end) {
  return std::string_view(text).substr(begin, end - begin);
}

}  // namespace

bool StoreConnection::left_by_peer() const {
  int error = failure_;
  socklen_t length = sizeof error;
  if (error == 0 && getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) return false;
  return error == 0 || error == ECONNRESET || error == EPIPE;
}

StoreConnection::Progress StoreConnection::read(std::size_t budget, std::size_t payload_limit) {
  for (;;) {
    std::size_t wanted = wire::header_bytes;
    if (stage_ == Stage::hello) wanted = wire::hello_bytes;
    if (stage_ == Stage::proof) wanted = wire::proof_bytes;
    if (header_) wanted += header_->payload_bytes + wire::mac_bytes;
    if (in_.size() == wanted) {
      if (stage_ != Stage::session) return Progress::whole;
      if (header_) break;
      header_ = wire::read_header(in_);
      if (!header_ || header_->payload_bytes > payload_limit || header_->sequence != in_sequence_) {
        return Progress::invalid;
      }
      in_mac_.emplace(in_key_);
      authenticated_ = 0;
      continue;
    }
    if (budget == 0) return Progress::more;
    // The buffer grows with the bytes that arrive, never with the size that a header announces.
    const std::size_t had = in_.size(), piece = std::min({wanted - had, piece_bytes, budget});
    in_.resize(had + piece);
    const ssize_t got = recv(fd_.get(), in_.data() + had, piece, MSG_DONTWAIT);
    in_.resize(had + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return Progress::ended;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Progress::more;
      failure_ = errno;
      return Progress::ended;
    }
    budget -= static_cast<std::size_t>(got);
    if (header_) {
      const std::size_t end = std::min(in_.size(), wanted - wire::mac_bytes);
      if (end > authenticated_) in_mac_->update(piece_of(in_, authenticated_, end));
      authenticated_ = std::max(authenticated_, end);
    }
  }
  // A request without payload consists of a header only; it is not hashed yet when nothing but the MAC arrived.
  const std::size_t end = in_.size() - wire::mac_bytes;
  if (end > authenticated_) in_mac_->update(piece_of(in_, authenticated_, end));
  const Digest mac = in_mac_->finish();
  if (!equal_constant_time(mac, wire::as_bytes(piece_of(in_, end, in_.size())))) return Progress::invalid;
  const std::string_view payload = piece_of(in_, wire::header_bytes, end);
  if (!wire::read_payload(*header_, payload)) return Progress::invalid;
  ++in_sequence_;
  return Progress::whole;
}

wire::Message StoreConnection::take() const {
  return *wire::read_payload(*header_, piece_of(in_, wire::header_bytes, in_.size() - wire::mac_bytes));
}

void StoreConnection::finished() {
  empty(in_);
  header_.reset();
}

void StoreConnection::expect_proof(const Secret& secret, const wire::Nonce& client, const wire::Nonce& server) {
  expected_proof_ = wire::proof(secret, client, server);
  in_key_ = wire::client_key(secret, client, server);
  out_key_ = wire::server_key(secret, client, server);
  stage_ = Stage::proof;
}

bool StoreConnection::proof_is_right() const { return equal_constant_time(expected_proof_, wire::as_bytes(in_)); }

void StoreConnection::begin_session() { stage_ = Stage::session; }

bool StoreConnection::send_reply(const std::string& bytes) {
  return send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes.size());
}

void StoreConnection::answer(std::uint16_t kind, std::int64_t number, const std::vector<std::string>& fields) {
  const std::vector<std::string_view> views(fields.begin(), fields.end());
  out_ = wire::encode(kind, out_sequence_++, number, views);
  out_hashed_ = out_sent_ = 0;
  out_sealed_ = false;
  out_mac_.emplace(out_key_);
}

bool StoreConnection::flush(std::size_t budget) {
  while (!out_.empty()) {
    if (!out_sealed_ && out_hashed_ == out_sent_) {  // hashed piece by piece, so that a large answer causes no long
                                                     // pause
      const std::size_t end = std::min(out_hashed_ + piece_bytes, out_.size());
      out_mac_->update(piece_of(out_, out_hashed_, end));
      out_hashed_ = end;
      if (end == out_.size()) {
        const Digest mac = out_mac_->finish();
        out_.append(wire::as_text(mac));
        out_hashed_ = out_.size();
        out_sealed_ = true;
      }
    }
    if (out_sent_ == out_.size()) {
      empty(out_);
      break;
    }
    if (budget == 0) return true;
    const std::size_t piece = std::min(out_hashed_ - out_sent_, budget);
    const ssize_t sent = send(fd_.get(), out_.data() + out_sent_, piece, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      failure_ = errno;
      return false;
    }
    out_sent_ += static_cast<std::size_t>(sent);
    budget -= static_cast<std::size_t>(sent);
  }
  return true;
}

}  // namespace tessera::launch
