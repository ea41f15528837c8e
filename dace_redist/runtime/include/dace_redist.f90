! SPDX-License-Identifier: BSD-3-Clause
!> C functions that dace_redist calls; public here, as gfortran warns of private ones.
module dace_redist_c
  use, intrinsic :: iso_c_binding
  implicit none
  integer, parameter :: long = c_int64_t

  type, bind(C) :: dr_options
    integer(long) :: chunk_bytes, depth
    real(c_double) :: growth
    integer(long) :: threads, slot_bytes, max_message_bytes, join_bytes, max_in_flight_bytes
  end type
  type, bind(C) :: c_problem ! dr_problem
    type(c_ptr) :: source, target
    integer(long) :: element_bytes
    type(c_ptr) :: strategy
    type(dr_options) :: options
    type(c_ptr) :: source_shape, source_strides, target_shape, target_strides, label, axes, region(3)
    integer(c_int) :: source_type, target_type
    real(c_double) :: alpha(2), beta(2)
    integer(c_int) :: conjugate, op, wire_type, wire_within_nodes, accumulate_type, reproducible
    integer(c_int) :: source_memory, target_memory, reshape, sends
    integer(long) :: reserve(16)
  end type
  type, bind(C) :: c_file ! dr_file
    type(c_ptr) :: path
    integer(c_int) :: type, raw
    integer(long) :: element_bytes, offset
    integer(c_int) :: fortran_order, ranks
    integer(long) :: reserve(8)
  end type

  interface
    type(c_ptr) function c_error() bind(C, name="dr_error")
      import c_ptr
    end function
    integer(c_size_t) function strlen(text) bind(C)
      import c_ptr, c_size_t; type(c_ptr), value :: text
    end function
    integer(c_int) function c_problem_init(problem) bind(C, name="dr_problem_init")
      import c_int, c_problem; type(c_problem) :: problem
    end function
    integer(c_int) function c_blocks(lengths, shape, grid, axes, block, ranks, distribution) &
      bind(C, name="dr_fortran_create_blocks")
      import c_int, c_ptr, long; integer(long), intent(in) :: lengths(5), shape(*), grid(*)
      integer(c_int), intent(in), optional :: axes(*); integer(long), intent(in), optional :: block(*), ranks(*)
      type(c_ptr) :: distribution
    end function
    integer(c_int) function c_local_shape(distribution, rank, length, shape) bind(C, name="dr_fortran_local_shape")
      import c_int, c_ptr, long; type(c_ptr), value :: distribution; integer(c_int), value :: rank
      integer(long), value :: length; integer(long) :: shape(*)
    end function
    integer(c_int) function c_plan(problem, comm, lengths, axes, region, plan) bind(C, name="dr_fortran_plan_create")
      import c_int, c_ptr, c_problem, long; type(c_problem), intent(in) :: problem; integer(c_int), value :: comm
      integer(long), intent(in) :: lengths(3); integer(c_int), intent(in), optional :: axes(*)
      integer(long), intent(in), optional :: region(*); type(c_ptr) :: plan
    end function
    integer(c_int) function c_load(file, target, comm, array) bind(C, name="dr_fortran_load")
      import c_int, c_ptr, c_file; type(c_file), intent(in) :: file; type(c_ptr), value :: target
      integer(c_int), value :: comm; type(*), intent(in out) :: array(*)
    end function
    integer(c_int) function c_save(file, source, comm, array) bind(C, name="dr_fortran_save")
      import c_int, c_ptr, c_file; type(c_file), intent(in) :: file; type(c_ptr), value :: source
      integer(c_int), value :: comm; type(*), intent(in) :: array(*)
    end function
  end interface
end module

