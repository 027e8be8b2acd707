/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors that are handed to other namespaces: what arrives, and what becomes
 * of letters that no peer has sent. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engines/loopback/loopback.h"
#include "librsched/base/hand.h"
#include "tests/base/entries.h"

enum { MOST = 8 };

static const int any[RS_HAND_FDS] = {0, 1};

/* Sockets are named by them, and other tests run at the same time. */
static uint64_t mine_nonce, their_nonce;

static void draw(void)
{
    cr_assert_eq(getrandom(&mine_nonce, sizeof(mine_nonce), 0),
                 (ssize_t)sizeof(mine_nonce));
    their_nonce = mine_nonce + 1;
}

/* So many descriptors, in a letter of anybody's. */
static void send_any(const struct rs_hands *to, int number)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(MOST * sizeof(int))];
    } control = {0};
    struct sockaddr_un address;
    char text[24] = "anything";
    struct iovec part = {text, sizeof(text)};
    struct msghdr message = {
        .msg_name = &address,
        .msg_namelen = rs_hands_address(to->nonce, &address),
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = CMSG_SPACE((size_t)number * sizeof(int))};
    int fds[MOST] = {0}, sender = socket(AF_UNIX, SOCK_DGRAM, 0);

    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN((size_t)number * sizeof(int));
    memcpy(CMSG_DATA(&control.header), fds, (size_t)number * sizeof(int));
    cr_assert_eq(sendmsg(sender, &message, 0), (ssize_t)sizeof(text));
    close(sender);
}

Test(hands, descriptors_of_a_peer_arrive, .init = draw)
{
    struct rs_hands mine, theirs;
    struct rs_hand *hand;
    int before = count_descriptors();

    rs_hands_init(&mine, mine_nonce);
    rs_hands_init(&theirs, their_nonce);
    cr_assert(mine.socket >= 0 && theirs.socket >= 0);
    cr_assert_null(rs_hands_take(&mine, their_nonce));
    cr_assert_eq(rs_hands_send(&theirs, mine_nonce, any), 0);
    cr_assert_null(rs_hands_take(&mine, mine_nonce + 2));
    hand = rs_hands_take(&mine, their_nonce);
    cr_assert_not_null(hand);
    cr_assert(hand->fds[0] > 2 && hand->fds[1] > 2 && hand->pidfd > 2);
    cr_assert_eq(hand->pid, getpid());
    cr_assert_null(rs_hands_take(&mine, their_nonce));
    rs_hand_destroy(hand);
    rs_hands_fini(&mine);
    rs_hands_fini(&theirs);
    cr_assert_eq(count_descriptors(), before);
}

/* Where it is free the kernel gives the number of standard input first. */
Test(hands, descriptors_are_no_standard_ones, .init = draw)
{
    struct rs_hands mine, theirs;
    struct rs_hand *hand;

    close(0);
    rs_hands_init(&mine, mine_nonce);
    rs_hands_init(&theirs, their_nonce);
    cr_assert(mine.socket > 2 && theirs.socket > 2);
    cr_assert_eq(rs_hands_send(&theirs, mine_nonce, (const int[]){1, 2}), 0);
    hand = rs_hands_take(&mine, their_nonce);
    cr_assert_not_null(hand);
    cr_assert(hand->fds[0] > 2 && hand->fds[1] > 2 && hand->pidfd > 2);
    rs_hand_destroy(hand);
    rs_hands_fini(&mine);
    rs_hands_fini(&theirs);
}

Test(hands, letters_of_others_are_thrown_away, .init = draw)
{
    struct rs_hands mine;
    int before = count_descriptors();

    rs_hands_init(&mine, mine_nonce);
    for (int number = 1; number <= MOST; number++) {
        send_any(&mine, number);
        cr_assert_null(rs_hands_take(&mine, their_nonce));
        cr_assert_eq(count_descriptors(), before + 1, "of %d descriptors %d stay open",
                     number, count_descriptors() - before - 1);
    }
    rs_hands_fini(&mine);
    cr_assert_eq(count_descriptors(), before);
}

