/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * \file
 * C interface of dace-redist: moves a distributed n-D tensor from one distribution over MPI ranks to another.
 *
 * C99. Every function returns DR_SUCCESS or another code of ::dr_status, and never ends the process; dr_error() says
 * what went wrong. Sizes and offsets are 64-bit numbers of elements unless a name says bytes. Handles are opaque, made
 * by a `_create` function and freed by the `_free` function of the same name, which sets them to null. MPI must have
 * been initialized by MPI_Init or MPI_Init_thread: an MPI session is not enough.
 *
 * Compile and link: `cc program.c $(dace-redist config --cflags --libs)`, or the CMake package `dace_redist`.
 */
#ifndef DACE_REDIST_H
#define DACE_REDIST_H

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX /* the C++ bindings of Open MPI 4 are gone from MPI, and warn */
#endif
#include <mpi.h>
#include <stdint.h>

#include "dace_redist_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What a function returns. */
typedef enum dr_status {
  DR_SUCCESS = 0,
  DR_ERROR_ARGUMENT = 1, /**< a null or freed handle, a null pointer, or a number out of range */
  DR_ERROR_PLAN = 2,     /**< the ranks disagree, a distribution, array, strategy, option or operation does not fit, or
                              another rank got an error */
  DR_ERROR_EXECUTE = 3,  /**< an exchange failed; the plan can only be freed */
  DR_ERROR_MEMORY = 4,   /**< out of memory */
  DR_ERROR_FILE = 5      /**< a file cannot be read or written, or has another array */
} dr_status;

/** Who owns what: a tensor's elements over the ranks of a communicator. */
typedef struct dr_distribution dr_distribution;
/** A redistribution ready to be executed, any number of times. */
typedef struct dr_plan dr_plan;

/** What a plan is made for. Set by dr_problem_init(), then the first three members at least. */
typedef struct dr_problem {
  const dr_distribution *source; /**< the tensor's distribution now */
  const dr_distribution *target; /**< the distribution wanted; of the same global shape, but for the members below */
  int64_t element_bytes;         /**< bytes of an element, >= 1 */
  const char *strategy;          /**< "Datatype", "Pack", "Threaded", "Pipelined", "RMA", "Hierarchical";
                                      docs/strategies.md describes them. "Auto" exists in Python only */
  dr_options options;
  const int64_t *source_shape;   /**< [ndim] extents of this rank's source array; null: what the rank owns */
  const int64_t *source_strides; /**< [ndim] strides in elements, >= 0; null: C order */
  const int64_t *target_shape;   /**< as for the source */
  const int64_t *target_strides; /**< as for the source, but > 0 along axes of several elements */
  const char *label; /**< names the plan in error messages; null: "redistribution" */
  const int *axes;   /**< [ndim] the source axis that each target axis comes from; null: the same */
  const int64_t *region_source_offset; /**< [ndim] a sub-tensor moves: its first index in the source; null: all moves */
  const int64_t *region_target_offset; /**< [ndim] its first index in the target, in the axes of the target */
  const int64_t *region_shape;         /**< [ndim] its extents, in the axes of the source */
  dr_operation operation;              /**< what is computed with elements on their way */
  int source_memory;                   /**< ::dr_memory of the source array; the same on every rank */
  int target_memory;                   /**< ::dr_memory of the target array */
  int reshape; /**< 1: the source, permuted by axes, is reshaped in C order to the target's shape; without a region */
  int sends;   /**< with an intercommunicator: 1 in the group that has the source, 0 in that which has the target */
  int64_t reserve[16]; /**< 0; for members of later versions */
} dr_problem;

/** Value for an axis in `axes` that is not split. */
#define DR_NOT_SPLIT (-1)
/** Values for an axis in `block`: one block of ceil(extent / parts) each; one block each, the first get one more; parts
 *  of given lengths. */
#define DR_BLOCK_CEIL 0
#define DR_BLOCK_BALANCED (-1)
#define DR_BLOCK_LENGTHS (-2)

/** Text of the last error of the calling thread, valid until its next call of this library; never null. */
DR_API const char *dr_error(void);

/** Version of the library, such as "0.1.0". */
DR_API const char *dr_version(void);

