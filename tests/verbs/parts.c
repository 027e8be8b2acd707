/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of RDMA lanes by themselves: GIDs, names, lists of writes, slots, bundles. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engines/rdma/program.h"
#include "engines/rdma/rdma.h"
#include "engines/verbs/chain.h"
#include "engines/verbs/gid.h"
#include "engines/verbs/names.h"
#include "tests/verbs/interpreter.h"

enum { PORT = 1, V1 = IBV_GID_TYPE_ROCE_V1, V2 = IBV_GID_TYPE_ROCE_V2 };

static struct ibv_gid_entry gid(uint32_t index, uint32_t port, uint32_t type,
                                const char *prefix, size_t length)
{
    struct ibv_gid_entry e = {
        .gid_index = index, .port_num = port, .gid_type = type};

    memcpy(e.gid.raw, prefix, length);
    return e;
}

#define LOCAL "\xfe\x80", 2
#define GLOBAL "\x20\x01", 2
#define IPV4 "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a", 13

Test(gid, routable_ones_come_first)
{
    const struct ibv_gid_entry entries[] = {
        gid(0, PORT, V1, LOCAL), gid(1, PORT, V2, LOCAL),
        gid(2, PORT, V1, IPV4),  gid(3, PORT, V2, GLOBAL),
        gid(4, PORT, V2, IPV4),  gid(5, PORT, V2, IPV4),
        gid(9, PORT + 1, V2, IPV4),
    };
    const uint32_t best[] = {0, 1, 1, 3, 4, 4};

    for (size_t n = 1; n <= 6; n++)
        cr_assert_eq(rs_gid_choose(entries, n, PORT)->gid_index, best[n - 1]);
    cr_assert_eq(rs_gid_choose(entries, 7, PORT + 1)->gid_index, 9);
    cr_assert_null(rs_gid_choose(entries, 7, PORT + 2));
    cr_assert_eq(rs_gid_find(entries, 7, PORT, 3), &entries[3]);
    cr_assert_null(rs_gid_find(entries, 7, PORT, 9));
}

Test(names, groups_and_ports)
{
    struct rs_verbs_name name;
    char group[16];
    const char *rest = group;

    cr_assert(rs_verbs_names_group("a:2,bc/d", 2, group, sizeof(group)));
    cr_assert_str_eq(group, "a:2,bc");
    cr_assert(rs_verbs_name_next(&rest, &name));
    cr_assert(rs_verbs_name_is(&name, "a"));
    cr_assert_eq(name.port, 2);
    cr_assert(rs_verbs_name_next(&rest, &name));
    cr_assert(rs_verbs_name_is(&name, "bc"));
    cr_assert(!rs_verbs_name_is(&name, "b"));
    cr_assert_eq(name.port, 0);
    cr_assert(!rs_verbs_name_next(&rest, &name));
    cr_assert(rs_verbs_names_group("a:2,bc/d", 1, group, sizeof(group)));
    cr_assert_str_eq(group, "d");
    cr_assert(rs_verbs_names_group("", 7, group, sizeof(group)));
    cr_assert_str_eq(group, "");
    cr_assert(!rs_verbs_names_group("0123456789abcdef", 0, group,
                                    sizeof(group)));
}

enum { SPAN = 1 << 16 };

struct sides {
    char *from, *to;
    struct rs_rdma_keys from_keys, to_keys;
};

static struct sides make_sides(void)
{
    struct sides s = {.from = malloc(SPAN), .to = calloc(1, SPAN)};

    for (int i = 0; i < SPAN; i++)
        s.from[i] = (char)(i * 7 + (i >> 8));
    interpreter_register(s.from, SPAN, RS_RDMA_LOCAL, &s.from_keys);
    interpreter_register(s.to, SPAN, RS_RDMA_REMOTE, &s.to_keys);
    return s;
}

static void execute(struct rs_rdma_writes *writes)
{
    struct rs_verbs_chain chain;

    rs_rdma_writes_finish(writes);
    cr_assert_eq(rs_verbs_chain_init(&chain, writes->ops, writes->num_ops), 0);
    cr_assert_eq(interpreter_execute(chain.requests, 0, writes->max_pieces),
                 (int)writes->num_ops);
    for (uint32_t i = 0; i < writes->num_ops; i++)
        cr_assert_eq((chain.requests[i].send_flags & IBV_SEND_SIGNALED) != 0,
                     i == writes->num_ops - 1);
    rs_verbs_chain_fini(&chain);
}