/* Who knows both nonces, as anybody may, is no peer if he is another user. */
Test(hands, letters_of_another_user_are_thrown_away, .init = draw)
{
    struct rs_hands mine, theirs;
    int before = count_descriptors(), status;
    struct rs_hand *hand;
    pid_t other;

    if (geteuid() != 0)
        cr_skip_test("only root may be another user");
    rs_hands_init(&mine, mine_nonce);
    rs_hands_init(&theirs, their_nonce);
    cr_assert_eq(rs_hands_send(&theirs, mine_nonce, any), 0);
    other = fork();
    if (other == 0)
        _exit(setresuid(65534, 65534, 65534) != 0 ||
              rs_hands_send(&theirs, mine_nonce, any) != 0);
    cr_assert_eq(waitpid(other, &status, 0), other);
    cr_assert_eq(status, 0);
    hand = rs_hands_take(&mine, their_nonce);
    cr_assert_not_null(hand);
    cr_assert_eq(hand->pid, getpid());
    rs_hand_destroy(hand);
    cr_assert_null(rs_hands_take(&mine, their_nonce));
    rs_hands_fini(&mine);
    rs_hands_fini(&theirs);
    cr_assert_eq(count_descriptors(), before);
}

/* Without a socket of one's own, and without waiting for room. */
Test(hands, one_descriptor_is_handed_at_once_or_later, .init = draw)
{
    int before = count_descriptors(), sent = 0, taken = 0;
    struct rs_hands mine;
    struct rs_hand *hand;

    cr_assert_eq(rs_hand_try(mine_nonce, their_nonce, 1), -1);
    cr_assert_not(rs_hand_may_be_later(errno), "nobody is there");
    rs_hands_init(&mine, mine_nonce);
    while (rs_hand_try(mine_nonce, their_nonce, 1) == 0)
        cr_assert(++sent < 100000);
    cr_assert(sent > 0 && rs_hand_may_be_later(errno), "%s", strerror(errno));
    for (; (hand = rs_hands_take(&mine, their_nonce)) != NULL; taken++) {
        cr_assert(hand->fds[0] > 2 && hand->fds[1] == -1 && hand->pidfd == -1);
        rs_hand_destroy(hand);
    }
    cr_assert_eq(taken, sent);
    cr_assert_eq(rs_hand_try(mine_nonce, their_nonce, 1), 0);
    rs_hands_fini(&mine);
    cr_assert_eq(count_descriptors(), before);
}

static void *take_late(void *arg)
{
    struct rs_hand *hand;

    for (int i = 0; i < 20; i++) {
        usleep(10000);
        while ((hand = rs_hands_take(arg, their_nonce)) != NULL)
            rs_hand_destroy(hand);
    }
    return NULL;
}

/* The kernel lets a user have no more descriptors on the way than a process of his
 * may have open; a queue has room for more letters. */
Test(hands, many_descriptors_on_the_way_are_waited_for, .init = draw)
{
    enum { LETTERS = 20 };
    const struct rlimit few = {16, 16};
    struct rs_hands mine, theirs;
    pthread_t thread;

    rs_hands_init(&mine, mine_nonce);
    rs_hands_init(&theirs, their_nonce);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    /* Root may have any number. */
    if (geteuid() == 0)
        cr_assert_eq(setresuid(65534, 65534, 65534), 0);
    cr_assert_eq(pthread_create(&thread, NULL, take_late, &mine), 0);
    for (int i = 0; i < LETTERS; i++)
        cr_assert_eq(rs_hands_send(&theirs, mine_nonce, any), 0,
                     "letter %d", i);
    pthread_join(thread, NULL);
    rs_hands_fini(&mine);
    rs_hands_fini(&theirs);
}

enum { PEERS = 5 };