/**
 * A tensor cut into blocks over a process grid: uniform, balanced, block-cyclic or of any length.
 *
 * \param ndim, shape  global shape of the tensor.
 * \param grid_ndim, grid  shape of the process grid, whose ranks are row-major.
 * \param axes  [ndim] the grid axis over which each tensor axis is split, or DR_NOT_SPLIT; null: axis i over grid axis
 *     i. A grid axis that none names holds replicas.
 * \param block  [ndim] elements per block, DR_BLOCK_BALANCED or DR_BLOCK_CEIL; fewer than ceil(extent / parts):
 *     block-cyclic. Null: DR_BLOCK_BALANCED. After these entries follow, for each axis with DR_BLOCK_LENGTHS in turn,
 *     the lengths of its parts, one for each coordinate of its grid axis: {DR_BLOCK_LENGTHS, DR_BLOCK_CEIL, 3, 4, 5}.
 * \param ranks  [product of grid] the rank of each grid position; null: 0, 1, 2, ...
 */
DR_API int dr_distribution_create_blocks(int ndim, const int64_t *shape, int grid_ndim, const int64_t *grid,
                                         const int *axes, const int64_t *block, const int64_t *ranks,
                                         dr_distribution **distribution);

/**
 * A tensor cut into tiles, each with an owner of its own. A rank's local array is one-dimensional: its tiles in
 * row-major order of the tiles, each in C order.
 *
 * \param tile  [ndim] elements of a tile; tiles at the end may be smaller.
 * \param owner  [product of ceil(shape / tile)] rank of each tile, row-major.
 */
DR_API int dr_distribution_create_tiles(int ndim, const int64_t *shape, const int64_t *tile, const int64_t *owner,
                                        dr_distribution **distribution);

/**
 * Any set of boxes of a tensor, each with an owner. A rank that owns one box has a local array of its shape; a rank that
 * owns several has a one-dimensional array: its boxes in the order of the list, each in C order. Elements that several
 * boxes hold are replicas; as a target each box gets all its elements. Elements in no box are left out: a source must
 * hold all that the target needs.
 *
 * \param count  number of boxes, at least 0.
 * \param offset  [count * ndim] first index of each box, box after box.
 * \param extent  [count * ndim] extents of each box; may be 0.
 * \param owner  [count] rank of each box.
 */
DR_API int dr_distribution_create_boxes(int ndim, const int64_t *shape, int64_t count, const int64_t *offset,
                                        const int64_t *extent, const int64_t *owner, dr_distribution **distribution);

/**
 * A distribution with margins: local arrays have `halo[i]` elements more on both sides of axis i, of each block, tile or
 * box. Margins of a source are not read; margins of a target become copies of the elements next to what the rank owns. A
 * redistribution to the distribution itself exchanges halos; source and target may then be one array.
 *
 * \param owned  without a halo; may be freed afterwards.
 * \param halo  [ndim] at least 0, not wider than a part of that axis.
 * \param periodic  [ndim] whether margins wrap around at the ends of the tensor, where they are else left as they are;
 *     null: none.
 */
DR_API int dr_distribution_create_halo(const dr_distribution *owned, const int64_t *halo, const int *periodic,
                                       dr_distribution **distribution);

DR_API int dr_distribution_free(dr_distribution **distribution);

/** Dimensions of a rank's local array: those of the tensor; 1 for tiles, and for boxes unless the rank owns one. */
DR_API int dr_distribution_local_ndim(const dr_distribution *distribution, int rank, int *ndim);

/** Shape of a rank's local array; `shape` has dr_distribution_local_ndim() entries. */
DR_API int dr_distribution_local_shape(const dr_distribution *distribution, int rank, int64_t *shape);

/** Elements of a rank's local array: those that it owns, and its margins. */
DR_API int dr_distribution_local_count(const dr_distribution *distribution, int rank, int64_t *count);

/** The rank that owns an element; of several replicas the first; -1 if no box holds it. `index` has an entry per dimension
 * of the tensor. */
DR_API int dr_distribution_owner(const dr_distribution *distribution, const int64_t *index, int64_t *rank);

/** Defaults of all options. */
DR_API int dr_options_init(dr_options *options);

/** A problem without distributions, for strategy "Hierarchical" with default options and C-order arrays. */
DR_API int dr_problem_init(dr_problem *problem);

/**
 * Makes a plan. Collective over `comm`: either every rank gets one, or every rank gets an error, of which dr_error()
 * says on which rank it arose. Where a rank fails in the last step, after all have agreed, others may get a plan whose
 * first transfer is that error; a rank still in this step gets the error of a first transfer that fails on another rank.
 * The distributions may be freed afterwards.
 *
 * Of an intercommunicator both groups call, with equal problems but for `sends`: ranks of the source are those of one
 * group, ranks of the target those of the other. The first call merges the groups; ranks in errors are those of the
 * merged communicator, which is freed with the intercommunicator. A group waits for the other for
 * DACE_REDIST_GROUP_SECONDS (one hour), after which the intercommunicator has no further use.
 */
