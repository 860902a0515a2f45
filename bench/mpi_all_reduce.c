/* Compares tessera_all_reduce over the transport mpi with the library's own MPI_Allreduce: both in this process, turn
   by turn. Run by bench/mpi.sh. Prints a line per size: bytes, median microseconds of both, and the median of the
   ratios of neighbouring runs (above 1: Tessera is faster). */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <tessera/c/tessera_c.h>

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}
static double median(double* values, int n) {
  qsort(values, (size_t)n, sizeof *values, ascending);
  return values[n / 2];
}
static void need(tessera_status status) {
  if (status == TESSERA_OK) return;
  fprintf(stderr, "%s\n", tessera_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char** argv) {
  int level, rank;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  tessera_options options;
  need(tessera_options_init(&options));
  options.transport = "mpi";
  tessera_world world;
  tessera_group group;
  need(tessera_init_environment(NULL, &options, &world));
  need(tessera_world_group(world, &group));
  const long sizes[] = {4096, 1L << 20, 64L << 20};
  for (int s = 0; s < 3; ++s) {
    const int n = (int)(sizes[s] / 4), turns = sizes[s] > (1 << 20) ? 31 : 301;
    float* data = malloc((size_t)sizes[s]);
    double* times[3];
    for (int k = 0; k < 3; ++k) times[k] = malloc(sizeof(double) * (size_t)turns);
    for (int i = 0; i < n; ++i) data[i] = 0;
    for (int turn = -3; turn < turns; ++turn) {
      double took[2];
      for (int half = 0; half < 2; ++half) {
        const int ours = (half + turn) & 1; /* who begins alternates */
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        if (ours) {
          need(tessera_all_reduce(group, data, data, n, TESSERA_FLOAT32, TESSERA_SUM, NULL, NULL));
        } else {
          MPI_Allreduce(MPI_IN_PLACE, data, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        }
        took[ours] = MPI_Wtime() - begin;
      }
      if (turn < 0) continue;
      times[0][turn] = took[0];
      times[1][turn] = took[1];
      times[2][turn] = took[0] / took[1];
    }
    if (rank == 0) {
      printf("%9ld bytes: MPI_Allreduce %10.1f us, tessera %10.1f us, ratio %.3f\n", sizes[s],
             1e6 * median(times[0], turns), 1e6 * median(times[1], turns), median(times[2], turns));
    }
    for (int k = 0; k < 3; ++k) free(times[k]);
    free(data);
  }
  need(tessera_shutdown(world));
  MPI_Finalize();
  return 0;
}
