/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * \file
 * Options, element types and operations of dace_redist.h, which includes this; what libraries export. Needs no MPI.
 */
#ifndef DACE_REDIST_TYPES_H
#define DACE_REDIST_TYPES_H

#include <stdint.h>

#ifndef DR_API
#define DR_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Options of the strategies; each strategy uses those that concern it. Set by dr_options_init(). */
typedef struct dr_options {
  int64_t chunk_bytes;       /**< Pipelined, Hierarchical: largest chunk of a message */
  int64_t depth;             /**< the same: chunks in flight per direction, and slots of a ring within a node */
  double growth;             /**< the same: size of a chunk relative to the one before, >= 1 */
  int64_t threads;           /**< all: threads that share each copy, but for conversions, factors and op between
                                  ranks of a node; 0: one, Threaded: one per core of the rank */
  int64_t slot_bytes;        /**< Hierarchical: largest piece that is staged in node-shared memory */
  int64_t max_message_bytes; /**< all: longest single MPI message; longer ones are split */
  int64_t join_bytes;        /**< Hierarchical: largest message between two nodes that is sent as one with others;
                                  0: none; -1: of 2 KiB, if a rank has at least 8 of them in one direction */
  int64_t max_in_flight_bytes; /**< all but RMA: bytes of a transfer that a rank has given to MPI to send and that are
                                    not sent, one message at least; 0: no limit */
} dr_options;

/** Type of an element, where elements are computed with; of DR_OPAQUE they are moved, whatever they are. */
typedef enum dr_type {
  DR_OPAQUE = 0,
  DR_BOOL = 1,
  DR_INT8 = 2,
  DR_INT16 = 3,
  DR_INT32 = 4,
  DR_INT64 = 5,
  DR_UINT8 = 6,
  DR_UINT16 = 7,
  DR_UINT32 = 8,
  DR_UINT64 = 9,
  DR_FLOAT32 = 10,
  DR_FLOAT64 = 11,
  DR_COMPLEX64 = 12,
  DR_COMPLEX128 = 13,
  DR_FLOAT16 = 14,
  DR_BFLOAT16 = 15 /**< the upper half of a float32 */
} dr_type;

/** How the replicas of the source, which are partial results, are put together. */
typedef enum dr_op { DR_NO_OP = 0, DR_SUM = 1, DR_PROD = 2, DR_MIN = 3, DR_MAX = 4 } dr_op;

/**
 * What is computed with elements on their way: target = alpha * source + beta * target. The source is converted to the
 * target's type first; with op each partial result is multiplied by alpha. Where beta is 0 the target is not read. Set
 * by dr_problem_init(): elements are copied.
 */
typedef struct dr_operation {
  int source_type; /**< ::dr_type of the source; DR_OPAQUE: nothing is computed */
  int target_type; /**< ::dr_type of the target; never one that loses the kind of number (complex to real) */
  double alpha[2]; /**< real and imaginary part; a number of the target's type, of a floating-point type rounded */
  double beta[2];  /**< the same */
  int conjugate; /**< whether the source is conjugated */
  int op;        /**< ::dr_op: replicas of the source are partial results, which are reduced in a fixed order */
  int wire_type;         /**< ::dr_type of elements in messages between nodes, not larger than the smaller of the two
                              types; DR_OPAQUE: the smaller one. Of integers, an element that does not fit is an error */
  int wire_within_nodes; /**< whether all elements are rounded to wire_type, also those that stay on their rank */
  int accumulate_type;   /**< ::dr_type in which op reduces; DR_OPAQUE: that of the target */
  int reproducible;      /**< whether op reduces replicas in a binary tree of their numbers, so that the result depends
                              on nothing else: not on nodes, the strategy or the target */
} dr_operation;

/** Where an array lies. */
typedef enum dr_memory {
  DR_MAIN_MEMORY = 0,
  DR_DEVICE_MEMORY = 1 /**< memory of the GPU that is current in the calling thread when the plan is made */
} dr_memory;

#ifdef __cplusplus
}
#endif

#endif