DR_API int dr_plan_create(const dr_problem *problem, MPI_Comm comm, dr_plan **plan);

/**
 * Makes a plan that moves several tensors in one exchange, by any strategy. All blocks from one rank to another, of all
 * tensors, are one message; a tensor with an `op` has messages of its own. Collective over `comm`, as dr_plan_create().
 *
 * \param count, problems  the tensors, at least one; all by one strategy, with the options of the first.
 * \param plan  dr_plan_execute() and dr_plan_start() take arrays of `count` addresses as its source and target;
 *     dr_plan_set_arrays() is not for it.
 */
DR_API int dr_plan_create_joint(int count, const dr_problem *problems, MPI_Comm comm, dr_plan **plan);

/** Elements of this rank's array that one other rank, or this one, sends or receives. */
typedef struct dr_block {
  int peer;               /**< rank on the other side */
  int ndim;               /**< from 0, one element, to 10 */
  int64_t offset;         /**< of the first element, in elements from the array's address; may be negative */
  const int64_t *counts;  /**< [ndim] elements along each dimension, >= 0, outermost first */
  const int64_t *strides; /**< [ndim] in elements; may be negative, and 0 where it is sent */
} dr_block;

/**
 * Makes a plan from messages. Each rank gives those that it sends and those that it receives; the layouts of its peers
 * are theirs. A message is the blocks of one peer in the order of the list, each in row-major order, and has the same
 * number of elements on both sides. Elements that are received do not overlap, which is not checked. Collective over
 * `comm`, as dr_plan_create().
 *
 * \param problem  element size, strategy, options, label and operation without `op`; has no distributions, arrays, axes,
 *     region or reshape. The arrays are in main memory.
 * \param send_count, sends  blocks of the source; null if there are none.
 * \param receive_count, receives  blocks of the target.
 */
DR_API int dr_plan_create_messages(const dr_problem *problem, int64_t send_count, const dr_block *sends,
                                   int64_t receive_count, const dr_block *receives, MPI_Comm comm, dr_plan **plan);

/**
 * Makes a plan of an MPI_Alltoallw with these arguments, as MPI_Alltoallw_init() does; the buffers are those of
 * dr_plan_execute(), also MPI_BOTTOM. Derived datatypes of any nesting may be freed afterwards. Where a rank has one
 * that cannot be decoded (with gaps as MPI_SHORT_INT, of more than 16384 pieces, or by a constructor that is not in
 * MPI 3.1), MPI packs or unpacks this rank's side. Collective over `comm`, as dr_plan_create().
 *
 * \param problem  strategy, options and label; null: the defaults.
 * \param sendcounts, sdispls, sendtypes  [ranks] displacements in bytes; where a count is 0 the others are not read.
 */
DR_API int dr_plan_create_alltoallw(const dr_problem *problem, const int sendcounts[], const int sdispls[],
                                    const MPI_Datatype sendtypes[], const int recvcounts[], const int rdispls[],
                                    const MPI_Datatype recvtypes[], MPI_Comm comm, dr_plan **plan);

/**
 * Moves a tensor. Collective over the ranks that have a part in it: all of them execute, or all start it with one kind
 * of progress. The arrays must not overlap, which is not checked; those of a halo exchange may be one array. An array of
 * which nothing is moved may be null. What this rank does not own of the target is left as it is.
 *
 * After an error on one rank the other ranks get an error within seconds, in this transfer or in one of the next of the
 * plan. The plan can then only be freed; what MPI may still send of its buffers stays allocated, and so does the window
 * of strategy RMA. With or without an error, no rank uses the arrays when the call returns (or dr_request_wait(), or
 * dr_request_test() with an error): a rank with DR_SUCCESS has the right tensor, on the others the target is undefined.
 * The one exception says so in its error: for 10 seconds a partner that may still use the arrays was not in the library.
 *
 * Threads may use different plans at a time, as far as MPI's level of thread support allows. One plan is used by one
 * thread at a time: a call while another thread is in a call with the same plan, or while a transfer of the plan is under
 * way, returns DR_ERROR_ARGUMENT and changes nothing.
 */
DR_API int dr_plan_execute(dr_plan *plan, const void *source, void *target);

/** A redistribution that was started. */
typedef struct dr_request dr_request;

/** Who moves on what was started. */
typedef enum dr_progress {
  DR_PROGRESS_CALLS = 0, /**< MPI, calls of dr_request_test() and dr_request_wait() for any transfer, and within a node
                              a thread that sleeps until a waiting rank rings */
  DR_PROGRESS_THREAD = 1 /**< a thread of the library: MPI must have been started with MPI_THREAD_MULTIPLE */
} dr_progress;

