// RFC 1952, through zlib.

#include <algorithm>
#include <limits>

#include <zlib.h>

#include <tessera/base/error.h>
#include <tessera/corpus/bytes/compressor.h>
#include <tessera/corpus/bytes/decompressor.h>

namespace tessera::corpus {
namespace {

class Gzip : public Decompressor {
 public:
  Gzip(std::unique_ptr<ByteStream> bytes, const std::string& name) : Decompressor(std::move(bytes), name, "gzip") {
    constexpr int gzip_with_largest_window = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, gzip_with_largest_window) != Z_OK)
      throw Error("zlib cannot be initialized: out of memory");
  }
  ~Gzip() override { inflateEnd(&stream_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

 private:
  std::size_t step(std::string_view& input, std::span<char> to, bool last) override {
    if (ended_ && !begin_member(input)) return 0;
    const std::size_t room = std::min<std::size_t>(to.size(), std::numeric_limits<uInt>::max());
    // before version 1.3 zlib takes its input as non-const, but does not write to it
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
    stream_.avail_in = static_cast<uInt>(input.size());
    stream_.next_out = reinterpret_cast<Bytef*>(to.data());
    stream_.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream_, Z_NO_FLUSH);
    input.remove_prefix(input.size() - stream_.avail_in);
    if (status == Z_STREAM_END) {
      ended_ = true;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      damaged(stream_.msg != nullptr ? stream_.msg : zError(status));
    }
    return room - stream_.avail_out;
  }

  /// Handles what follows a member: another member, or zeros that pad a tape block. Returns false if no member begins
  /// in `input`.
  bool begin_member(std::string_view& input) {
    input.remove_prefix(std::min(input.find_first_not_of('\0'), input.size()));
    if (input.empty()) return false;
    if (input[0] != '\x1f') damaged("the data are followed by bytes that are not gzip");
    inflateReset(&stream_);
    ended_ = false;
    return true;
  }

  bool complete() const override { return ended_; }

  z_stream stream_{};
  bool ended_ = false;  ///< the current member is complete
};

class GzipCompressor : public Compressor {
 public:
  GzipCompressor() {
    constexpr int gzip_with_largest_window = 16 + MAX_WBITS, memory_level = 8;
    if (deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, gzip_with_largest_window, memory_level,
                     Z_DEFAULT_STRATEGY) != Z_OK)
      throw Error("zlib cannot be initialized: out of memory");
  }
  ~GzipCompressor() override { deflateEnd(&stream_); }
  GzipCompressor(const GzipCompressor&) = delete;
  GzipCompressor& operator=(const GzipCompressor&) = delete;

  void add(std::string_view bytes, std::string& out) override {
    for (constexpr std::size_t most = std::size_t{1} << 30; !bytes.empty();) {
      const std::string_view part = bytes.substr(0, most);
      run(part, Z_NO_FLUSH, out);
      bytes.remove_prefix(part.size());
    }
  }
  void end(std::string& out) override { run({}, Z_FINISH, out); }

 private:
  void run(std::string_view bytes, int flush, std::string& out) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
    char room[16384];
    do {
      stream_.next_out = reinterpret_cast<Bytef*>(room);
      stream_.avail_out = sizeof room;
      deflate(&stream_, flush);
      out.append(room, sizeof room - stream_.avail_out);
    } while (stream_.avail_out == 0);
  }

  z_stream stream_{};
};

}  // namespace

std::unique_ptr<ByteStream> gzip_stream(std::unique_ptr<ByteStream> bytes, const std::string& name) {
  return std::make_unique<Gzip>(std::move(bytes), name);
}

std::unique_ptr<Compressor> gzip_compressor() { return std::make_unique<GzipCompressor>(); }

}  // namespace tessera::corpus
