! Collectives from Fortran: every rank adds its numbers to the others'.
!
!   gfortran all_reduce.f90 $(pkg-config --libs tessera_c) -o all_reduce
!   tessera launch --nproc_per_node 4 -- ./all_reduce
program all_reduce
  use, intrinsic :: iso_c_binding
  implicit none
  integer(c_int32_t), parameter :: float32 = 7, sum_of = 0  ! TESSERA_FLOAT32, TESSERA_SUM
  interface
    integer(c_int32_t) function tessera_init_environment(name, options, world) bind(c)
      import; character(kind=c_char), intent(in) :: name(*); type(c_ptr), value :: options
      integer(c_int64_t), intent(out) :: world
    end function
    integer(c_int32_t) function tessera_world_group(world, group) bind(c)
      import; integer(c_int64_t), value :: world; integer(c_int64_t), intent(out) :: group
    end function
    integer(c_int32_t) function tessera_group_rank(group, rank) bind(c)
      import; integer(c_int64_t), value :: group; integer(c_int32_t), intent(out) :: rank
    end function
    integer(c_int32_t) function tessera_group_size(group, ranks) bind(c)
      import; integer(c_int64_t), value :: group; integer(c_int32_t), intent(out) :: ranks
    end function
    integer(c_int32_t) function tessera_all_reduce(group, input, output, count, dtype, op, call, work) bind(c)
      import; integer(c_int64_t), value :: group, count; type(c_ptr), value :: input, output, call, work
      integer(c_int32_t), value :: dtype, op
    end function
    integer(c_int32_t) function tessera_shutdown(world) bind(c)
      import; integer(c_int64_t), value :: world
    end function
    function tessera_last_error() bind(c) result(text)
      import; type(c_ptr) :: text
    end function
    subroutine puts(text) bind(c)
      import; type(c_ptr), value :: text
    end subroutine
  end interface
  integer, parameter :: count = 1000
  integer(c_int64_t) :: world, group
  integer(c_int32_t) :: rank, ranks
  real(c_float), target :: numbers(count)
  integer :: i

  call check(tessera_init_environment("fortran" // c_null_char, c_null_ptr, world))
  call check(tessera_world_group(world, group))
  call check(tessera_group_rank(group, rank))
  call check(tessera_group_size(group, ranks))
  numbers = [(real(rank + i - 1, c_float), i = 1, count)]
  call check(tessera_all_reduce(group, c_loc(numbers), c_loc(numbers), int(count, c_int64_t), float32, sum_of, &
                                c_null_ptr, c_null_ptr))
  if (any(numbers /= [(real(ranks * (ranks - 1) / 2 + ranks * (i - 1), c_float), i = 1, count)])) error stop "wrong sum"
  if (rank == 0) print '(i0, a, i0, a, i0)', ranks, " ranks added ", count, " numbers each: the last sum is ", &
    nint(numbers(count))
  call check(tessera_shutdown(world))
contains
  subroutine check(status)
    integer(c_int32_t), intent(in) :: status
    if (status == 0) return
    call puts(tessera_last_error())
    error stop 1
  end subroutine
end program
