// Fills the table of functions.h from whichever <mpi.h> it is compiled with: standard_abi/mpi.h in the build, a
// cluster's own in tools/mpi_shim.sh. C++11 without its run time; not part of libtessera.
#include <mpi.h>

#include <limits.h>
#include <string.h>

#include <tessera/wire/mpi/functions.h>

namespace {

template <class T>
tessera_mpi_handle packed(T handle) {
  static_assert(sizeof handle <= sizeof(tessera_mpi_handle), "a handle is at most a pointer");
  tessera_mpi_handle bytes = 0;
  memcpy(&bytes, &handle, sizeof handle);
  return bytes;
}
template <class T>
T unpacked(tessera_mpi_handle bytes) {
  T handle;
  memcpy(&handle, &bytes, sizeof handle);
  return handle;
}
MPI_Comm comm_of(tessera_mpi_handle comm) { return unpacked<MPI_Comm>(comm); }

// Stores the request that `post` fills in, or null if it failed.
template <class Post>
int posted(tessera_mpi_handle* request, Post post) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int error = post(&made);
  *request = packed(error == MPI_SUCCESS ? made : static_cast<MPI_Request>(MPI_REQUEST_NULL));
  return error;
}

MPI_Datatype type_of(int number) {
  switch (number) {
    case TESSERA_MPI_INT8:
      return MPI_INT8_T;
    case TESSERA_MPI_UINT8:
      return MPI_UINT8_T;
    case TESSERA_MPI_INT32:
      return MPI_INT32_T;
    case TESSERA_MPI_INT64:
      return MPI_INT64_T;
    case TESSERA_MPI_FLOAT:
      return MPI_FLOAT;
    default:
      return MPI_DOUBLE;
  }
}
MPI_Op op_of(int fold) {
  switch (fold) {
    case TESSERA_MPI_SUM:
      return MPI_SUM;
    case TESSERA_MPI_PRODUCT:
      return MPI_PROD;
    case TESSERA_MPI_MIN:
      return MPI_MIN;
    default:
      return MPI_MAX;
  }
}

// Bytes beyond the range of an int: one element of a type that spans them.
struct Span {
  int count;
  MPI_Datatype type = MPI_BYTE;
  bool own = false;
  int error = MPI_SUCCESS;

  explicit Span(int64_t bytes) : count(bytes <= INT_MAX ? static_cast<int>(bytes) : 1) {
    if (bytes <= INT_MAX) return;
    const int64_t block = int64_t(1) << 30;
    MPI_Datatype blocks;
    const int lengths[2] = {static_cast<int>(bytes / block), static_cast<int>(bytes % block)};
    error = MPI_Type_contiguous(static_cast<int>(block), MPI_BYTE, &blocks);
    if (error != MPI_SUCCESS) return;
    const MPI_Aint starts[2] = {0, static_cast<MPI_Aint>(bytes / block * block)};
    const MPI_Datatype types[2] = {blocks, MPI_BYTE};
    error = MPI_Type_create_struct(2, lengths, starts, types, &type);
    MPI_Type_free(&blocks);
    if (error != MPI_SUCCESS) return;
    own = true;
    error = MPI_Type_commit(&type);
  }
  ~Span() {
    if (own) MPI_Type_free(&type);  // the library keeps it while operations use it
  }
};

int start(int* threads, int* first) {
  int before = 0, level = 0;
  int error = MPI_Initialized(&before);
  if (error != MPI_SUCCESS) return error;
  error = before ? MPI_Query_thread(&level) : MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  if (error != MPI_SUCCESS) return error;
  *first = before ? 0 : 1;
  *threads = level >= MPI_THREAD_MULTIPLE ? 2 : level >= MPI_THREAD_SERIALIZED ? 1 : 0;
  // An error is reported by the call. A program that initialized the library itself has chosen its own handler.
  return before ? MPI_SUCCESS : MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

int ended() {
  int flag = 0;
  return MPI_Finalized(&flag) == MPI_SUCCESS ? flag : 1;
}
int finish() { return MPI_Finalize(); }

void version(char* text, int capacity) {
  static char whole[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  whole[0] = 0;
  MPI_Get_library_version(whole, &length);
  int n = 0;  // the first line
  while (n + 1 < capacity && whole[n] != 0 && whole[n] != '\n') {
    text[n] = whole[n] == '\t' ? ' ' : whole[n];
    ++n;
  }
  text[n] = 0;
}

int place(int* rank, int* size) {
  const int error = MPI_Comm_rank(MPI_COMM_WORLD, rank);
  return error == MPI_SUCCESS ? MPI_Comm_size(MPI_COMM_WORLD, size) : error;
}

int largest_tag() {
  int* value = nullptr;
  int found = 0;
  // Asked of MPI_COMM_WORLD: only that has the attribute in every version.
  if (MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&value), &found) != MPI_SUCCESS || !found) {
    return 32767;  // the standard's least
  }
  return *value;
}

int make_comm(const int* ranks, int count, int tag, tessera_mpi_handle* comm) {
  MPI_Group all, some;
  int error = MPI_Comm_group(MPI_COMM_WORLD, &all);
  if (error != MPI_SUCCESS) return error;
  error = MPI_Group_incl(all, count, ranks, &some);
  MPI_Group_free(&all);
  if (error != MPI_SUCCESS) return error;
  MPI_Comm made = MPI_COMM_NULL;
  error = MPI_Comm_create_group(MPI_COMM_WORLD, some, tag, &made);
  MPI_Group_free(&some);
  if (error != MPI_SUCCESS) return error;
  *comm = packed(made);
  return MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
}
int free_comm(tessera_mpi_handle comm) {
  MPI_Comm freed = comm_of(comm);
  return MPI_Comm_free(&freed);
}

