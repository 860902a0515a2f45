#pragma once
/// \file
/// The server's end of one connection of the rendezvous store: bytes in, checked messages out, and back. Knows the
/// protocol (store_wire.h), not what the requests mean.

#include <tessera/launch/agent/unique_fd.h>
#include <tessera/launch/store/store_wire.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::launch {

/// A non-blocking socket and where its peer is in the protocol.
class StoreConnection {
 public:
  enum class Stage { hello, proof, session };
  enum class Progress {
    more,     ///< nothing whole yet
    whole,    ///< take() what arrived
    ended,    ///< the peer closed it, or the network did: left_by_peer()
    invalid,  ///< what came cannot be the next message of a peer who knows the secret
  };

  explicit StoreConnection(UniqueFd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  /// Whether the peer closed a connection that is over, or died (its kernel said so); else the network failed.
  bool left_by_peer() const;
  Stage stage() const { return stage_; }

  /// Reads until a hello, a proof or a request is whole, at most `budget` bytes. In a session frames are checked
  /// (size, sequence, MAC).
  Progress read(std::size_t budget, std::size_t payload_limit);
  /// The bytes of the whole hello or proof.
  const std::string& handshake() const { return in_; }
  /// The whole request; its fields live until finished().
  wire::Message take() const;
  /// Done with what read() delivered: the next one may come.
  void finished();

  /// After a hello that was answered: what the proof must be, and the keys of the session that follows it.
  void expect_proof(const Secret& secret, const wire::Nonce& client, const wire::Nonce& server);
  bool proof_is_right() const;
  void begin_session();

  /// Sends handshake bytes at once; false when the socket does not take them whole (a new one always does).
  bool send_reply(const std::string& bytes);
  /// Queues an answer; only one at a time.
  void answer(std::uint16_t kind, std::int64_t number, const std::vector<std::string>& fields);
  /// Sends what is queued, at most `budget` bytes. False: the connection is gone.
  bool flush(std::size_t budget);
  bool sending() const { return !out_.empty(); }
  /// Bytes of memory in use by messages.
  std::size_t buffered() const { return in_.size() + out_.size(); }

 private:
  UniqueFd fd_;
  Stage stage_ = Stage::hello;
  std::string in_;
  std::optional<wire::Header> header_;  // header of the frame that is arriving
  std::size_t authenticated_ = 0;       // bytes of in_ that went into in_mac_
  std::optional<Hmac> in_mac_, out_mac_;
  std::uint64_t in_sequence_ = 0, out_sequence_ = 0;
  Digest expected_proof_{}, in_key_{}, out_key_{};
  std::string out_;
  std::size_t out_hashed_ = 0, out_sent_ = 0;
  bool out_sealed_ = false;  // the MAC is at the end of out_
  int failure_ = 0;          // errno of the call that ended it
};

}  // namespace tessera::launch
