#pragma once
/// \file
/// storage/: checkpoints and data in an object store that speaks S3 (Amazon S3, MinIO, Ceph, ...): s3://bucket/key.
///
/// Nothing from the network is trusted: responses are bounded, names in them are checked before they become file names,
/// and every byte of a checkpoint is compared with its writer's CRC-32C. The protocol itself (HTTP, TLS, signatures) is
/// left to libcurl, in the plug-in libtessera_s3.so (http.h).
///
/// This header: the store's address and the credentials, from the same variables and files that Amazon's own tools
/// read.

#include <functional>
#include <string>

namespace tessera::storage {

/// The address of a store and the credentials for it. The secret never appears in a message.
struct Access {
  std::string endpoint;  ///< "https://s3.eu-west-1.amazonaws.com", without a trailing '/'
  std::string region = "us-east-1";
  /// Put the bucket in the path instead of the host name: for custom endpoints and buckets with '.'.
  bool path_style = false;
  std::string key_id, secret, token;  ///< token: empty unless credentials are temporary
  int attempts = 8;                   ///< attempts per request that fails for a transient reason
  double first_pause = 0.25;          ///< seconds before the second attempt; doubles up to 20 s
};

/// The value of an environment variable, or nullptr.
using Variable = std::function<const char*(const char* name)>;

/// Reads AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; otherwise the section AWS_PROFILE ("default")
/// of AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) and of AWS_CONFIG_FILE (~/.aws/config). Also reads AWS_REGION or
/// AWS_DEFAULT_REGION, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_MAX_ATTEMPTS, and `region` and `endpoint_url` of
/// the files. Throws InputError for missing credentials (with the places searched), an endpoint that is not an http(s)
/// URL, and a malformed file.
Access read_access(const Variable& variable);
/// The same, with this process's environment.
Access read_access();

}  // namespace tessera::storage
