#pragma once
/// \file
/// The server's end of one connection of the rendezvous store: parses and verifies incoming messages, and sends
/// answers. Knows the protocol (store_wire.h), not the meaning of requests.

#include <tessera/launch/agent/unique_fd.h>
#include <tessera/launch/store/store_wire.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::launch {

/// A non-blocking socket and the protocol stage of its peer.
class StoreConnection {
 public:
  enum class Stage { hello, proof, session };
  enum class Progress {
    more,     ///< nothing complete yet
    whole,    ///< a complete message: take() it
    ended,    ///< the peer closed it, or the network failed: see left_by_peer()
    invalid,  ///< the bytes cannot be the next message of a peer that knows the secret
  };

  explicit StoreConnection(UniqueFd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  /// Whether an ended connection was closed by the peer, or by its kernel because the peer died; false: the network
  /// failed.
  bool left_by_peer() const;
  Stage stage() const { return stage_; }

  /// Reads until a hello, a proof or a request is complete, at most `budget` bytes. Frames of a session are verified
  /// (size, sequence, MAC).
  Progress read(std::size_t budget, std::size_t payload_limit);
  /// The bytes of the complete hello or proof.
  const std::string& handshake() const { return in_; }
  /// The complete request; its fields are valid until finished().
  wire::Message take() const;
  /// Discards the message that read() delivered, so that the next one can arrive.
  void finished();

  /// After an answered hello: stores the expected proof and the keys of the following session.
  void expect_proof(const Secret& secret, const wire::Nonce& client, const wire::Nonce& server);
  bool proof_is_right() const;
  void begin_session();

  /// Sends handshake bytes at once; false if the socket does not accept all of them (a new socket always does).
  bool send_reply(const std::string& bytes);
  /// Queues an answer; only one at a time.
  void answer(std::uint16_t kind, std::int64_t number, const std::vector<std::string>& fields);
  /// Sends queued bytes, at most `budget`. False: the connection is gone.
  bool flush(std::size_t budget);
  bool sending() const { return !out_.empty(); }
  /// Bytes of memory in use by messages.
  std::size_t buffered() const { return in_.size() + out_.size(); }

 private:
  UniqueFd fd_;
  Stage stage_ = Stage::hello;
  std::string in_;
  std::optional<wire::Header> header_;  // header of the frame that is arriving
  std::size_t authenticated_ = 0;       // bytes of in_ already fed to in_mac_
  std::optional<Hmac> in_mac_, out_mac_;
  std::uint64_t in_sequence_ = 0, out_sequence_ = 0;
  Digest expected_proof_{}, in_key_{}, out_key_{};
  std::string out_;
  std::size_t out_hashed_ = 0, out_sent_ = 0;
  bool out_sealed_ = false;  // the MAC is at the end of out_
  int failure_ = 0;          // errno of the call that ended the connection
};

}  // namespace tessera::launch