/* Random segments: what arrives is what a plain copy gives, and segments that
 * go on at the remote side share requests. */
Test(writes, random_segments)
{
    unsigned seed = 1;

    for (int round = 0; round < 300; round++) {
        struct rs_rdma_writes w = {.max_pieces = 1 + (uint32_t)round % 6};
        struct sides s = make_sides();
        char *expected = calloc(1, SPAN);
        uint64_t at = 0;
        uint32_t breaks = 0, segments = 0;

        while (at < SPAN - 600) {
            uint64_t bytes = 1 + (uint64_t)rand_r(&seed) % 300;
            uint64_t local = (uint64_t)rand_r(&seed) % (SPAN - 300);

            if (rand_r(&seed) % 3 == 0) {
                at += 1 + (uint64_t)rand_r(&seed) % 200;
                breaks++;
            }
            memcpy(expected + at, s.from + local, bytes);
            cr_assert_eq(rs_rdma_writes_add(&w, (uintptr_t)s.from + local,
                                            s.from_keys.lkey, bytes,
                                            (uintptr_t)s.to + at,
                                            s.to_keys.rkey),
                         0);
            at += bytes;
            segments++;
        }
        cr_assert_geq(w.num_ops, (segments + w.max_pieces - 1) / w.max_pieces);
        cr_assert_leq(w.num_ops, breaks + 1 + segments / w.max_pieces);
        execute(&w);
        cr_assert_eq(memcmp(s.to, expected, SPAN), 0);
        rs_rdma_writes_fini(&w);
        free(expected);
        free(s.from);
        free(s.to);
    }
}

/* Contiguous on both sides: one piece. */
Test(writes, neighbors_are_joined)
{
    struct rs_rdma_writes w = {.max_pieces = 4};
    struct sides s = make_sides();

    for (uint64_t at = 0; at < 4096; at += 64)
        cr_assert_eq(rs_rdma_writes_add(&w, (uintptr_t)s.from + at,
                                        s.from_keys.lkey, 64,
                                        (uintptr_t)s.to + at, s.to_keys.rkey),
                     0);
    cr_assert_eq(w.num_ops, 1);
    cr_assert_eq(w.num_pieces, 1);
    execute(&w);
    cr_assert_eq(memcmp(s.to, s.from, 4096), 0);
    rs_rdma_writes_fini(&w);
    free(s.from);
    free(s.to);
}

/* A head ends an operation, wherever it is in what is added. */
Test(writes, heads_end_operations)
{
    for (uint64_t head = 1; head < 1200; head += 37) {
        struct rs_rdma_writes w = {.max_pieces = 4, .head_bytes = head};
        struct sides s = make_sides();
        uint64_t bytes = 0;

        for (uint64_t at = 0; at < 1200; at += 400)
            cr_assert_eq(rs_rdma_writes_add(&w, (uintptr_t)s.from + at,
                                            s.from_keys.lkey, 400,
                                            (uintptr_t)s.to + at,
                                            s.to_keys.rkey),
                         0);
        cr_assert_eq(w.num_ops, 2);
        cr_assert_eq(w.head_ops, 1);
        execute(&w);
        for (uint32_t i = 0; i < w.ops[0].num_pieces; i++)
            bytes += w.ops[0].pieces[i].bytes;
        cr_assert_eq(bytes, head);
        cr_assert_eq(memcmp(s.to, s.from, 1200), 0);
        rs_rdma_writes_clear(&w);
        cr_assert(w.head_bytes == 0 && w.head_ops == 0);
        rs_rdma_writes_fini(&w);
        free(s.from);
        free(s.to);
    }
}

/* The interpreter refuses what a device would. */
Test(writes, out_of_bounds_is_refused)
{
    struct rs_rdma_writes w = {.max_pieces = 2};
    struct sides s = make_sides();
    struct rs_verbs_chain chain;

    cr_assert_eq(rs_rdma_writes_add(&w, (uintptr_t)s.from, s.from_keys.lkey, 8,
                                    (uintptr_t)s.to + SPAN - 7,
                                    s.to_keys.rkey),
                 0);
    rs_rdma_writes_finish(&w);
    cr_assert_eq(rs_verbs_chain_init(&chain, w.ops, w.num_ops), 0);
    cr_assert_eq(interpreter_execute(chain.requests, 0, 2), -1);
    rs_verbs_chain_fini(&chain);
    rs_rdma_writes_fini(&w);
    free(s.from);
    free(s.to);
}

