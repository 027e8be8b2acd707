/* SPDX-License-Identifier: BSD-3-Clause */
/* A softnic that leaves while another one waits for its answer: what it has said
 * before that counts. */
#include <criterion/criterion.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/mlx5/pair.h"

static struct end here, there;
static uint64_t word;
static bool leaves, answers;

static void leave(void)
{
    leaves = false;
    if (answers)
        rs_softnic_settle(there.nic);
    end_fini(&there);
    rs_softnic_destroy(there.nic);
}

/* Comes before the C library's. Time is up, and before that is noticed the other
 * one leaves. */
__attribute__((visibility("default"))) int poll(struct pollfd *fds,
                                                nfds_t number, int timeout)
{
    if (!leaves)
        return (int)syscall(SYS_poll, fds, number, timeout);
    leave();
    return 0;
}

static void begin(struct end *end, uint32_t domain,
                  struct rs_softnic_address *address)
{
    const struct pair_options options = {.blocks = 64};
    struct rs_softnic *nic;

    cr_assert_eq(rs_softnic_create(&options.nic, &nic), 0);
    cr_assert_eq(rs_softnic_listen(nic, address), 0);
    end_init(end, nic, domain, &options);
}

/* @return whether it is known that the word was written */
static bool write_to_one_who_leaves(bool answered)
{
    struct rs_rdma_op op = {.opcode = RS_RDMA_WRITE,
                            .stamp = RS_STAMP_EPOCH,
                            .remote = (uintptr_t)&word};
    struct rs_softnic_address addresses[2];
    struct rs_rdma_list *list;
    struct rs_rdma_done done;

    begin(&here, 1, &addresses[0]);
    begin(&there, 2, &addresses[1]);
    rs_softnic_connect_far(here.qp, &addresses[1], there.memory.qpn);
    rs_softnic_connect_far(there.qp, &addresses[0], here.memory.qpn);
    op.rkey = end_register(&there, &word, sizeof(word));
    list = end_list(&here, &op, 1);
    leaves = true;
    answers = answered;
    end_start(&here, list, 7, 0);
    cr_assert(end_finish(&here, &done));
    cr_assert_not(leaves);
    cr_assert_str_empty(rs_softnic_violation(here.nic));
    rs_mlx5_queue_ops.list_destroy(list);
    end_fini(&here);
    rs_softnic_destroy(here.nic);
    return !done.failed;
}

Test(wire, an_answer_of_one_who_has_left_counts)
{
    cr_assert(write_to_one_who_leaves(true));
    cr_assert_eq(word, 7);
}

Test(wire, one_who_leaves_without_an_answer_is_noticed)
{
    cr_assert_not(write_to_one_who_leaves(false));
    cr_assert_eq(word, 0);
}