static struct rsched_connection *connect_to(struct rsched_engine *from,
                                            struct rsched_engine *to)
{
    unsigned char address[RSCHED_ENGINE_ADDRESS_BYTES];
    struct rsched_connection *c;

    rs_loopback_ops.address(to, address);
    cr_assert_eq(rs_loopback_ops.connect(from, 0, address, &c), 0);
    return c;
}

static void accept_peer(struct rsched_connection *c)
{
    unsigned char offer[RSCHED_ENGINE_OFFER_BYTES] = {0};

    cr_assert_eq(rs_loopback_ops.accept(c, offer), 0);
}

/* An engine and its peers, all of this process, connected both ways.
 * @return the descriptors that connections keep open */
static int count_connected(void)
{
    const struct rsched_engine_env env = {.job = mine_nonce};
    struct rsched_engine *engine, *peers[PEERS];
    struct rsched_connection *there[PEERS], *back[PEERS];
    int unconnected, connected;

    cr_assert_eq(rs_loopback_ops.open(&env, &engine), 0);
    for (int i = 0; i < PEERS; i++)
        cr_assert_eq(rs_loopback_ops.open(&env, &peers[i]), 0);
    unconnected = count_descriptors();
    for (int i = 0; i < PEERS; i++) {
        there[i] = connect_to(engine, peers[i]);
        back[i] = connect_to(peers[i], engine);
    }
    for (int i = 0; i < PEERS; i++) {
        accept_peer(there[i]);
        accept_peer(back[i]);
        rs_loopback_ops.collect(peers[i]);
    }
    rs_loopback_ops.collect(engine);
    connected = count_descriptors();
    for (int i = 0; i < PEERS; i++) {
        rs_loopback_ops.disconnect(there[i]);
        rs_loopback_ops.disconnect(back[i]);
        rs_loopback_ops.close(peers[i]);
    }
    rs_loopback_ops.close(engine);
    return connected - unconnected;
}

/* Processes that must not be dumped do not know whether /proc leads to each other,
 * so they send letters also where it does. */
Test(hands, what_nobody_needs_does_not_stay_open, .init = draw)
{
    int before = count_descriptors(), unsent = count_connected();

    cr_assert_eq(prctl(PR_SET_DUMPABLE, 0), 0);
    cr_assert_eq(count_connected(), unsent);
    cr_assert_eq(count_descriptors(), before);
}

/* Whatever stands in memory that others write, an engine is itself to itself only. */
Test(hands, memory_that_says_the_same_is_not_ones_own, .init = draw)
{
    const struct rsched_engine_env envs[] = {{.job = mine_nonce, .process = 0},
                                             {.job = mine_nonce, .process = 1}};
    unsigned char address[RSCHED_ENGINE_ADDRESS_BYTES];
    struct rsched_engine *engines[2];
    struct rsched_connection *c;

    for (int i = 0; i < 2; i++)
        cr_assert_eq(rs_loopback_ops.open(&envs[i], &engines[i]), 0);
    rs_loopback_ops.address(engines[0], address);
    cr_assert_eq(rs_loopback_ops.connect(engines[0], 0, address, &c), 0);
    cr_assert(c->self);
    rs_loopback_ops.disconnect(c);
    cr_assert_eq(rs_loopback_ops.connect(engines[0], 1, address, &c), 0);
    cr_assert_not(c->self);
    rs_loopback_ops.disconnect(c);
    for (int i = 0; i < 2; i++)
        engines[i]->segment.header->nonce = 1;
    rs_loopback_ops.address(engines[1], address);
    cr_assert_eq(rs_loopback_ops.connect(engines[0], 1, address, &c),
                 RSCHED_EUNREACH);
    rs_loopback_ops.address(engines[0], address);
    cr_assert_eq(rs_loopback_ops.connect(engines[0], 0, address, &c), 0);
    cr_assert(c->self);
    rs_loopback_ops.disconnect(c);
    for (int i = 0; i < 2; i++)
        rs_loopback_ops.close(engines[i]);
}
