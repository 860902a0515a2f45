#pragma once
/// \file
/// wire/mpi/standard_abi/: a header in place of an MPI library's.
///
/// The part of the MPI standard ABI that functions_mpi.cpp uses: handle types, constants and declarations, for
/// libraries that provide libmpi_abi.so.1. Its name is that of the header it stands in for. C++11.
/// Source: MPI: A Message-Passing Interface Standard, Version 5.0 (June 2025), chapter 20 "Application Binary Interface
/// (ABI)" and appendix A "Language Bindings Summary".

#include <stddef.h>
#include <stdint.h>

extern "C" {

typedef struct MPI_ABI_Comm* MPI_Comm;
typedef struct MPI_ABI_Group* MPI_Group;
typedef struct MPI_ABI_Request* MPI_Request;
typedef struct MPI_ABI_Datatype* MPI_Datatype;
typedef struct MPI_ABI_Op* MPI_Op;
typedef struct MPI_ABI_Errhandler* MPI_Errhandler;
typedef intptr_t MPI_Aint;
typedef int64_t MPI_Count;
typedef struct {
  int MPI_SOURCE;
  int MPI_TAG;
  int MPI_ERROR;
  int MPI_internal[5];
} MPI_Status;

// Predefined handles are small integers, converted to pointers.
static const MPI_Op MPI_SUM = reinterpret_cast<MPI_Op>(static_cast<intptr_t>(0x21));
static const MPI_Op MPI_MIN = reinterpret_cast<MPI_Op>(static_cast<intptr_t>(0x22));
static const MPI_Op MPI_MAX = reinterpret_cast<MPI_Op>(static_cast<intptr_t>(0x23));
static const MPI_Op MPI_PROD = reinterpret_cast<MPI_Op>(static_cast<intptr_t>(0x24));
static const MPI_Comm MPI_COMM_WORLD = reinterpret_cast<MPI_Comm>(static_cast<intptr_t>(0x101));
static const MPI_Comm MPI_COMM_SELF = reinterpret_cast<MPI_Comm>(static_cast<intptr_t>(0x102));
static const MPI_Comm MPI_COMM_NULL = reinterpret_cast<MPI_Comm>(static_cast<intptr_t>(0x100));
static const MPI_Errhandler MPI_ERRORS_RETURN = reinterpret_cast<MPI_Errhandler>(static_cast<intptr_t>(0x143));
static const MPI_Request MPI_REQUEST_NULL = reinterpret_cast<MPI_Request>(static_cast<intptr_t>(0x180));
static const MPI_Datatype MPI_FLOAT = reinterpret_cast<MPI_Datatype>(static_cast<intptr_t>(0x210));
static const MPI_Datatype MPI_DOUBLE = reinterpret_cast<MPI_Datatype>(static_cast<intptr_t>(0x214));
static const MPI_Datatype MPI_INT8_T = reinterpret_cast<MPI_Datatype>(static_cast<intptr_t>(0x240));
static const MPI_Datatype MPI_UINT8_T = reinterpret_cast<MPI_Datatype>(static_cast<intptr_t>(0x241));
static const MPI_Datatype MPI_BYTE = reinterpret_cast<MPI_Datatype>(static_cast<intptr_t>(0x247));
static const MPI_Datatype MPI_INT32_T = reinterpret_cast<MPI_Datatype>(static_cast<intptr_t>(0x250));
static const MPI_Datatype MPI_INT64_T = reinterpret_cast<MPI_Datatype>(static_cast<intptr_t>(0x258));
static void* const MPI_IN_PLACE = reinterpret_cast<void*>(static_cast<intptr_t>(1));

enum {
  MPI_SUCCESS = 0,
  MPI_ERR_TRUNCATE = 15,
  MPI_ANY_SOURCE = -1,
  MPI_TAG_UB = 501,
  MPI_THREAD_SERIALIZED = 2048,
  MPI_THREAD_MULTIPLE = 4096,
  MPI_MAX_ERROR_STRING = 512,
  MPI_MAX_LIBRARY_VERSION_STRING = 8192
};

int MPI_Initialized(int* flag);
int MPI_Finalized(int* flag);
int MPI_Init_thread(int* argc, char*** argv, int required, int* provided);
int MPI_Query_thread(int* provided);
int MPI_Finalize(void);
int MPI_Get_library_version(char* version, int* length);
int MPI_Error_class(int code, int* error_class);
int MPI_Error_string(int code, char* text, int* length);
int MPI_Comm_rank(MPI_Comm comm, int* rank);
int MPI_Comm_size(MPI_Comm comm, int* size);
int MPI_Comm_group(MPI_Comm comm, MPI_Group* group);
int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made);
int MPI_Comm_free(MPI_Comm* comm);
int MPI_Comm_get_attr(MPI_Comm comm, int key, void* value, int* flag);
int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler);
int MPI_Group_incl(MPI_Group group, int count, const int ranks[], MPI_Group* made);
int MPI_Group_free(MPI_Group* group);
int MPI_Type_contiguous(int count, MPI_Datatype old, MPI_Datatype* made);
int MPI_Type_create_struct(int count, const int lengths[], const MPI_Aint starts[], const MPI_Datatype types[],
                           MPI_Datatype* made);
int MPI_Type_commit(MPI_Datatype* type);
int MPI_Type_free(MPI_Datatype* type);
int MPI_Get_elements_x(const MPI_Status* status, MPI_Datatype type, MPI_Count* count);
int MPI_Isend(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request* request);
int MPI_Irecv(void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, MPI_Request* request);
int MPI_Cancel(MPI_Request* request);
int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status);
int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request);
int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request);
int MPI_Iallreduce(const void* input, void* output, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request);
int MPI_Ireduce(const void* input, void* output, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
                MPI_Request* request);
int MPI_Ireduce_scatter_block(const void* input, void* output, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                              MPI_Request* request);
int MPI_Iallgather(const void* input, int count, MPI_Datatype type, void* output, int output_count,
                   MPI_Datatype output_type, MPI_Comm comm, MPI_Request* request);
int MPI_Igather(const void* input, int count, MPI_Datatype type, void* output, int output_count,
                MPI_Datatype output_type, int root, MPI_Comm comm, MPI_Request* request);
int MPI_Iscatter(const void* input, int count, MPI_Datatype type, void* output, int output_count,
                 MPI_Datatype output_type, int root, MPI_Comm comm, MPI_Request* request);

}  // extern "C"
