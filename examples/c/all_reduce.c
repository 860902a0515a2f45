/* Collectives from C: every rank adds its numbers to the others'.
 *
 *   cc all_reduce.c -ltessera_c -o all_reduce
 *   tessera launch --nproc_per_node 4 -- ./all_reduce        (or torchrun --no-python, mpirun, srun)
 */
#include <stdio.h>
#include <stdlib.h>
#include <tessera/c/tessera_c.h>

static void check(tessera_status status, const char* what) {
  if (status == TESSERA_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, tessera_status_name(status), tessera_last_error());
  exit(1);
}

enum { count = 1000 };

int main(void) {
  tessera_world world;
  tessera_group group;
  int32_t rank, size;
  check(tessera_init_environment("example", NULL, &world), "init");
  check(tessera_world_group(world, &group), "group");
  check(tessera_rank(world, &rank), "rank");
  check(tessera_size(world, &size), "size");

  float numbers[count];
  for (int i = 0; i < count; ++i) numbers[i] = (float)(rank + i);
  tessera_work work;
  check(tessera_all_reduce(group, numbers, numbers, count, TESSERA_FLOAT32, TESSERA_SUM, NULL, &work), "all_reduce");
  check(tessera_work_wait(work, -1, NULL), "wait"); /* other things could be done before it */
  check(tessera_work_free(work), "free");

  for (int i = 0; i < count; ++i) {
    if (numbers[i] == (float)(size * (size - 1) / 2 + size * i)) continue;
    fprintf(stderr, "rank %d: wrong sum %g\n", (int)rank, (double)numbers[i]);
    return 1;
  }
  check(tessera_barrier(group, NULL, NULL), "barrier");
  if (rank == 0) printf("%d ranks added %d numbers each: the last sum is %g\n", (int)size, count, numbers[count - 1]);
  check(tessera_shutdown(world), "shutdown");
  return 0;
}
