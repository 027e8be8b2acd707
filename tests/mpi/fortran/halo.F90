! SPDX-License-Identifier: BSD-3-Clause
! Neighborhood collectives on a ring, from Fortran: blocking, nonblocking and
! persistent, with every completion call, and persistent messages; from the
! counters that rsched carried them. MPICH 4.0's alltoallw in mpi_f08 knows distributed graphs only
! (NO_ALLTOALLW). Compiled for mpif.h, the mpi module and mpi_f08 (check-fortran
! defines USE_MPIFH, USE_MPI or USE_F08, and OPEN_MPI where the persistent calls
! have Open MPI's names).

#ifdef OPEN_MPI
#define alltoall_init MPIX_Neighbor_alltoall_init
#define alltoallv_init MPIX_Neighbor_alltoallv_init
#define alltoallw_init MPIX_Neighbor_alltoallw_init
#define allgather_init MPIX_Neighbor_allgather_init
#define allgatherv_init MPIX_Neighbor_allgatherv_init
#else
#define alltoall_init MPI_Neighbor_alltoall_init
#define alltoallv_init MPI_Neighbor_alltoallv_init
#define alltoallw_init MPI_Neighbor_alltoallw_init
#define allgather_init MPI_Neighbor_allgather_init
#define allgatherv_init MPI_Neighbor_allgatherv_init
#endif

! Calls of MPI 4.1, without their interfaces.
#ifdef USE_F08
#define status_any MPI_Request_get_status_any_f08
#define status_all MPI_Request_get_status_all_f08
#define status_some MPI_Request_get_status_some_f08
#else
#define status_any MPI_Request_get_status_any
#define status_all MPI_Request_get_status_all
#define status_some MPI_Request_get_status_some
#endif

#ifdef USE_F08
#define COMM_TYPE type(MPI_Comm)
#define REQUEST_TYPE type(MPI_Request)
#define DATA_TYPE type(MPI_Datatype)
#define STATUS_ONE type(MPI_Status) :: status
#define STATUS_MANY(n) type(MPI_Status) :: statuses(n)
#else
#define COMM_TYPE integer
#define REQUEST_TYPE integer
#define DATA_TYPE integer
#define STATUS_ONE integer :: status(MPI_STATUS_SIZE)
#define STATUS_MANY(n) integer :: statuses(MPI_STATUS_SIZE, n)
#endif

module counters
  use, intrinsic :: iso_c_binding
  implicit none
  abstract interface
    function counter_fn(name, value) bind(C) result(error)
      import
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), intent(out) :: value
      integer(c_int) :: error
    end function
  end interface
  interface
    function dlsym(handle, name) bind(C, name="dlsym") result(address)
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      type(c_funptr) :: address
    end function
  end interface