Test(program, source)
{
    const struct rs_rdma_port port = {.max_pieces = 4, .max_inline = 64};
    const struct rs_rdma_port plain = {.max_pieces = 1, .max_inline = 64};
    /* 2 us, and 0.1 us for a block; 1 byte in a nanosecond. */
    struct rs_sources costs = {.gather_message = 2000000,
                               .gather_block = 100000,
                               .pack_rate = 1000000000};

    cr_assert_eq(rs_rdma_source_choose(&port, &costs, 56, 3), RS_SOURCE_INLINE);
    cr_assert_eq(rs_rdma_source_choose(&port, &costs, 57, 1), RS_SOURCE_PACK);
    cr_assert_eq(rs_rdma_source_choose(&port, &costs, 56, 4), RS_SOURCE_PACK);
    cr_assert_eq(rs_rdma_source_choose(&port, &costs, 2100, 1), RS_SOURCE_PACK);
    cr_assert_eq(rs_rdma_source_choose(&port, &costs, 2101, 1),
                 RS_SOURCE_GATHER);
    cr_assert_eq(rs_rdma_source_choose(&port, &costs, 2101, 2), RS_SOURCE_PACK);
    cr_assert_eq(rs_rdma_source_choose(&plain, &costs, 2101, 1),
                 RS_SOURCE_PACK);
    /* The same message, another machine. */
    costs.pack_block = 100000;
    cr_assert_eq(rs_rdma_source_choose(&port, &costs, 2101, 2),
                 RS_SOURCE_GATHER);
    costs.pack_rate = 10000000000;
    cr_assert_eq(rs_rdma_source_choose(&port, &costs, 2101, 2), RS_SOURCE_PACK);
}

/* Slots of messages of random lengths: a chunk is posted only where the one
 * that had the slot before has been consumed, and both ends agree. */
static void run_ring(bool fixed, uint32_t slots, unsigned seed)
{
    struct rs_rdma_ring ring = {.num_slots = slots, .fixed = fixed};
    uint64_t in_slot[8];
    uint32_t chunks = 1 + (uint32_t)rand_r(&seed) % 10;

    memset(in_slot, -1, sizeof(in_slot));
    for (int message = 0; message < 50; message++) {
        uint64_t position = ring.position;

        rs_rdma_ring_load(&ring, chunks);
        cr_assert(!ring.aligned || position % slots == 0);
        cr_assert_lt(ring.aligned ? 0 : position % slots,
                     rs_rdma_ring_starts(&ring));
        for (ring.next = 0; ring.next < chunks; ring.next++) {
            uint64_t number = rs_rdma_ring_number(&ring);
            uint64_t before = in_slot[rs_rdma_ring_slot(&ring)];

            /* The sender's rule lets it post once number - slots + 1 chunks
             * have been consumed: the one before is among them. */
            if (before != UINT64_MAX)
                cr_assert_leq(before + slots, number);
            in_slot[rs_rdma_ring_slot(&ring)] = number;
        }
        rs_rdma_ring_finish(&ring);
        cr_assert_geq(ring.position, position + chunks);
        cr_assert_lt(ring.position, position + chunks + slots);
        if (!fixed)
            chunks = 1 + (uint32_t)rand_r(&seed) % 10;
    }
}

/* Who lets go of memory may free it, and what is at its addresses then is not
 * what was registered. */