/**
 * Starts to move a tensor and returns; at most one transfer of a plan is under way at a time. Until dr_request_wait()
 * the source must not change, and the target not be used.
 *
 * Transfers of several plans may be started and waited for in any order, which may differ between ranks. A rank that is
 * blocked elsewhere, in MPI or in a computation, does not hold up the ranks of its node. Between nodes, contiguous
 * messages and up to 64 MiB of packed chunks per direction are posted to MPI at once, but no more than the option
 * max_in_flight_bytes; the rest moves on in calls.
 * With strategy RMA the start may wait for the start of this rank's receivers. Messages that are joined in a call are
 * sent one by one in a started transfer.
 */
DR_API int dr_plan_start(dr_plan *plan, const void *source, void *target, int progress, dr_request **request);

/** Moves on all transfers of this process, and says whether this one is done: `*done` is 0 or 1. */
DR_API int dr_request_test(dr_request *request, int *done);

/** Waits until the transfer is done, and frees the request. An error of dr_request_test() is returned here again. */
DR_API int dr_request_wait(dr_request **request);

/**
 * Executes with arrays of other extents or strides from now on; null as in ::dr_problem. Local. After an error the plan
 * keeps the arrays that it had.
 */
DR_API int dr_plan_set_arrays(dr_plan *plan, const int64_t *source_shape, const int64_t *source_strides,
                              const int64_t *target_shape, const int64_t *target_strides);

/**
 * The stream of the calling program, a cudaStream_t: a plan with an array in a device's memory uses its arrays, also one
 * in main memory, after what was enqueued there before, and what is enqueued afterwards finds the result. At first the
 * default stream. Local.
 */
DR_API int dr_plan_set_stream(dr_plan *plan, void *stream);

/**
 * Frees a plan, of which no transfer is under way. Local; MPI objects that the plans of a communicator share are freed
 * with the communicator, or when MPI is finalized. Windows of strategy RMA of a communicator that is freed before its
 * plans: on all ranks, with the last plan, collectively; on some ranks only, when MPI is finalized. In a forked child
 * nothing is freed.
 */
DR_API int dr_plan_free(dr_plan **plan);

/**
 * Memory for an array that the ranks of a node can read and write directly: strategy Hierarchical then copies each
 * element once. Filled with zeros, aligned to a page. A forked process shares it with its parent.
 */
DR_API int dr_memory_create(int64_t nbytes, void **memory);

/** Frees memory of dr_memory_create(). */
DR_API int dr_memory_free(void **memory);

/** An array in a file. Set by dr_file_init(), then path and type at least; the same on every rank. */
typedef struct dr_file {
  const char *path;
  int type;              /**< ::dr_type of the elements, in memory as in the file; DR_OPAQUE in a raw file only */
  int raw;               /**< 0: a `.npy` file; 1: elements without a header */
  int64_t element_bytes; /**< bytes of an element of DR_OPAQUE */
  int64_t offset;        /**< bytes of a raw file before its first element */
  int fortran_order; /**< 1: the index of the first axis varies fastest; a `.npy` file that is read says it itself */
  int ranks;         /**< how many ranks access the file, at equal distances, rank 0 first; 0: one for each 4 MiB */
  int64_t reserve[8]; /**< 0; for members of later versions */
} dr_file;

/** A `.npy` file in C order, without a path and a type. */
DR_API int dr_file_init(dr_file *file);

/**
 * Reads a distributed array from a file, whose array has the shape of the distribution. Collective over `comm`; an error
 * of a rank is an error of every rank. Margins beyond the ends of the tensor are left as they are. Under
 * MPI_THREAD_SERIALIZED all ranks make plans, load and save in one order.
 *
 * \param array  local array of this rank, in C order and in main memory.
 */
DR_API int dr_load(const dr_file *file, const dr_distribution *target, MPI_Comm comm, void *array);

/**
 * Writes a distributed array to a file, as dr_load() reads it, and flushes it to the disk. A `.npy` file is written beside
 * the old one, with its mode and owner, and takes its place when it is complete: after an error the old file is as it
 * was. A raw file, or a device, is written in place: all bytes but those of the array stay, also those that other calls
 * write at the same time; after an error the array may be there in part.
 */
DR_API int dr_save(const dr_file *file, const dr_distribution *source, MPI_Comm comm, const void *array);

#ifdef __cplusplus
}
#endif

#endif