contains
  ! -1 when the backend is not loaded
  function counter(name) result(value)
    character(*), intent(in) :: name
    integer(c_int64_t) :: value
    type(c_funptr) :: address
    procedure(counter_fn), pointer :: read_counter

    address = dlsym(c_null_ptr, "rsched_mpi_counter" // c_null_char)
    value = -1
    if (.not. c_associated(address)) return
    call c_f_procpointer(address, read_counter)
    if (read_counter(name // c_null_char, value) /= 0) value = -2
  end function
end module

program halo
#ifdef USE_F08
  use mpi_f08
#elif defined(USE_MPI)
  use mpi
#endif
  use counters
  implicit none
#ifdef USE_MPIFH
  include 'mpif.h'
#endif
  integer, parameter :: N = 5
  COMM_TYPE :: ring, copy
  integer :: ierr, rank, nprocs, left, right, round, way
  integer :: dims(1)
  integer, asynchronous :: out(2), in(2), outs(2, N), ins(2, N)
  integer :: counts(2), displs(2)
  integer(MPI_ADDRESS_KIND) :: bytes(2), at_out(2), at_in(2)
  DATA_TYPE :: types(2)
  REQUEST_TYPE :: requests(N), one

  call MPI_Init(ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, nprocs, ierr)
  dims(1) = nprocs
  call MPI_Cart_create(MPI_COMM_WORLD, 1, dims, (/.true./), .false., ring, ierr)
  call MPI_Comm_rank(ring, rank, ierr)
  call MPI_Cart_shift(ring, 0, 1, left, right, ierr)
  if (counter("accelerated") < 0) call fail("the backend is not loaded")
  counts = 1
  displs = (/0, 1/)
  bytes = (/0, 4/)
  types = MPI_INTEGER

  ! blocking
  call fill(out, 1)
  in = -1
  call MPI_Neighbor_alltoall(out, 1, MPI_INTEGER, in, 1, MPI_INTEGER, ring, ierr)
  call verify(in, 1)
  in = -1
  call MPI_Neighbor_alltoallv(out, counts, displs, MPI_INTEGER, in, counts, displs, MPI_INTEGER, ring, ierr)
  call verify(in, 1)
  in = -1
#ifndef NO_ALLTOALLW
  call MPI_Neighbor_alltoallw(out, counts, bytes, types, in, counts, bytes, types, ring, ierr)
  call verify(in, 1)
  ! with absolute addresses
  in = -1
  do way = 1, 2
    call MPI_Get_address(out(way), at_out(way), ierr)
    call MPI_Get_address(in(way), at_in(way), ierr)
  end do
  call MPI_Neighbor_alltoallw(MPI_BOTTOM, counts, at_out, types, MPI_BOTTOM, counts, at_in, types, ring, ierr)
  call MPI_Get_address(in(1), at_in(1), ierr) ! the compiler must load it again
  call verify(in, 1)
#endif
  in = -1
  call MPI_Neighbor_allgather(rank, 1, MPI_INTEGER, in, 1, MPI_INTEGER, ring, ierr)
  call verify_ranks(in)
  in = -1
  call MPI_Neighbor_allgatherv(rank, 1, MPI_INTEGER, in, counts, displs, MPI_INTEGER, ring, ierr)
  call verify_ranks(in)

  call natives()
  call messages()
#ifdef LATE
  call nothing_at_all()
#endif

  ! nonblocking, each completion call in turn
  do round = 1, 9
    call begin(ring)
    call complete(round)
    call finish(round)
    if (any_left()) call fail("a completed request is not null")
  end do
  call MPI_Comm_dup(ring, copy, ierr)
  call begin(copy)
  call MPI_Comm_free(copy, ierr)
  call complete(1)
  call finish(1)

  ! persistent
  call make_persistent()
  do round = 1, 9
    call fill_all(round)
    if (mod(round, 2) == 0) then
      call MPI_Startall(N, requests, ierr)
    else
      do way = 1, N
        call MPI_Start(requests(way), ierr)
      end do
    end if
    call complete(round)
    call finish(round)
  end do
  do way = 1, N
    call MPI_Request_free(requests(way), ierr)
  end do
  if (any_left()) call fail("a freed request is not null")

  call expect("neighbor_alltoall.accelerated", 1)
  call expect("neighbor_alltoallv.accelerated", 1)
#ifndef NO_ALLTOALLW
  call expect("neighbor_alltoallw.accelerated", 2)
#endif
  call expect("neighbor_allgather.accelerated", 1)
  call expect("neighbor_allgatherv.accelerated", 1)
  call expect("ineighbor_alltoall.accelerated", 10)
#ifdef NO_ALLTOALLW
  call expect("ineighbor_alltoallv.accelerated", 20)
#else
  call expect("ineighbor_alltoallv.accelerated", 10)
  call expect("ineighbor_alltoallw.accelerated", 10)
#endif
  call expect("ineighbor_allgather.accelerated", 10)
  call expect("ineighbor_allgatherv.accelerated", 10)
  call expect("neighbor_alltoall_init.accelerated", 1)
#ifdef NO_ALLTOALLW
  call expect("neighbor_alltoallv_init.accelerated", 2)
#else
  call expect("neighbor_alltoallv_init.accelerated", 1)
  call expect("neighbor_alltoallw_init.accelerated", 1)
#endif
  call expect("neighbor_allgather_init.accelerated", 1)
  call expect("neighbor_allgatherv_init.accelerated", 1)
  call expect("starts", 9 * N)
  call expect("native", 0)
  call expect("requests", 0)
  call MPI_Comm_free(ring, ierr)
  call MPI_Barrier(MPI_COMM_WORLD, ierr)
  if (rank == 0) print '(a)', 'fortran: ok'
  call MPI_Finalize(ierr)

contains

  subroutine fail(text)
    character(*), intent(in) :: text
    integer :: error

    print '(a,i0,a,a)', 'rank ', rank, ': ', text
    call MPI_Abort(MPI_COMM_WORLD, 1, error)
  end subroutine

  subroutine expect(name, value)
    character(*), intent(in) :: name
    integer, intent(in) :: value
    character(200) :: text

    if (counter(name) == value) return
    write (text, '(a,a,i0,a,i0)') name, ' is ', counter(name), ', not ', value
    call fail(trim(text))
  end subroutine

  ! What goes to the left and to the right.
  subroutine fill(to, number)
    integer, intent(out) :: to(2)
    integer, intent(in) :: number

    to(1) = rank * 1000 + number * 10
    to(2) = rank * 1000 + number * 10 + 1
  end subroutine

  subroutine verify(from, number)
    integer, intent(in) :: from(2), number

    if (from(1) /= left * 1000 + number * 10 + 1 .or. &
        from(2) /= right * 1000 + number * 10) then
      print *, rank, 'received', from, 'in', number
      call fail("wrong data")
    end if
  end subroutine

  subroutine verify_ranks(from)
    integer, intent(in) :: from(2)

    if (from(1) /= left .or. from(2) /= right) then
      print *, rank, 'received', from, 'in round', round
      call fail("wrong ranks")
    end if
  end subroutine

  subroutine fill_all(number)
    integer, intent(in) :: number
    integer :: k

    do k = 1, N
      call fill(outs(:, k), number + k)
    end do
    outs(1, 4:5) = rank
    ins = -1
  end subroutine

  subroutine begin(comm)
    COMM_TYPE, intent(in) :: comm

    call fill_all(round_of())
    call MPI_Ineighbor_alltoall(outs(1, 1), 1, MPI_INTEGER, ins(1, 1), 1, MPI_INTEGER, comm, requests(1), ierr)
    call MPI_Ineighbor_alltoallv(outs(1, 2), counts, displs, MPI_INTEGER, ins(1, 2), counts, displs, &
                                 MPI_INTEGER, comm, requests(2), ierr)
#ifdef NO_ALLTOALLW
    call MPI_Ineighbor_alltoallv(outs(1, 3), counts, displs, MPI_INTEGER, ins(1, 3), counts, displs, &
                                 MPI_INTEGER, comm, requests(3), ierr)
#else
    call MPI_Ineighbor_alltoallw(outs(1, 3), counts, bytes, types, ins(1, 3), counts, bytes, types, &
                                 comm, requests(3), ierr)
#endif
    call MPI_Ineighbor_allgather(outs(1, 4), 1, MPI_INTEGER, ins(1, 4), 1, MPI_INTEGER, comm, requests(4), ierr)
    call MPI_Ineighbor_allgatherv(outs(1, 5), 1, MPI_INTEGER, ins(1, 5), counts, displs, MPI_INTEGER, &
                                  comm, requests(5), ierr)
  end subroutine

  ! After the rounds it is beyond the last.
  integer function round_of()
    round_of = merge(round, 1, round <= 9)
  end function

  subroutine make_persistent()
    call alltoall_init(outs(1, 1), 1, MPI_INTEGER, ins(1, 1), 1, MPI_INTEGER, ring, &
                                 MPI_INFO_NULL, requests(1), ierr)
    call alltoallv_init(outs(1, 2), counts, displs, MPI_INTEGER, ins(1, 2), counts, displs, &
                                  MPI_INTEGER, ring, MPI_INFO_NULL, requests(2), ierr)
#ifdef NO_ALLTOALLW
    call alltoallv_init(outs(1, 3), counts, displs, MPI_INTEGER, ins(1, 3), counts, displs, &
                                  MPI_INTEGER, ring, MPI_INFO_NULL, requests(3), ierr)
#else
    call alltoallw_init(outs(1, 3), counts, bytes, types, ins(1, 3), counts, bytes, types, &
                                  ring, MPI_INFO_NULL, requests(3), ierr)
#endif
    call allgather_init(outs(1, 4), 1, MPI_INTEGER, ins(1, 4), 1, MPI_INTEGER, ring, &
                                  MPI_INFO_NULL, requests(4), ierr)
    call allgatherv_init(outs(1, 5), 1, MPI_INTEGER, ins(1, 5), counts, displs, MPI_INTEGER, &
                                   ring, MPI_INFO_NULL, requests(5), ierr)
  end subroutine

#ifdef LATE
  ! Look at all until they are complete, which leaves them as they are.
  subroutine look(number)
    integer, intent(in) :: number
    external :: status_any, status_all, status_some
    STATUS_ONE
    STATUS_MANY(N)
    REQUEST_TYPE :: before(N)
    integer :: k, index, num, indices(N)
    logical :: flag

    before = requests
    flag = .false.
    do while (.not. flag)
      call status_any(N, requests, index, flag, status, ierr)
    end do
    if (index < 1 .or. index > N) call fail("an index out of range")
    num = 0
    do while (num < N)
      if (mod(number, 2) == 0) then
        call status_some(N, requests, num, indices, statuses, ierr)
      else
        call status_some(N, requests, num, indices, MPI_STATUSES_IGNORE, ierr)
      end if
    end do
    do k = 1, N
      if (indices(k) /= k) call fail("a wrong index")
    end do
    call status_all(N, requests, flag, statuses, ierr)
    if (.not. flag) call fail("not complete any more")
    call status_all(N, requests, flag, MPI_STATUSES_IGNORE, ierr)
    if (.not. flag) call fail("not complete any more")
    do k = 1, N
      if (requests(k) /= before(k)) call fail("a handle was changed")
    end do
  end subroutine

  ! Native requests and null ones.
  subroutine nothing_at_all()
    external :: status_any, status_all, status_some
    STATUS_ONE
    STATUS_MANY(2)
    REQUEST_TYPE :: pair(2)
    integer :: to_right, from_left, index, num, indices(2)
    logical :: flag

    pair = MPI_REQUEST_NULL
    flag = .false.
    call status_any(2, pair, index, flag, status, ierr)
    if (.not. flag .or. index /= MPI_UNDEFINED) call fail("an index of nothing")
    flag = .false.
    call status_all(2, pair, flag, statuses, ierr)
    if (.not. flag) call fail("nothing is not complete")
    call status_some(2, pair, num, indices, statuses, ierr)
    if (num /= MPI_UNDEFINED) call fail("a number of nothing")
    to_right = rank
    call MPI_Irecv(from_left, 1, MPI_INTEGER, left, 7, ring, pair(2), ierr)
    call MPI_Send(to_right, 1, MPI_INTEGER, right, 7, ring, ierr)
    flag = .false.
    do while (.not. flag)
      call status_any(2, pair, index, flag, status, ierr)
    end do
    if (index /= 2) call fail("a wrong index")
    call status_all(2, pair, flag, statuses, ierr)
    call status_some(2, pair, num, indices, statuses, ierr)
    if (.not. flag .or. num /= 1 .or. indices(1) /= 2) call fail("a wrong number")
#ifdef USE_F08
    if (status%MPI_SOURCE /= left .or. status%MPI_TAG /= 7 .or. statuses(1)%MPI_SOURCE /= left) &
      call fail("a wrong status")
#else
    if (status(MPI_SOURCE) /= left .or. status(MPI_TAG) /= 7 .or. statuses(MPI_SOURCE, 1) /= left) &
      call fail("a wrong status")
#endif
    call MPI_Wait(pair(2), status, ierr)
    if (from_left /= left) call fail("wrong data")
  end subroutine
#endif

  subroutine complete(number)
    integer, intent(in) :: number
    STATUS_ONE
    STATUS_MANY(N)
    logical :: flag, seen(N)
    integer :: k, index, num, indices(N), left_over

#ifdef LATE
    call look(number)
#endif
    seen = .false.
    left_over = N
    do while (left_over > 0)
      num = 0
      select case (number)
      case (1)
        do k = N, 1, -1
          call MPI_Wait(requests(k), MPI_STATUS_IGNORE, ierr)
        end do
        return
      case (2)
        do k = 1, N
          flag = .false.
          do while (.not. flag)
            call MPI_Test(requests(k), flag, status, ierr)
          end do
        end do
        return
      case (3)
        call MPI_Waitall(N, requests, MPI_STATUSES_IGNORE, ierr)
        return
      case (4)
        flag = .false.
        do while (.not. flag)
          call MPI_Testall(N, requests, flag, statuses, ierr)
        end do
        return
      case (5)
        call MPI_Waitany(N, requests, index, status, ierr)
        num = 1
        indices(1) = index
      case (6)
        call MPI_Testany(N, requests, index, flag, MPI_STATUS_IGNORE, ierr)
        if (flag) num = 1
        indices(1) = index
      case (7)
        call MPI_Waitsome(N, requests, num, indices, statuses, ierr)
      case (8)
        call MPI_Testsome(N, requests, num, indices, MPI_STATUSES_IGNORE, ierr)
      case default
        do k = 1, N
          flag = .false.
          do while (.not. flag)
            call MPI_Request_get_status(requests(k), flag, status, ierr)
          end do
        end do
        call MPI_Waitall(N, requests, statuses, ierr)
        return
      end select
      do k = 1, num
        if (indices(k) < 1 .or. indices(k) > N) call fail("an index out of range")
        if (seen(indices(k))) call fail("completed twice")
        seen(indices(k)) = .true.
      end do
      left_over = left_over - num
    end do
  end subroutine

  subroutine finish(number)
    integer, intent(in) :: number
    integer :: k

    do k = 1, 3
      call verify(ins(:, k), number + k)
    end do
    call verify_ranks(ins(:, 4))
    call verify_ranks(ins(:, 5))
  end subroutine

  ! Persistent sends and receives, until all processes have had one of each kind of
  ! start out of a lane. Not of all at once: without a core for each they take turns.
  subroutine messages()
    integer, parameter :: MOST = 5000
    STATUS_ONE
    STATUS_MANY(2)
    REQUEST_TYPE :: pair(2)
    integer, asynchronous :: to_right, from_left
    integer :: k, index, good(0:1), all_good(0:1)
    integer(c_int64_t) :: before
    logical :: flag

    call MPI_Recv_init(from_left, 1, MPI_INTEGER, left, 9, ring, pair(1), ierr)
    call MPI_Send_init(to_right, 1, MPI_INTEGER, right, 9, ring, pair(2), ierr)
    good = 0
    do k = 1, MOST
      before = counter("lane_receives")
      to_right = rank * MOST + k
      from_left = -1
      if (mod(k, 2) == 0) then
        call MPI_Startall(2, pair, ierr)
        call MPI_Waitall(2, pair, statuses, ierr)
#ifdef USE_F08
        if (statuses(1)%MPI_SOURCE /= left .or. statuses(1)%MPI_TAG /= 9) call fail("a wrong status")
#else
        if (statuses(MPI_SOURCE, 1) /= left .or. statuses(MPI_TAG, 1) /= 9) call fail("a wrong status")
#endif
      else
        call MPI_Start(pair(1), ierr)
        call MPI_Start(pair(2), ierr)
        flag = .false.
        do while (.not. flag)
          call MPI_Test(pair(1), flag, status, ierr)
        end do
        call MPI_Waitany(2, pair, index, status, ierr)
        if (index /= 2) call fail("a wrong index")
      end if
      if (from_left /= left * MOST + k) call fail("wrong data in a message")
      if (counter("lane_receives") == before + 1) good(mod(k, 2)) = 1
      call MPI_Allreduce(good, all_good, 2, MPI_INTEGER, MPI_MIN, ring, ierr)
      if (all(all_good == 1)) exit
    end do
    if (k > MOST) call fail("messages do not go through lanes")
    call MPI_Request_free(pair(1), ierr)
    call MPI_Request_free(pair(2), ierr)
    if (counter("send_init.accelerated") /= 1) call fail("send_init is not accelerated")
  end subroutine

  ! Requests that are not rsched's come back with their statuses.
  subroutine natives()
    STATUS_ONE
    STATUS_MANY(2)
    REQUEST_TYPE :: pair(2)
    integer :: to_right, from_left, index
    logical :: flag

    to_right = rank
    call MPI_Irecv(from_left, 1, MPI_INTEGER, left, 7, ring, pair(1), ierr)
    call MPI_Isend(to_right, 1, MPI_INTEGER, right, 7, ring, pair(2), ierr)
    call MPI_Waitall(2, pair, statuses, ierr)
#ifdef USE_F08
    if (statuses(1)%MPI_SOURCE /= left .or. statuses(1)%MPI_TAG /= 7) call fail("a wrong status")
#else
    if (statuses(MPI_SOURCE, 1) /= left .or. statuses(MPI_TAG, 1) /= 7) call fail("a wrong status")
#endif
    if (from_left /= left) call fail("wrong data from a native receive")
    call MPI_Irecv(from_left, 1, MPI_INTEGER, left, 8, ring, one, ierr)
    call MPI_Send(to_right, 1, MPI_INTEGER, right, 8, ring, ierr)
    flag = .false.
    do while (.not. flag)
      call MPI_Test(one, flag, status, ierr)
    end do
#ifdef USE_F08
    if (status%MPI_SOURCE /= left .or. status%MPI_TAG /= 8) call fail("a wrong status")
    call MPI_Wait(one, MPI_STATUS_IGNORE) ! without the last argument
    call MPI_Comm_dup(ring, copy)
    call MPI_Comm_free(copy)
#else
    if (status(MPI_SOURCE) /= left .or. status(MPI_TAG) /= 8) call fail("a wrong status")
#endif
    if (one /= MPI_REQUEST_NULL) call fail("a completed request is not null")
#if defined(OPEN_MPI) || defined(USE_F08)
    ! (MPICH 4.0's mpif.h adds 1 to MPI_UNDEFINED.)
    call MPI_Waitany(2, pair, index, MPI_STATUS_IGNORE, ierr)
    if (index /= MPI_UNDEFINED) call fail("an index of nothing")
#endif
  end subroutine

  logical function any_left()
    integer :: k

    any_left = .false.
    do k = 1, N
      if (requests(k) /= MPI_REQUEST_NULL) any_left = .true.
    end do
  end function
end program