Test(regions, are_shared_until_somebody_lets_go)
{
    struct rsched_engine_env env = {0};
    struct rs_rdma_port *ports[RSCHED_MAX_RAILS];
    struct rs_rdma_memory memory;
    struct rs_rdma_region *a, *b, *c, *d;
    struct rs_rdma_regions held;
    static char bytes[3 * 4096], exchanges[2];
    const void *x = &exchanges[0];
    struct rsched_piece piece = {bytes, sizeof(bytes), 1, 0};
    struct rsched_message message = {&piece, 1, sizeof(bytes), 0, 1, sizeof(bytes), x};
    int num_ports = interpreter_ports(&env, ports);
    const char *end = bytes + sizeof(bytes);

    rs_rdma_memory_init(&memory, ports[0]);
    cr_assert_eq(rs_rdma_region_acquire(&memory, bytes, end, RS_RDMA_REMOTE, x, NULL, &a), 0);
    cr_assert_eq(rs_rdma_region_acquire(&memory, bytes, end, RS_RDMA_LOCAL, x, NULL, &b), 0);
    cr_assert_eq(a, b);
    /* Of another exchange, whose buffers may have come to where freed ones were. */
    cr_assert_eq(rs_rdma_region_acquire(&memory, bytes, end, RS_RDMA_LOCAL, &exchanges[1], NULL, &c), 0);
    cr_assert_neq(a, c);
    rs_rdma_region_release(&memory, c);
    rs_rdma_region_release(&memory, b);
    cr_assert_eq(rs_rdma_region_acquire(&memory, bytes, end, RS_RDMA_LOCAL, x, NULL, &c), 0);
    cr_assert_neq(a, c);
    rs_rdma_region_release(&memory, a);
    rs_rdma_region_release(&memory, c);
    cr_assert_null(memory.regions);
    /* A lane that is destroyed while the device is at its memory. */
    cr_assert_eq(rs_rdma_regions_acquire(&memory, &message, RS_RDMA_REMOTE, NULL, &held), 0);
    rs_rdma_regions_retire(&held);
    cr_assert_eq(rs_rdma_region_acquire(&memory, bytes, end, RS_RDMA_REMOTE, x, NULL, &d), 0);
    cr_assert_neq(held.of[0], d);
    rs_rdma_region_release(&memory, d);
    rs_rdma_regions_release(&memory, &held);
    cr_assert_null(memory.regions);
    rs_rdma_memory_fini(&memory);
    for (int i = 0; i < num_ports; i++)
        ports[i]->ops->close(ports[i]);
}

Test(ring, slots_are_used_in_turn)
{
    for (unsigned seed = 0; seed < 200; seed++) {
        run_ring(true, 2 + seed % 5, seed);
        run_ring(false, 2 + seed % 5, seed);
    }
}

Test(chain, stamps)
{
    uint64_t word = 0, epoch = 0x123456789abcdefu;
    struct rs_rdma_keys keys;
    struct rs_rdma_op op = {.opcode = RS_RDMA_WRITE,
                            .stamp = RS_STAMP_EPOCH,
                            .inlined = true,
                            .remote = (uintptr_t)&word};
    struct rs_verbs_chain chain;

    interpreter_register(&word, sizeof(word), RS_RDMA_REMOTE, &keys);
    op.rkey = keys.rkey;
    cr_assert_eq(rs_verbs_chain_init(&chain, &op, 1), 0);
    for (int i = 0; i < 3; i++, epoch++) {
        rs_verbs_chain_stamp(&chain, epoch);
        cr_assert_eq(interpreter_execute(chain.requests, 8, 1), 1);
        cr_assert_eq(word, epoch);
    }
    cr_assert_eq(interpreter_execute(chain.requests, 7, 1), -1);
    rs_verbs_chain_fini(&chain);
}

enum { PORTS = 2 };

/* What the device of each port can do. */
static struct capability {
    bool in_order, fetch_add, immediates;
} capabilities[PORTS];

static int ports_that_can(const struct rsched_engine_env *env,
                          struct rs_rdma_port **ports)
{
    int found = interpreter_ports(env, ports);

    cr_assert_eq(found, PORTS);
    for (int i = 0; i < found; i++) {
        ports[i]->in_order = capabilities[i].in_order;
        ports[i]->fetch_add = capabilities[i].fetch_add;
        ports[i]->immediates = capabilities[i].immediates;
        snprintf(ports[i]->name, sizeof(ports[i]->name), "port %d", i);
    }
    return found;
}

static const struct rsched_engine_env notify_env = {.chunk_bytes = 65536,
                                                    .ring_bytes = 524288};

/* How peers of such devices notify; RS_NUM_NOTIFIES: they are refused. */
static enum rs_rdma_notify notify_of(struct capability can, int error)
{
    enum rs_rdma_notify notify;
    struct rsched_engine *engine;

