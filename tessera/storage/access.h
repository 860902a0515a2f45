#pragma once
/// \file
/// storage/: checkpoints and data in an object store that speaks S3 (Amazon S3, MinIO, Ceph, ...): s3://bucket/key.
///
/// Nothing that comes from the network is trusted: answers are bounded, names in them are checked before they become
/// names of files, and every byte of a checkpoint is compared with the CRC-32C that its writer took of it. The wire
/// itself (HTTP, TLS, signatures) is libcurl's, in the plug-in libtessera_s3.so (http.h).
///
/// This header: where the store is and who we are, from the variables and files that Amazon's own tools read.

#include <functional>
#include <string>

namespace tessera::storage {

/// How a store is reached. The secret is never part of a message.
struct Access {
  std::string endpoint;  ///< "https://s3.eu-west-1.amazonaws.com", without '/' at its end
  std::string region = "us-east-1";
  /// The bucket stands in the path and not in the host's name: for endpoints that are given, and buckets with '.'.
  bool path_style = false;
  std::string key_id, secret, token;  ///< token: empty unless credentials are temporary
  int attempts = 8;                   ///< how often a request that fails for a passing reason is sent
  double first_pause = 0.25;          ///< seconds before the second attempt; doubles up to 20 s
};

/// The value of an environment variable, or nullptr.
using Variable = std::function<const char*(const char* name)>;

/// Reads AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; else the section AWS_PROFILE ("default") of
/// AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) and of AWS_CONFIG_FILE (~/.aws/config). Further AWS_REGION or
/// AWS_DEFAULT_REGION, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_MAX_ATTEMPTS, and `region` and `endpoint_url` of
/// the files. Throws InputError: no credentials (with where they were looked for), an endpoint that is no http(s) URL,
/// a file that is not of this form.
Access read_access(const Variable& variable);
/// The same of this process' environment.
Access read_access();

}  // namespace tessera::storage
