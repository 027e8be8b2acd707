/* SPDX-License-Identifier: BSD-3-Clause */
/* The responder's side of a queue pair. */
#include <endian.h>
#include <string.h>

#include "engines/softnic/nic.h"

/* Why a device may write somewhere, its host has told the sender's host: the
 * thread sanitizer sees nothing of that, and must not look at these writes. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#define DEVICE_WRITES_BEGIN() AnnotateIgnoreWritesBegin(__FILE__, __LINE__)
#define DEVICE_WRITES_END() AnnotateIgnoreWritesEnd(__FILE__, __LINE__)
#endif
#endif
#ifndef DEVICE_WRITES_BEGIN
#define DEVICE_WRITES_BEGIN() (void)0
#define DEVICE_WRITES_END() (void)0
#endif

/* As over PCIe. */
void softnic_store(char *to, const char *from, uint64_t bytes)
{
    uint64_t word;

    DEVICE_WRITES_BEGIN();
    if (bytes != sizeof(word) || (uintptr_t)to % sizeof(word) != 0) {
        memcpy(to, from, bytes);
    } else {
        memcpy(&word, from, sizeof(word));
        atomic_store_explicit((_Atomic uint64_t *)to, word,
                              memory_order_release);
    }
    DEVICE_WRITES_END();
}

static enum softnic_syndrome place(struct rs_softnic_qp *qp,
                                   const struct softnic_request *request,
                                   const char *payload)
{
    char *to = softnic_find(qp->nic, qp->domain, request->rkey,
                            request->remote, request->payload_bytes,
                            RS_SOFTNIC_REMOTE_WRITE);

    if (to == NULL)
        return SOFTNIC_REMOTE_ACCESS;
    softnic_store(to, payload, request->payload_bytes);
    return SOFTNIC_OK;
}

static enum softnic_syndrome end_with_imm(struct rs_softnic_qp *qp,
                                          const struct softnic_request *request)
{
    uint32_t record = be32toh(
        atomic_load_explicit(&qp->view.dbrec[0], memory_order_acquire));

    if ((uint16_t)(record - qp->received) == 0)
        return SOFTNIC_NOT_READY;
    softnic_complete_receive(qp, request->imm, request->message_bytes);
    return SOFTNIC_OK;
}

static enum softnic_syndrome fetch_add(struct rs_softnic_qp *qp,
                                       const struct softnic_request *request,
                                       uint64_t *was)
{
    char *word;

    if (request->remote % 8 != 0)
        return SOFTNIC_BAD_REQUEST;
    word = softnic_find(qp->nic, qp->domain, request->rkey, request->remote, 8,
                        RS_SOFTNIC_REMOTE_ATOMIC);
    if (word == NULL)
        return SOFTNIC_REMOTE_ACCESS;
    *was = atomic_fetch_add_explicit((_Atomic uint64_t *)word, request->add,
                                     memory_order_acq_rel);
    return SOFTNIC_OK;
}

struct softnic_answer softnic_answer(struct rs_softnic_qp *qp,
                                     const struct softnic_request *request,
                                     const char *payload)
{
    struct softnic_answer answer = {.syndrome = SOFTNIC_NO_ANSWER};

    if (qp == NULL || qp->failed)
        return answer;
    if (request->opcode == SOFTNIC_FETCH_ADD)
        answer.syndrome = (uint8_t)fetch_add(qp, request, &answer.was);
    else if (request->payload_bytes > 0)
        answer.syndrome = (uint8_t)place(qp, request, payload);
    else
        answer.syndrome = (uint8_t)end_with_imm(qp, request);
    /* What is refused fails this side too. */
    if (answer.syndrome == SOFTNIC_REMOTE_ACCESS ||
        answer.syndrome == SOFTNIC_BAD_REQUEST)
        softnic_qp_fail(qp);
    return answer;
}