    capabilities[0] = capabilities[1] = can;
    cr_assert_eq(rs_rdma_open("parts", &notify_env, ports_that_can, &engine),
                 error);
    if (error != 0) {
        cr_assert(strstr(rsched_last_error(), "parts port 0: ") != NULL);
        return RS_NUM_NOTIFIES;
    }
    notify = engine->rails[0].port->notify;
    cr_assert_eq(engine->num_rails, PORTS);
    for (uint32_t i = 0; i < engine->num_rails; i++)
        cr_assert_eq(engine->rails[i].port->notify, notify);
    rs_rdma_close(engine);
    return notify;
}

Test(notify, what_the_device_can_decides)
{
    const struct capability all = {true, true, true};
    const struct capability no_order = {false, true, true};
    const struct capability only_imm = {false, false, true};
    const struct capability nothing = {false, false, false};

    cr_assert_eq(notify_of(all, 0), RS_NOTIFY_FLAG);
    cr_assert_eq(notify_of(no_order, 0), RS_NOTIFY_ADD);
    cr_assert_eq(notify_of(only_imm, 0), RS_NOTIFY_IMM);
    notify_of(nothing, RSCHED_ENOTSUP);
}

/* A port that cannot is no rail, wherever it is among them; the other one is. */
static void expect_one_rail(struct capability can, struct capability cannot,
                            enum rs_rdma_notify notify)
{
    for (int able = 0; able < PORTS; able++) {
        char name[16];
        struct rsched_engine *engine;

        capabilities[able] = can;
        capabilities[1 - able] = cannot;
        cr_assert_eq(
            rs_rdma_open("parts", &notify_env, ports_that_can, &engine), 0);
        cr_assert_eq(engine->num_rails, 1);
        cr_assert_eq(engine->rails[0].port->notify, notify);
        snprintf(name, sizeof(name), "port %d", able);
        cr_assert_str_eq(engine->rails[0].port->name, name);
        rs_rdma_close(engine);
    }
}

Test(notify, a_port_that_cannot_is_no_rail)
{
    expect_one_rail((struct capability){true, true, true},
                    (struct capability){false, false, false}, RS_NOTIFY_FLAG);
}

/* All that are named are wanted. */
Test(notify, a_named_port_that_cannot_is_refused)
{
    struct rsched_engine *engine;

    setenv("RSCHED_DEVICES", "a,b", 1);
    capabilities[0] = (struct capability){true, true, true};
    cr_assert_eq(rs_rdma_open("parts", &notify_env, ports_that_can, &engine),
                 RSCHED_ENOTSUP);
    cr_assert(strstr(rsched_last_error(), "parts port 1: ") != NULL);
}

/* Settings are read once in a process, and each test has one. */
static void expect_refusal(const char *setting, enum rs_rdma_notify notify,
                           struct capability cannot)
{
    setenv("RSCHED_NOTIFY", setting, 1);
    notify_of(cannot, RSCHED_EINVAL);
    expect_one_rail((struct capability){true, true, true}, cannot, notify);
}

Test(notify, flags_without_order_are_refused)
{
    expect_refusal("flag", RS_NOTIFY_FLAG,
                   (struct capability){false, true, true});
}

Test(notify, additions_without_atomics_are_refused)
{
    expect_refusal("add", RS_NOTIFY_ADD, (struct capability){true, false, true});
}

Test(notify, immediates_of_a_device_without_are_refused)
{
    expect_refusal("imm", RS_NOTIFY_IMM, (struct capability){true, true, false});
}

/* Loads of all lanes of a bundle, of which one fails after some of them. No version
 * comes again, not even where 16 and 32 bits end. */
Test(bundle, lanes_that_are_loaded_together_have_one_version)
{
    enum { LANES = 4, LOADS = 20 };

    static const uint64_t bases[] = {0, UINT16_MAX - LOADS / 2,
                                     UINT32_MAX - LOADS / 2};

    for (size_t k = 0; k < sizeof(bases) / sizeof(bases[0]); k++) {
        struct rs_rdma_bundle b = {.version = bases[k]};
        uint64_t version[LANES] = {bases[k], bases[k], bases[k], bases[k]};

        for (int load = 0; load < LOADS; load++) {
            uint64_t before = b.version;
            int loaded = load % 3 == 2 ? load % LANES : LANES;

            for (int i = 0; i < loaded; i++) {
                version[i] = rs_rdma_bundle_advance(&b, version[i]);
                cr_assert_gt(version[i], before);
                cr_assert_eq(version[i], b.version);
            }
        }
    }
}