!> Fortran 2008 interface of dace-redist: the functions of dace_redist.h for blocks, with handles of type(c_ptr). Compile
!> it with the program that uses it: `mpifort $(dace-redist config --fortran) program.f90 $(dace-redist config --libs)`.
!>
!> Lists have an entry per axis in the order of Fortran's arrays. Tensor axes, grid axes and indices are numbered from
!> 1, ranks from 0, and on a grid as in MPI_Cart_create. Each function returns 0 or an error code, for dr_check.
module dace_redist
  use dace_redist_c
  use, intrinsic :: iso_fortran_env, only: error_unit
  use mpi_f08, only: MPI_Comm, MPI_Abort, MPI_COMM_WORLD
  implicit none
  private :: c_error, strlen, c_problem, c_problem_init, c_blocks, c_local_shape, c_plan, long, type_bytes
  private :: c_file, c_load, c_save, file_of
  private :: MPI_Comm, MPI_Abort, MPI_COMM_WORLD, error_unit
  integer, parameter :: DR_BOOL = 1, DR_INT8 = 2, DR_INT16 = 3, DR_INT32 = 4, DR_INT64 = 5, DR_FLOAT32 = 10, &
    DR_FLOAT64 = 11, DR_COMPLEX64 = 12, DR_COMPLEX128 = 13, DR_FLOAT16 = 14, DR_BFLOAT16 = 15
  integer, parameter :: DR_SUM = 1, DR_PROD = 2, DR_MIN = 3, DR_MAX = 4
  integer, parameter :: DR_NOT_SPLIT = 0, DR_BLOCK_CEIL = 0, DR_BLOCK_BALANCED = -1, DR_BLOCK_LENGTHS = -2
  integer(c_int), parameter :: DR_PROGRESS_CALLS = 0, DR_PROGRESS_THREAD = 1
  integer, parameter :: type_bytes(15) = [1, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 8, 16, 2, 2]

  interface
    integer(c_int) function dr_options_init(options) bind(C)
      import c_int, dr_options; type(dr_options) :: options
    end function
    integer(c_int) function dr_distribution_free(distribution) bind(C)
      import c_int, c_ptr; type(c_ptr) :: distribution
    end function
    !> Arrays may have any rank; of those that are not contiguous Fortran passes copies.
    integer(c_int) function dr_plan_execute(plan, source, target) bind(C)
      import c_int, c_ptr; type(c_ptr), value :: plan; type(*), intent(in) :: source(*)
      type(*), intent(in out) :: target(*)
    end function
    !> The arrays must be contiguous, and asynchronous in the caller.
    integer(c_int) function dr_plan_start(plan, source, target, progress, request) bind(C)
      import c_int, c_ptr; type(c_ptr), value :: plan; type(*), intent(in), asynchronous :: source(*)
      type(*), intent(in out), asynchronous :: target(*); integer(c_int), value :: progress; type(c_ptr) :: request
    end function
    integer(c_int) function dr_request_test(request, done) bind(C)
      import c_int, c_ptr; type(c_ptr), value :: request; integer(c_int) :: done
    end function
    integer(c_int) function dr_request_wait(request) bind(C)
      import c_int, c_ptr; type(c_ptr) :: request
    end function
    integer(c_int) function dr_plan_free(plan) bind(C)
      import c_int, c_ptr; type(c_ptr) :: plan
    end function
  end interface

