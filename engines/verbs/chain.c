/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/verbs/chain.h"

#include <arpa/inet.h>
#include <stdlib.h>

#include "librsched/base/error.h"

static void set_pieces(struct rs_verbs_chain *chain,
                       const struct rs_rdma_op *op, struct ibv_send_wr *request,
                       struct ibv_sge *pieces)
{
    request->sg_list = pieces;
    request->num_sge = (int)op->num_pieces;
    for (uint32_t i = 0; i < op->num_pieces; i++)
        pieces[i] = (struct ibv_sge){.addr = op->pieces[i].address,
                                     .length = op->pieces[i].bytes,
                                     .lkey = op->pieces[i].lkey};
    if (op->stamp == RS_STAMP_EPOCH) {
        pieces[0] = (struct ibv_sge){.addr = (uintptr_t)&chain->epoch,
                                     .length = sizeof(chain->epoch)};
        request->num_sge = 1;
    }
}

static void set_request(struct rs_verbs_chain *chain,
                        const struct rs_rdma_op *op,
                        struct ibv_send_wr *request)
{
    if (op->inlined || op->stamp == RS_STAMP_EPOCH)
        request->send_flags |= IBV_SEND_INLINE;
    if (op->opcode == RS_RDMA_FETCH_ADD) {
        request->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        request->wr.atomic.remote_addr = op->remote;
        request->wr.atomic.rkey = op->rkey;
        request->wr.atomic.compare_add = op->add;
        return;
    }
    request->opcode = IBV_WR_RDMA_WRITE;
    request->wr.rdma.remote_addr = op->remote;
    request->wr.rdma.rkey = op->rkey;
    if (op->opcode != RS_RDMA_WRITE_IMM)
        return;
    request->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request->imm_data = htonl(op->imm);
    if (op->solicited)
        request->send_flags |= IBV_SEND_SOLICITED;
    chain->stamps_imm = chain->stamps_imm || op->stamp == RS_STAMP_IMM;
}

static size_t count_pieces(const struct rs_rdma_op *ops, uint32_t num_ops)
{
    size_t count = 0;

    for (uint32_t i = 0; i < num_ops; i++)
        count += ops[i].num_pieces + (ops[i].stamp == RS_STAMP_EPOCH);
    return count;
}

int rs_verbs_chain_init(struct rs_verbs_chain *chain,
                        const struct rs_rdma_op *ops, uint32_t num_ops)
{
    struct ibv_send_wr *requests = calloc(num_ops, sizeof(*requests));
    struct ibv_sge *pieces =
        calloc(count_pieces(ops, num_ops) + 1, sizeof(*pieces));

    if (requests == NULL || pieces == NULL) {
        free(requests);
        free(pieces);
        return rs_fail(RSCHED_ENOMEM, "no memory for work requests");
    }
    *chain = (struct rs_verbs_chain){.requests = requests,
                                     .pieces = pieces,
                                     .num_requests = num_ops};
    for (uint32_t i = 0; i < num_ops; i++) {
        requests[i].wr_id = i;
        requests[i].next = i + 1 < num_ops ? &requests[i + 1] : NULL;
        set_pieces(chain, &ops[i], &requests[i], pieces);
        set_request(chain, &ops[i], &requests[i]);
        pieces += requests[i].num_sge;
    }
    requests[num_ops - 1].send_flags |= IBV_SEND_SIGNALED;
    return 0;
}

void rs_verbs_chain_fini(struct rs_verbs_chain *chain)
{
    free(chain->requests);
    free(chain->pieces);
    *chain = (struct rs_verbs_chain){0};
}

void rs_verbs_chain_stamp(struct rs_verbs_chain *chain, uint64_t epoch)
{
    chain->epoch = epoch;
    if (!chain->stamps_imm)
        return;
    for (uint32_t i = 0; i < chain->num_requests; i++) {
        struct ibv_send_wr *r = &chain->requests[i];

        if (r->opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
            r->imm_data = htonl((ntohl(r->imm_data) & 0xffff0000u) |
                                (uint32_t)(epoch & 0xffff));
    }
}
