! Solves A x = b by ScaLAPACK: rows of each rank become blocks, and x rows again. On Debian:
! mpifort $(dace-redist config --fortran) solve.f90 $(dace-redist config --libs) -lscalapack-openmpi; mpiexec -n 4 a.out
program solve
  use dace_redist
  use mpi_f08
  implicit none
  integer, parameter :: n = 1000, block_size = 64
  integer :: rank, ranks, grid(2) = 0, context, first, count, i, j, info, a_descriptor(9), b_descriptor(9)
  type(c_ptr) :: a_rows, a_blocks, b_rows, b_blocks
  integer, allocatable :: pivots(:)
  real(c_double), allocatable :: a(:, :), b(:, :), x(:, :), a_local(:, :), b_local(:, :)
  real(c_double) :: error

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call MPI_Dims_create(ranks, 2, grid)
  context = MPI_COMM_WORLD%MPI_VAL ! what BLACS takes for a communicator
  call blacs_gridinit(context, 'Row', grid(1), grid(2))

  call describe(n, a_rows, a_blocks, a, a_local, a_descriptor)
  call describe(1, b_rows, b_blocks, b, b_local, b_descriptor)
  allocate (x, mold=b)
  count = size(a, 1)
  call MPI_Scan(count, first, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  first = first - count
  a = reshape([((sin(3d0*(first + i) + 5d0*j*j), i=1, count), j=1, n)], shape(a))
  do i = 1, count
    a(i, first + i) = a(i, first + i) + n
    b(i, 1) = dot_product(a(i, :), [(real(j, c_double), j=1, n)]) ! x is 1, 2, 3, ...
  end do

  allocate (pivots(size(a_local, 1) + block_size))
  call move(a_rows, a_blocks, a, a_local)
  call move(b_rows, b_blocks, b, b_local)
  call pdgesv(n, 1, a_local, 1, 1, a_descriptor, pivots, b_local, 1, 1, b_descriptor, info)
  call move(b_blocks, b_rows, b_local, x)

  error = maxval([0d0, abs(x(:, 1) - [(first + i, i=1, count)])])
  if (info /= 0) error = huge(error)
  call MPI_Allreduce(MPI_IN_PLACE, error, 1, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD)
  if (rank == 0) print '(a)', merge('x solves A x = b', 'x is wrong      ', error < 1d-9*n)

  call dr_check(dr_distribution_free(a_rows))
  call dr_check(dr_distribution_free(a_blocks))
  call dr_check(dr_distribution_free(b_rows))
  call dr_check(dr_distribution_free(b_blocks))
  call blacs_gridexit(context)
  call MPI_Finalize()

contains

  !> Distributions of a matrix of n rows, by rows and block-cyclic, with a local array of each.
  subroutine describe(columns, by_rows, by_blocks, rows, blocks, descriptor)
    integer, intent(in) :: columns
    type(c_ptr), intent(out) :: by_rows, by_blocks
    real(c_double), allocatable, intent(out) :: rows(:, :), blocks(:, :)
    integer, intent(out) :: descriptor(9)
    integer(c_int64_t) :: whole(2), extents(2)
    whole = [n, columns]
    call dr_check(dr_distribution_create_blocks(whole, int([ranks], c_int64_t), by_rows, axes=[1, DR_NOT_SPLIT]))
    extents = block_size
    call dr_check(dr_distribution_create_blocks(whole, int(grid, c_int64_t), by_blocks, block=extents))
    call dr_check(dr_distribution_local_shape(by_rows, rank, extents))
    allocate (rows(extents(1), extents(2)))
    call dr_check(dr_distribution_local_shape(by_blocks, rank, extents))
    allocate (blocks(extents(1), extents(2)))
    descriptor = [1, context, n, columns, block_size, block_size, 0, 0, max(1, size(blocks, 1))]
  end subroutine

  subroutine move(source, target, from, to)
    type(c_ptr), intent(in) :: source, target
    real(c_double), intent(in) :: from(:, :)
    real(c_double), intent(in out) :: to(:, :)
    type(c_ptr) :: plan
    call dr_check(dr_plan_create(source, target, MPI_COMM_WORLD, plan, type=DR_FLOAT64)) ! keep it to move other arrays
    call dr_check(dr_plan_execute(plan, from, to))
    call dr_check(dr_plan_free(plan))
  end subroutine
end program
