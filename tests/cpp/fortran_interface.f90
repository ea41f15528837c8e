! The Fortran module: matrices, permuted, in part, computed with, strided, started; errors. Prints "0 failures".
program fortran_interface
  use dace_redist
  use mpi_f08
  implicit none
  integer, parameter :: long = c_int64_t
  integer :: rank, ranks, failures = 0

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call columns_to_rows()
  call transposed()
  call region_of_conjugates()
  call partial_sums()
  call blocks_of_ranks()
  call uneven_parts()
  call lists_of_blocks()
  call lists_of_plans()
  call files()
  if (ranks > 1) call between_groups()
  call MPI_Allreduce(MPI_IN_PLACE, failures, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  if (rank == 0) print '(i0, a)', failures, ' failures'
  call MPI_Finalize()

contains

  subroutine expect(right, what)
    logical, intent(in) :: right
    character(*), intent(in) :: what
    if (right) return
    failures = failures + 1
    print '(a, i0, 2a)', 'rank ', rank, ': ', what
  end subroutine

  !> First index minus 1 of a part of balanced blocks: the oracle.
  integer(long) function before(extent, part)
    integer(long), intent(in) :: extent
    integer, intent(in) :: part
    before = part * (extent / ranks) + min(int(part, long), mod(extent, int(ranks, long)))
  end function

  subroutine split(shape, axis, distribution, mine)
    integer(long), intent(in) :: shape(2)
    integer, intent(in) :: axis
    type(c_ptr), intent(out) :: distribution
    integer(long), intent(out) :: mine(2)
    integer :: axes(2)
    axes = DR_NOT_SPLIT
    axes(axis) = 1
    call dr_check(dr_distribution_create_blocks(shape, [int(ranks, long)], distribution, axes=axes))
    call dr_check(dr_distribution_local_shape(distribution, rank, mine))
    call expect(mine(axis) == before(shape(axis), rank + 1) - before(shape(axis), rank), 'local shape')
  end subroutine

  subroutine free(source, target, plan)
    type(c_ptr), intent(in out) :: source, target, plan
    call dr_check(dr_plan_free(plan))
    call dr_check(dr_distribution_free(source))
    call dr_check(dr_distribution_free(target))
    call expect(.not. (c_associated(plan) .or. c_associated(source)), 'handles are null')
  end subroutine

  !> Element (i, j) is 100 i + j; the source is every other row of an array, the transfer is executed and started.
  subroutine columns_to_rows()
    integer(long), parameter :: shape(2) = [13, 11]
    integer(long) :: mine(2), theirs(2), i, j
    type(c_ptr) :: columns, rows, plan, request
    type(dr_options) :: options
    real(c_double), allocatable, asynchronous :: a(:, :), b(:, :)
    real(c_double), allocatable :: wide(:, :), expected(:, :)
    integer(c_int) :: done
    call split(shape, 2, columns, mine)
    call split(shape, 1, rows, theirs)
    call dr_check(dr_options_init(options))
    options%chunk_bytes = 64
    call dr_check(dr_plan_create(columns, rows, MPI_COMM_WORLD, plan, type=DR_FLOAT64, strategy='Pipelined', &
                                 options=options))
    allocate (a(mine(1), mine(2)), wide(2 * mine(1), mine(2)), b(theirs(1), theirs(2)))
    a = reshape([((100.0d0 * i + (before(shape(2), rank) + j), i=1, mine(1)), j=1, mine(2))], mine)
    wide = -1
    wide(::2, :) = a
    expected = reshape([((100.0d0 * (before(shape(1), rank) + i) + j, i=1, theirs(1)), j=1, theirs(2))], theirs)
    b = 0
    call dr_check(dr_plan_execute(plan, wide(::2, :), b))
    call expect(all(abs(b - expected) < 1d-12), 'columns to rows')
    b = 0
    call dr_check(dr_plan_start(plan, a, b, DR_PROGRESS_CALLS, request))
    done = 0
    do while (done == 0)
      call dr_check(dr_request_test(request, done))
    end do
    call dr_check(dr_request_wait(request))
    call expect(all(abs(b - expected) < 1d-12), 'started')
    call free(columns, rows, plan)
  end subroutine

  !> Target axis 1 is source axis 2; converted from 4 to 8 bytes, and doubled.
  subroutine transposed()
    integer(long), parameter :: shape(2) = [7, 9]
    integer(long) :: mine(2), theirs(2), i, j
    type(c_ptr) :: source, target, plan
    integer(c_int32_t), allocatable :: a(:, :)
    integer(c_int64_t), allocatable :: b(:, :)
    call split(shape, 1, source, mine)
    call split(shape(2:1:-1), 1, target, theirs)
    call dr_check(dr_plan_create(source, target, MPI_COMM_WORLD, plan, type=DR_INT32, target_type=DR_INT64, &
                                 axes=[2, 1], alpha=(2.0d0, 0.0d0)))
    a = reshape([((int(100 * (before(shape(1), rank) + i) + j), i=1, mine(1)), j=1, mine(2))], mine)
    allocate (b(theirs(1), theirs(2)))
    call dr_check(dr_plan_execute(plan, a, b))
    do j = 1, theirs(2)
      do i = 1, theirs(1)
        call expect(b(i, j) == 2 * (100 * j + before(shape(2), rank) + i), 'transposed')
      end do
    end do
    call free(source, target, plan)
  end subroutine

  !> Rows 2 to 4, columns 3 to 8 of the source to rows 1 to 3, columns 2 to 7 of the target, added to what it holds.
  subroutine region_of_conjugates()
    integer(long), parameter :: shape(2) = [5, 8], region(2, 3) = reshape([integer(long) :: 2, 3, 1, 2, 3, 6], [2, 3])
    integer(long) :: mine(2), theirs(2), i, j, column
    type(c_ptr) :: source, target, plan
    complex(c_double), allocatable :: a(:, :), b(:, :)
    complex(c_double) :: wanted
    call split(shape, 2, source, mine)
    call split(shape, 2, target, theirs)
    call dr_check(dr_plan_create(source, target, MPI_COMM_WORLD, plan, type=DR_COMPLEX128, region=region, &
                                 beta=(0.0d0, 1.0d0), conjugate=.true.))
    a = reshape([((cmplx(i, before(shape(2), rank) + j, c_double), i=1, mine(1)), j=1, mine(2))], mine)
    allocate (b(theirs(1), theirs(2)), source=(1.0d0, 2.0d0))
    call dr_check(dr_plan_execute(plan, a, b))
    do j = 1, theirs(2)
      do i = 1, theirs(1)
        column = before(shape(2), rank) + j
        wanted = (1.0d0, 2.0d0)
        if (i <= 3 .and. column >= 2 .and. column <= 7) &
          wanted = cmplx(i + 1, -(column + 1), c_double) + (0.0d0, 1.0d0) * wanted
        call expect(abs(b(i, j) - wanted) < 1d-12, 'region')
      end do
    end do
    call free(source, target, plan)
  end subroutine

  !> Every rank holds a partial sum of the vector.
  subroutine partial_sums()
    type(c_ptr) :: source, target, plan
    integer(long) :: theirs(1), i, everyone(1)
    real(c_float) :: a(10)
    real(c_float), allocatable :: b(:)
    everyone = ranks
    call dr_check(dr_distribution_create_blocks([10_long], everyone, source, axes=[DR_NOT_SPLIT]))
    call dr_check(dr_distribution_create_blocks([10_long], everyone, target))
    call dr_check(dr_distribution_local_shape(target, rank, theirs))
    call dr_check(dr_plan_create(source, target, MPI_COMM_WORLD, plan, type=DR_FLOAT32, op=DR_SUM))
    a = [(real(i * (rank + 1)), i=1, 10)]
    allocate (b(theirs(1)))
    call dr_check(dr_plan_execute(plan, a, b))
    do i = 1, theirs(1)
      call expect(nint(b(i)) == (before(10_long, rank) + i) * ranks * (ranks + 1) / 2, 'partial sums')
    end do
    call dr_check(dr_plan_free(plan))
    call dr_check(dr_plan_create(source, target, MPI_COMM_WORLD, plan, type=DR_FLOAT32, op=DR_SUM, &
                                 wire_type=DR_BFLOAT16, wire_within_nodes=.true., accumulate_type=DR_FLOAT64, &
                                 reproducible=.true.))
    a = merge(2.0**24, 1.004, rank == 0) ! each further one would be lost in float32; in bfloat16 they are 1
    call dr_check(dr_plan_execute(plan, a, b))
    call expect(all(b == real(2.0d0**24 + (ranks - 1), c_float)), 'sums in double precision')
    call free(source, target, plan)
  end subroutine

  !> Blocks of 2 x 1 elements of 3 bytes, block-cyclic, on ranks in reverse order.
  subroutine blocks_of_ranks()
    integer(long), parameter :: shape(2) = [9, 4]
    integer(long) :: mine(2), i
    type(c_ptr) :: source, target, plan
    character(3), allocatable :: a(:, :), b(:, :)
    call dr_check(dr_distribution_create_blocks(shape, [int(ranks, long), 1_long], source, block=[2_long, 1_long], &
                                                ranks=[(i, i=ranks - 1, 0, -1)]))
    call dr_check(dr_distribution_create_blocks(shape, [1_long], target))
    call dr_check(dr_distribution_local_shape(source, rank, mine))
    allocate (a(mine(1), mine(2)))
    a = '---'
    do i = 1, mine(1)
      a(i, :) = number(ranks - 1 - rank + ranks * ((i - 1) / 2)) ! of the block
    end do
    allocate (b(9, 4))
    b = '   '
    call dr_check(dr_plan_create(source, target, MPI_COMM_WORLD, plan, element_bytes=3))
    call dr_check(dr_plan_execute(plan, a, b))
    do i = 1, 9
      if (rank == 0) call expect(all(b(i, :) == number((i - 1) / 2)), 'block-cyclic')
    end do
    if (rank > 0) call expect(all(b == '   '), 'a rank without a part')
    call free(source, target, plan)
  end subroutine

  function number(n) result(text)
    integer(long), intent(in) :: n
    character(3) :: text
    write (text, '(i3)') n
  end function

  !> Both axes have parts of given lengths, over a grid of 2 x 3 ranks.
  subroutine uneven_parts()
    integer(long), parameter :: rows(2) = [5, 7], columns(3) = [2, 0, 8]
    integer(long) :: mine(2)
    type(c_ptr) :: distribution
    integer :: i, j
    call dr_check(dr_distribution_create_blocks([12_long, 10_long], [2_long, 3_long], distribution, &
                                                block=[integer(long) :: DR_BLOCK_LENGTHS, DR_BLOCK_LENGTHS, rows, columns]))
    do i = 1, 2
      do j = 1, 3
        call dr_check(dr_distribution_local_shape(distribution, 3 * (i - 1) + j - 1, mine))
        call expect(all(mine == [rows(i), columns(j)]), 'uneven parts')
      end do
    end do
    call dr_check(dr_distribution_free(distribution))
  end subroutine

  !> A wrong argument is named as Fortran does, on every rank.
  subroutine refused(code, text)
    integer(c_int), intent(in) :: code
    character(*), intent(in) :: text
    character(:), allocatable :: said
    said = dr_error()
    call expect((code == 1 .or. code == 2) .and. index(said, text) > 0 .and. index(said, '_f:') == 0, &
                '"'//text//'" is not in "'//said//'"')
  end subroutine

  subroutine lists_of_blocks()
    type(c_ptr) :: d
    integer(long) :: s(2), g(2), short(1), long_list(3)
    integer(long), allocatable :: ranks_of_grid(:)
    s = [12, 10]
    g = [2, 1]
    call refused(dr_distribution_create_blocks(s, g, d, axes=[1]), 'axes must have 2 entries, got 1')
    call refused(dr_distribution_create_blocks(s, g, d, axes=[1, 2, 0]), 'axes must have 2 entries, got 3')
    call refused(dr_distribution_create_blocks(s, g, d, axes=[1, 3]), 'axes(2) is 3, but the process grid has axes 1 to 2')
    call refused(dr_distribution_create_blocks(s, g, d, axes=[-1, 1]), 'axes(1) is -1')
    call refused(dr_distribution_create_blocks(s, g, d, axes=[2, 2]), 'grid axis 2 is used twice: by tensor axes 2 and 1')
    call refused(dr_distribution_create_blocks(s, g, d, block=[3_long]), 'block must have 2 entries, got 1')
    call refused(dr_distribution_create_blocks(s, g, d, block=[3_long, 3_long, 3_long]), 'block must have 2 entries, got 3')
    call refused(dr_distribution_create_blocks(s, g, d, block=[-2_long, 3_long, 7_long]), 'block must have 4 entries, got 3')
    call refused(dr_distribution_create_blocks(s, g, d, block=[-2_long, 3_long, 7_long, 6_long]), &
                 'block(1): the lengths of the parts must add up to shape(1), 12, got (7, 6)')
    call refused(dr_distribution_create_blocks(s, g, d, block=[2_long, -3_long]), 'block(2) must be at least 1 element, got -3')
    call refused(dr_distribution_create_blocks([12_long, -1_long], g, d), 'shape(2) must be at least 0, got -1')
    call refused(dr_distribution_create_blocks(s, [2_long, 0_long], d), 'grid(2) must be at least 1, got 0')
    allocate (ranks_of_grid(0))
    call refused(dr_distribution_create_blocks(s, g, d, ranks=ranks_of_grid), 'ranks must have 2 entries, got 0')
    call refused(dr_distribution_create_blocks(s, g, d, ranks=[0_long, -4_long]), 'ranks(2) must not be negative, got -4')
    call dr_check(dr_distribution_create_blocks(s, g, d))
    call refused(dr_distribution_local_shape(d, 0, short), 'dr_distribution_local_shape: shape must have 2 entries, got 1')
    call refused(dr_distribution_local_shape(d, 0, long_list), 'shape must have 2 entries, got 3')
    call refused(dr_distribution_local_shape(d, -1, s), 'rank must be at least 0, got -1')
    call dr_check(dr_distribution_free(d))
  end subroutine

  !> The last rank passes what is wrong; every rank gets an error.
  subroutine lists_of_plans()
    type(c_ptr) :: rows, wider, plan
    integer(long) :: region(2, 3), mine(2)
    integer :: axes(3)
    logical :: wrong
    character(12) :: strategy
    wrong = rank == ranks - 1
    strategy = merge('Fastest     ', 'Hierarchical', wrong)
    call split([12_long, 10_long], 1, rows, mine)
    call split([12_long, merge(11_long, 10_long, wrong)], 1, wider, mine)
    region = reshape([integer(long) :: 1, 1, 1, 1, 12, 10], [2, 3])
    axes = [1, 2, 3]
    call made(dr_plan_create(rows, rows, MPI_COMM_WORLD, plan, DR_FLOAT64, axes=axes(:merge(1, 2, wrong))), &
              'axes must have 2 entries, got 1')
    call made(dr_plan_create(rows, rows, MPI_COMM_WORLD, plan, DR_FLOAT64, axes=axes(:merge(3, 2, wrong))), &
              'axes must have 2 entries, got 3')
    axes(2) = merge(1, 2, wrong)
    call made(dr_plan_create(rows, rows, MPI_COMM_WORLD, plan, DR_FLOAT64, axes=axes(:2)), &
              'axes must name each of the 2 dimensions once, got (1, 1)')
    call made(dr_plan_create(rows, rows, MPI_COMM_WORLD, plan, DR_FLOAT64, region=region(:, :merge(2, 3, wrong))), &
              'the second dimension of region must have 3 entries, got 2')
    call made(dr_plan_create(rows, rows, MPI_COMM_WORLD, plan, DR_FLOAT64, region=region(:merge(1, 2, wrong), :)), &
              'the first dimension of region must have 2 entries, got 1')
    if (wrong) region(2, 1) = 3
    call made(dr_plan_create(rows, rows, MPI_COMM_WORLD, plan, DR_FLOAT64, region=region), &
              'region: 10 indices from 3 on are not inside dimension 2 of the source, which has 10')
    call made(dr_plan_create(rows, rows, MPI_COMM_WORLD, plan, merge(99, DR_FLOAT64, wrong)), 'type must be from 0 to 15, got 99')
    call made(dr_plan_create(rows, rows, MPI_COMM_WORLD, plan, merge(0, DR_FLOAT64, wrong)), 'element_bytes must be set')
    call made(dr_plan_create(rows, rows, MPI_COMM_WORLD, plan, DR_FLOAT64, strategy=strategy), 'unknown strategy "Fastest"')
    call refused(dr_plan_free(rows), '')
    call made(dr_plan_create(rows, wider, MPI_COMM_WORLD, plan, DR_FLOAT64), &
              'source and target need one global shape, got (12, 10) and (12, 11)')
    if (ranks > 1) call refused(dr_plan_create(wider, wider, MPI_COMM_WORLD, plan, DR_FLOAT64), &
                                'source shape(2): 10 on rank 0 and 11')
    call dr_check(dr_distribution_free(rows))
    call dr_check(dr_distribution_free(wider))
  end subroutine

  !> Element (i, j) is 100 i + j, in files in the folder that is the first argument.
  subroutine files()
    integer(long), parameter :: shape(2) = [13, 11]
    integer(long) :: mine(2), theirs(2), i, j
    type(c_ptr) :: columns, rows
    real(c_double), allocatable :: a(:, :), b(:, :), expected(:, :)
    character(1000) :: folder
    integer(c_int) :: code
    call get_command_argument(1, folder)
    folder = trim(folder)//'/fortran.'
    call split(shape, 2, columns, mine)
    call split(shape, 1, rows, theirs)
    a = reshape([((100.0d0 * i + (before(shape(2), rank) + j), i=1, mine(1)), j=1, mine(2))], mine)
    expected = reshape([((100.0d0 * (before(shape(1), rank) + i) + j, i=1, theirs(1)), j=1, theirs(2))], theirs)
    allocate (b(theirs(1), theirs(2)))
    do i = 1, 3
      b = 0
      if (i < 3) then
        call dr_check(dr_save(trim(folder)//'npy', columns, MPI_COMM_WORLD, a, type=DR_FLOAT64, c_order=i == 1))
        call dr_check(dr_load(trim(folder)//'npy', rows, MPI_COMM_WORLD, b, type=DR_FLOAT64))
      else
        call dr_check(dr_save(trim(folder)//'raw', columns, MPI_COMM_WORLD, a, element_bytes=8, offset=8_long))
        call dr_check(dr_load(trim(folder)//'raw', rows, MPI_COMM_WORLD, b, element_bytes=8, offset=8_long))
      end if
      call expect(all(abs(b - expected) < 1d-12), 'a file')
    end do
    call dr_check(dr_distribution_free(rows))
    call split([11_long, 13_long], 1, rows, theirs)
    deallocate (b)
    allocate (b(theirs(1), theirs(2)))
    code = dr_load(trim(folder)//'npy', rows, MPI_COMM_WORLD, b, type=DR_FLOAT64)
    call expect(code == 5 .and. index(dr_error(), 'shape (13, 11), but the distribution has (11, 13)') > 0, dr_error())
    call dr_check(dr_distribution_free(rows))
    call dr_check(dr_distribution_free(columns))
  end subroutine

  !> From rank 0 to the others.
  subroutine between_groups()
    integer(long), parameter :: shape(2) = [4, 3]
    type(c_ptr) :: one, several, plan
    type(MPI_Comm) :: group, both
    integer :: in_group, i
    integer(long) :: theirs(2)
    real(c_double) :: whole(4, 3)
    real(c_double), allocatable :: b(:, :)
    call MPI_Comm_split(MPI_COMM_WORLD, min(rank, 1), 0, group)
    call MPI_Intercomm_create(group, 0, MPI_COMM_WORLD, merge(1, 0, rank == 0), 0, both)
    call MPI_Comm_rank(group, in_group)
    call dr_check(dr_distribution_create_blocks(shape, [1_long], one))
    call dr_check(dr_distribution_create_blocks(shape, [int(ranks - 1, long)], several))
    call dr_check(dr_plan_create(one, several, both, plan, type=DR_FLOAT64, sends=rank == 0))
    call dr_check(dr_distribution_local_shape(several, in_group, theirs))
    if (rank == 0) theirs = 0
    allocate (b(theirs(1), theirs(2)))
    whole = reshape([(real(i, c_double), i=1, 12)], [4, 3])
    call dr_check(dr_plan_execute(plan, whole, b))
    if (rank > 0) then
      i = in_group * (4 / (ranks - 1)) + min(in_group, mod(4, ranks - 1))
      call expect(all(abs(b - whole(i + 1:i + int(theirs(1)), :)) < 1d-12), 'between groups')
    end if
    call free(one, several, plan)
    call MPI_Comm_free(both)
    call MPI_Comm_free(group)
  end subroutine

  subroutine made(code, text)
    integer(c_int), intent(in) :: code
    character(*), intent(in) :: text
    call refused(code, text)
    if (rank < ranks - 1) call expect(index(dr_error(), 'on rank ') > 0, 'the rank that failed is not named')
  end subroutine
end program
