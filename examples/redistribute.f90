! Moves a matrix: columns to rows. mpifort $(dace-redist config --fortran) redistribute.f90 $(dace-redist config --libs)
program redistribute
  use dace_redist
  use mpi_f08
  implicit none
  integer(c_int64_t), parameter :: shape(2) = [700, 1000]
  integer(c_int64_t) :: mine(2), theirs(2), grid(1)
  integer :: rank, ranks
  type(c_ptr) :: columns, rows, plan
  real(c_double), allocatable :: a(:, :), b(:, :)

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  grid = ranks
  call dr_check(dr_distribution_create_blocks(shape, grid, columns, axes=[DR_NOT_SPLIT, 1]))
  call dr_check(dr_distribution_create_blocks(shape, grid, rows, axes=[1, DR_NOT_SPLIT]))
  call dr_check(dr_distribution_local_shape(columns, rank, mine))
  call dr_check(dr_distribution_local_shape(rows, rank, theirs))
  allocate (a(mine(1), mine(2)), b(theirs(1), theirs(2)))
  a = rank

  call dr_check(dr_plan_create(columns, rows, MPI_COMM_WORLD, plan, type=DR_FLOAT64))
  call dr_check(dr_plan_execute(plan, a, b)) ! as often as wanted
  if (rank == 0) print '(a, f2.0, a, f2.0)', 'the first row came from ranks ', b(1, 1), ' to ', b(1, shape(2))

  call dr_check(dr_plan_free(plan))
  call dr_check(dr_distribution_free(columns))
  call dr_check(dr_distribution_free(rows))
  call MPI_Finalize()
end program