int send(tessera_mpi_handle comm, const void* data, int64_t bytes, int peer, int tag, tessera_mpi_handle* request) {
  const Span span(bytes);
  if (span.error != MPI_SUCCESS) return span.error;
  return posted(request, [&](MPI_Request* made) {
    return MPI_Isend(data, span.count, span.type, peer, tag, comm_of(comm), made);
  });
}
int receive(tessera_mpi_handle comm, void* data, int64_t bytes, int peer, int tag, tessera_mpi_handle* request) {
  const Span span(bytes);
  if (span.error != MPI_SUCCESS) return span.error;
  const int from = peer < 0 ? static_cast<int>(MPI_ANY_SOURCE) : peer;
  return posted(request, [&](MPI_Request* made) {
    return MPI_Irecv(data, span.count, span.type, from, tag, comm_of(comm), made);
  });
}
int cancel(tessera_mpi_handle* request) {
  MPI_Request posted_before = unpacked<MPI_Request>(*request);
  return MPI_Cancel(&posted_before);
}
int test(tessera_mpi_handle* request, int* done, int* source, int64_t* bytes) {
  MPI_Request waiting = unpacked<MPI_Request>(*request);
  MPI_Status status;
  const int error = MPI_Test(&waiting, done, &status);
  *request = packed(waiting);
  if (error != MPI_SUCCESS || !*done) return error;
  if (source != nullptr) *source = status.MPI_SOURCE;
  if (bytes == nullptr) return MPI_SUCCESS;
  MPI_Count count = 0;
  const int counted = MPI_Get_elements_x(&status, MPI_BYTE, &count);
  *bytes = static_cast<int64_t>(count);
  return counted;
}

int barrier(tessera_mpi_handle comm, tessera_mpi_handle* request) {
  return posted(request, [&](MPI_Request* made) { return MPI_Ibarrier(comm_of(comm), made); });
}
int broadcast(tessera_mpi_handle comm, void* data, int bytes, int root, tessera_mpi_handle* request) {
  return posted(request,
                [&](MPI_Request* made) { return MPI_Ibcast(data, bytes, MPI_BYTE, root, comm_of(comm), made); });
}
int all_reduce(tessera_mpi_handle comm, void* data, int count, int number, int fold, tessera_mpi_handle* request) {
  return posted(request, [&](MPI_Request* made) {
    return MPI_Iallreduce(MPI_IN_PLACE, data, count, type_of(number), op_of(fold), comm_of(comm), made);
  });
}
int reduce(tessera_mpi_handle comm, void* data, int count, int number, int fold, int root, int is_root,
           tessera_mpi_handle* request) {
  return posted(request, [&](MPI_Request* made) {
    return MPI_Ireduce(is_root ? MPI_IN_PLACE : data, is_root ? data : nullptr, count, type_of(number), op_of(fold),
                       root, comm_of(comm), made);
  });
}
int reduce_scatter(tessera_mpi_handle comm, const void* input, void* output, int count, int number, int fold,
                   tessera_mpi_handle* request) {
  return posted(request, [&](MPI_Request* made) {
    return MPI_Ireduce_scatter_block(input, output, count, type_of(number), op_of(fold), comm_of(comm), made);
  });
}
int all_gather(tessera_mpi_handle comm, void* output, int bytes, tessera_mpi_handle* request) {
  return posted(request, [&](MPI_Request* made) {
    return MPI_Iallgather(MPI_IN_PLACE, 0, MPI_BYTE, output, bytes, MPI_BYTE, comm_of(comm), made);
  });
}
int gather(tessera_mpi_handle comm, const void* input, void* output, int bytes, int root, tessera_mpi_handle* request) {
  return posted(request, [&](MPI_Request* made) {
    return MPI_Igather(input == nullptr ? MPI_IN_PLACE : input, bytes, MPI_BYTE, output, bytes, MPI_BYTE, root,
                       comm_of(comm), made);
  });
}
int scatter(tessera_mpi_handle comm, const void* input, void* output, int bytes, int root,
            tessera_mpi_handle* request) {
  return posted(request, [&](MPI_Request* made) {
    return MPI_Iscatter(input, bytes, MPI_BYTE, output == nullptr ? MPI_IN_PLACE : output, bytes, MPI_BYTE, root,
                        comm_of(comm), made);
  });
}

void error_text(int error, char* text, int capacity) {
  char whole[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(error, whole, &length) != MPI_SUCCESS) strcpy(whole, "unknown error");
  strncpy(text, whole, static_cast<size_t>(capacity) - 1);
  text[capacity - 1] = 0;
}
int is_truncation(int error) {
  int what = 0;
  return MPI_Error_class(error, &what) == MPI_SUCCESS && what == MPI_ERR_TRUNCATE;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const tessera_mpi_functions* tessera_mpi_table(void) {
  static const tessera_mpi_functions table = {
      TESSERA_MPI_ABI, start,          ended,      finish, version, place,      largest_tag,  make_comm,
      free_comm,       send,           receive,    cancel, test,    barrier,    broadcast,    all_reduce,
      reduce,          reduce_scatter, all_gather, gather, scatter, error_text, is_truncation};
  return &table;
}
