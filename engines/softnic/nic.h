/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of the softnic share. All is used under the softnic's lock. */
#ifndef RS_SOFTNIC_NIC_H
#define RS_SOFTNIC_NIC_H

#include <pthread.h>

#include "engines/softnic/decode.h"
#include "engines/softnic/pages.h"
#include "engines/softnic/softnic.h"

enum {
    SOFTNIC_WINDOW = 16, /* WQEs of a queue pair in work at once */
    SOFTNIC_CQE = 64,
    SOFTNIC_MAX_MTU = 4096,
};

enum softnic_syndrome {
    SOFTNIC_OK = 0,
    SOFTNIC_BAD_WQE = 0x02,
    SOFTNIC_LOCAL_PROTECTION = 0x04,
    SOFTNIC_FLUSHED = 0x05,
    SOFTNIC_BAD_REQUEST = 0x12,
    SOFTNIC_REMOTE_ACCESS = 0x13,
    SOFTNIC_NO_ANSWER = 0x15,
    SOFTNIC_NOT_READY = 0x16,
};

struct softnic_region {
    uint32_t key, domain;
    unsigned access;
    uint64_t base; /* address, by which it is asked for */
    char *memory;  /* the same bytes, as this device has them */
    uint64_t bytes;
};

/* A completion on its way. */
struct softnic_cqe {
    unsigned char bytes[SOFTNIC_CQE]; /* but the owner bit */
    uint64_t frees; /* send blocks that the producer has back when it sees it */
};

struct softnic_cq {
    struct rs_softnic_cq_view view;
    uint64_t made, shown; /* completions */
    uint32_t late;        /* steps until one is shown, at most */
    uint32_t delay;       /* until the next one is */
    struct softnic_cqe *queue; /* a ring of as many as there are entries */
};

/* What one queue pair asks of its peer: to place a packet (there is a payload),
 * to complete a receive with an immediate (there is none), to add. */
struct softnic_request {
    uint32_t qpn; /* the peer's */
    uint32_t rkey;
    uint32_t payload_bytes;
    uint32_t imm;
    uint64_t remote;
    uint64_t message_bytes;
    uint64_t add;
    uint8_t opcode;
};

struct softnic_answer {
    uint64_t was;     /* before it was added to */
    uint8_t syndrome; /* SOFTNIC_NOT_READY: ask again */
};

/* A WQE in work. */
struct softnic_work {
    struct softnic_wqe wqe;
    uint64_t first; /* block */
    uint32_t packets, placed, turn; /* packet `turn` is the first one placed */
    uint32_t waited;        /* steps for a receive */
    bool done;
    uint8_t syndrome, vendor_error;
    bool has_source_hash;
    uint64_t source_hash;
    unsigned char copy[SOFTNIC_MAX_WQE]; /* as it was read */
};

struct rs_softnic_qp {
    struct rs_softnic *nic;
    struct rs_softnic_qp *next, *peer;
    bool is_far; /* the peer is in another process */
    struct rs_softnic_address far;
    uint32_t far_qpn;
    uint32_t domain, qpn;
    uint32_t max_segments; /* of a WQE */
    struct softnic_slot slot;  /* of its records and registers */
    void *rings;                /* in pages of their own */
    size_t ring_bytes;
    struct rs_softnic_qp_view view;
    struct softnic_cq send_cq, receive_cq;
    bool failed; /* what comes is flushed */
    bool stuck;  /* a WQE without a known end: nothing can come */
    /* Send blocks, counted from the reset: reported by the record, read,
     * checked for changes, back at the producer. */
    uint64_t posted, read, checked, freed;
    uint64_t *hashes; /* slot -> what was in it when it was posted */
    struct softnic_work *window; /* SOFTNIC_WINDOW */
    uint64_t first_work, next_work;
    uint32_t lost; /* steps until the record is looked at, 0: no need */
    uint64_t received;
    uint64_t until_fault; /* WQEs, if there is a fault */
    bool has_fault;
    uint8_t fault_syndrome, fault_vendor;
};

struct rs_softnic {
    struct rs_softnic_options options;
    pthread_mutex_t lock;
    pthread_t thread;
    bool has_thread;
    _Atomic bool stop;
    int wire; /* to other processes, -1: none */
    uint32_t serial; /* of the last request over it */
    uint64_t random;
    struct softnic_region *regions;
    size_t num_regions, room_regions;
    struct softnic_shelves shelves;
    struct rs_softnic_qp *qps;
    uint32_t num_qps, next_qpn;
    char violation[256];
    struct rs_softnic_stats stats;
};

/** A number below `below`. */
uint64_t softnic_draw(struct rs_softnic *nic, uint64_t below);

/** A violation by this queue pair's producer; fails the queue pair. */
void softnic_violate(struct rs_softnic_qp *qp, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/** Fail a queue pair: what it has in work, and all that comes, is flushed. */
void softnic_qp_fail(struct rs_softnic_qp *qp);

/** Memory of a domain for `access`. NULL: there is none under this key. */
char *softnic_find(struct rs_softnic *nic, uint32_t domain, uint32_t key,
                   uint64_t address, uint64_t bytes, unsigned access);

/* What a queue pair may do in a step. Each returns whether it did anything. */
bool softnic_see_doorbell(struct rs_softnic_qp *qp);
bool softnic_recover(struct rs_softnic_qp *qp);
bool softnic_read_wqe(struct rs_softnic_qp *qp);
bool softnic_place(struct rs_softnic_qp *qp);
bool softnic_retire(struct rs_softnic_qp *qp);
bool softnic_show_sent(struct rs_softnic_qp *qp);
bool softnic_show_received(struct rs_softnic_qp *qp);

/** Whether blocks still hold what they did when they were posted. */
bool softnic_unchanged(const struct rs_softnic_qp *qp, uint64_t from,
                       uint64_t to);

/** The n-th byte range of a message's source, gathered into `to`.
 * @return whether all of it is registered */
bool softnic_gather(struct rs_softnic_qp *qp, const struct softnic_work *work,
                    uint64_t from, uint64_t bytes, char *to);

/** Hash of a message's source. @return false: not all of it is registered */
bool softnic_source_hash(struct rs_softnic_qp *qp,
                         const struct softnic_work *work, uint64_t *hash);

/** Place bytes; 8 aligned ones are seen whole, and after what came before. */
void softnic_store(char *to, const char *from, uint64_t bytes);

/** Do what a peer asks. NULL: there is no such queue pair. */
struct softnic_answer softnic_answer(struct rs_softnic_qp *qp,
                                     const struct softnic_request *request,
                                     const char *payload);
/** Ask a queue pair's peer, wherever it is. */
void softnic_ask(struct rs_softnic_qp *qp, const struct softnic_request *request,
                 const char *payload, struct softnic_answer *answer);
/** Answer another process. @return false: none has asked */
bool softnic_serve(struct rs_softnic *nic);

/* Completions. A completion queue that is full is a violation. */
void softnic_complete_send(struct rs_softnic_qp *qp,
                           const struct softnic_work *work);
void softnic_complete_receive(struct rs_softnic_qp *qp, uint32_t imm,
                              uint64_t bytes);

#endif