contains

  !> Text of the last error of the calling thread.
  function dr_error() result(text)
    character(:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    call c_f_pointer(c_error(), letters, [strlen(c_error())])
    allocate (character(size(letters)) :: text)
    text = transfer(letters, text)
  end function

  !> Ends the program with the text of an error, unless `code` is 0.
  subroutine dr_check(code)
    integer(c_int), intent(in) :: code
    if (code == 0) return
    write (error_unit, '(a)') dr_error()
    call MPI_Abort(MPI_COMM_WORLD, code)
  end subroutine

  !> Blocks over a process grid. Without `axes`, axis i is split over grid axis i; without `block`, parts are balanced.
  !> After the entries of `block` follow the lengths of the parts of each axis with DR_BLOCK_LENGTHS in turn.
  integer(c_int) function dr_distribution_create_blocks(shape, grid, distribution, axes, block, ranks) result(code)
    integer(long), intent(in) :: shape(:), grid(:)
    type(c_ptr), intent(out) :: distribution
    integer, intent(in), optional :: axes(:)
    integer(long), intent(in), optional :: block(:), ranks(:)
    integer(long) :: lengths(5)
    distribution = c_null_ptr
    lengths = [size(shape), size(grid), 0, 0, 0]
    if (present(axes)) lengths(3) = size(axes)
    if (present(block)) lengths(4) = size(block, kind=long)
    if (present(ranks)) lengths(5) = size(ranks, kind=long)
    code = c_blocks(lengths, shape, grid, axes, block, ranks, distribution)
  end function

  !> Shape of a rank's local array.
  integer(c_int) function dr_distribution_local_shape(distribution, rank, shape) result(code)
    type(c_ptr), intent(in) :: distribution
    integer, intent(in) :: rank
    integer(long), intent(out) :: shape(:)
    shape = 0
    code = c_local_shape(distribution, rank, size(shape, kind=long), shape)
  end function

  !> Plans to move elements of a `type` (DR_FLOAT64, ...), or any of `element_bytes`. Other arguments are the members of
  !> dr_problem in C; `region` has columns first index in source, first index in target, and extents. With an
  !> intercommunicator one group passes `sends=.true.`. Collective.
  integer(c_int) function dr_plan_create(source, target, comm, plan, type, element_bytes, strategy, options, axes, &
                                         region, target_type, alpha, beta, conjugate, op, sends, wire_type, &
                                         wire_within_nodes, accumulate_type, reproducible) result(code)
    type(c_ptr), intent(in) :: source, target
    type(MPI_Comm), intent(in) :: comm
    type(c_ptr), intent(out) :: plan
    integer, intent(in), optional :: type, element_bytes, axes(:), target_type, op, wire_type, accumulate_type
    character(*), intent(in), optional :: strategy
    type(dr_options), intent(in), optional :: options
    integer(long), intent(in), optional :: region(:, :)
    complex(c_double), intent(in), optional :: alpha, beta
    logical, intent(in), optional :: conjugate, sends, wire_within_nodes, reproducible
    type(c_problem) :: problem
    character(len=:, kind=c_char), allocatable, target :: name
    integer(long) :: lengths(3)
    plan = c_null_ptr
    code = c_problem_init(problem)
    problem%source = source
    problem%target = target
    if (present(type)) then
      problem%source_type = type
      if (type > 0 .and. type <= size(type_bytes)) problem%element_bytes = type_bytes(type)
    end if
    if (present(element_bytes)) problem%element_bytes = element_bytes
    problem%target_type = problem%source_type
    if (present(target_type)) problem%target_type = target_type
    if (present(strategy)) then
      name = trim(strategy)//c_null_char
      problem%strategy = c_loc(name)
    end if
    if (present(options)) problem%options = options
    lengths = 0
    if (present(axes)) lengths(1) = size(axes)
    if (present(region)) lengths(2:) = shape(region)
    if (present(alpha)) problem%alpha = [real(alpha), aimag(alpha)]
    if (present(beta)) problem%beta = [real(beta), aimag(beta)]
    if (present(conjugate)) problem%conjugate = merge(1, 0, conjugate)
    if (present(op)) problem%op = op
    if (present(wire_type)) problem%wire_type = wire_type
    if (present(wire_within_nodes)) problem%wire_within_nodes = merge(1, 0, wire_within_nodes)
    if (present(accumulate_type)) problem%accumulate_type = accumulate_type
    if (present(reproducible)) problem%reproducible = merge(1, 0, reproducible)
    if (present(sends)) problem%sends = merge(1, 0, sends)
    code = c_plan(problem, comm%MPI_VAL, lengths, axes, region, plan)
  end function

  !> Reads a distributed array from a `.npy` file, in either order; with `offset`, in bytes, from a raw file in the order
  !> of Fortran, or of C with `c_order`. Elements are of a `type`; in a raw file, any of `element_bytes`. Collective.
  integer(c_int) function dr_load(path, target, comm, array, type, element_bytes, offset, c_order) result(code)
    character(*), intent(in) :: path
    type(c_ptr), intent(in) :: target
    type(MPI_Comm), intent(in) :: comm
    type(*), intent(in out) :: array(*)
    integer, intent(in), optional :: type, element_bytes
    integer(long), intent(in), optional :: offset
    logical, intent(in), optional :: c_order
    character(len=:, kind=c_char), allocatable, target :: name
    name = trim(path)//c_null_char
    code = c_load(file_of(c_loc(name), type, element_bytes, offset, c_order), target, comm%MPI_VAL, array)
  end function

  !> Writes a distributed array to a file, as dr_load() reads it.
  integer(c_int) function dr_save(path, source, comm, array, type, element_bytes, offset, c_order) result(code)
    character(*), intent(in) :: path
    type(c_ptr), intent(in) :: source
    type(MPI_Comm), intent(in) :: comm
    type(*), intent(in) :: array(*)
    integer, intent(in), optional :: type, element_bytes
    integer(long), intent(in), optional :: offset
    logical, intent(in), optional :: c_order
    character(len=:, kind=c_char), allocatable, target :: name
    name = trim(path)//c_null_char
    code = c_save(file_of(c_loc(name), type, element_bytes, offset, c_order), source, comm%MPI_VAL, array)
  end function

  type(c_file) function file_of(path, type, element_bytes, offset, c_order) result(file)
    type(c_ptr), intent(in) :: path
    integer, intent(in), optional :: type, element_bytes
    integer(long), intent(in), optional :: offset
    logical, intent(in), optional :: c_order
    file = c_file(path, 0, merge(1, 0, present(offset)), 0, 0, 1, 0, 0)
    if (present(type)) file%type = type
    if (present(element_bytes)) file%element_bytes = element_bytes
    if (present(offset)) file%offset = offset
    if (present(c_order)) file%fortran_order = merge(0, 1, c_order)
  end function
end module
