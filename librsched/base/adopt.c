/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/adopt.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <rsched/memory.h>

#include "librsched/base/config.h"
#include "librsched/base/error.h"
#include "librsched/base/offer.h"
#include "librsched/base/pin.h"
#include "librsched/base/shared.h"

static const char *const names[RSCHED_NUM_ADOPTIONS] = {
    [RSCHED_ADOPTED] = "adopted",       [RSCHED_ADOPT_ORIGIN] = "origin",
    [RSCHED_ADOPT_MAPPING] = "mapping", [RSCHED_ADOPT_DEVICE] = "device",
    [RSCHED_ADOPT_BUDGET] = "budget",   [RSCHED_ADOPT_SYSTEM] = "system",
    [RSCHED_ADOPT_GUARD] = "guard",
};

static atomic_uint_fast64_t counts[RSCHED_NUM_ADOPTIONS];
static bool (*_Atomic guard)(void);

const char *rsched_adoption_name(enum rsched_adoption adoption)
{
    return adoption < RSCHED_NUM_ADOPTIONS ? names[adoption] : NULL;
}

uint64_t rsched_memory_adoptions(enum rsched_adoption adoption)
{
    return adoption < RSCHED_NUM_ADOPTIONS
               ? atomic_load_explicit(&counts[adoption], memory_order_relaxed)
               : 0;
}

/* ---- what may have pages pinned ---- */

/* Where a descriptor leads, as the kernel calls it. */
static bool is_called(int folder, const char *number, const char *const known[],
                      size_t num_known)
{
    char name[64];
    ssize_t length = readlinkat(folder, number, name, sizeof(name) - 1);

    if (length < 0)
        return errno == ENOENT;
    name[length] = '\0';
    for (size_t i = 0; i < num_known; i++) {
        if (strcmp(known[i], name) == 0)
            return true;
    }
    return false;
}

static bool is_terminal_or_memory(dev_t device)
{
    unsigned number = major(device), unit = minor(device);

    switch (number) {
    case 1: /* null, zero, full, random, urandom */
        return unit == 3 || unit == 5 || (unit >= 7 && unit <= 9);
    case 4: /* tty */
    case 5: /* tty, console, ptmx */
        return true;
    default: /* pts */
        return number >= 136 && number <= 143;
    }
}

static bool is_harmless_socket(int fd)
{
    int domain = -1;
    socklen_t length = sizeof(domain);

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0)
        return errno == EBADF;
    return domain == AF_UNIX || domain == AF_INET || domain == AF_INET6 ||
           domain == AF_NETLINK;
}

/* What has no type is an object of the kernel. */
static bool is_harmless_object(int folder, const char *number)
{
    static const char *const known[] = {
        "anon_inode:[eventpoll]",       "anon_inode:[eventfd]",
        "anon_inode:[timerfd]",         "anon_inode:[signalfd]",
        "anon_inode:inotify",           "anon_inode:[pidfd]",
        "anon_inode:[infinibandevent]", "anon_inode:[devx_async_cmd]",
        "anon_inode:[devx_async_event]"};

    return is_called(folder, number, known, sizeof(known) / sizeof(known[0]));
}

/* One that registers no memory. */
static bool is_harmless_device(int folder, const char *number, dev_t device)
{
    static const char *const known[] = {"/dev/infiniband/rdma_cm"};

    return is_terminal_or_memory(device) || is_called(folder, number, known, 1);
}

/* By its name in `folder`: other threads may close it at any time. */
static bool is_harmless(int folder, const char *number)
{
    struct stat status;

    if (fstatat(folder, number, &status, 0) != 0)
        return errno == ENOENT;
    if (rs_pin_knows(atoi(number), &status))
        return true;
    switch (status.st_mode & S_IFMT) {
    case S_IFREG:
    case S_IFDIR:
    case S_IFIFO:
    case S_IFLNK:
        return true;
    case S_IFSOCK:
        return is_harmless_socket(atoi(number));
    case S_IFCHR:
        return is_harmless_device(folder, number, status.st_rdev);
    case 0:
        return is_harmless_object(folder, number);
    default:
        return false;
    }
}

static bool opens_device(void)
{
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry;
    bool found = false;

    if (folder == NULL)
        return true;
    while (!found && (entry = readdir(folder)) != NULL)
        found = entry->d_name[0] != '.' &&
                !is_harmless(dirfd(folder), entry->d_name);
    closedir(folder);
    return found;
}

/* Pages that the kernel counts as pinned, of which nothing is told. */
static bool has_pinned(void)
{
    FILE *file;
    unsigned long long kilobytes = 1;
    char line[256];

    if (rs_pin_any_device())
        return false; /* its queues are pinned, too */
    file = fopen("/proc/self/status", "re");
    if (file == NULL)
        return true;
    while (fgets(line, sizeof(line), file) != NULL &&
           sscanf(line, "VmPin: %llu", &kilobytes) != 1)
        ;
    fclose(file);
    return kilobytes != 0;
}

/* ---- what kind of memory it is ---- */

/* A line of /proc/self/maps: private, readable and writable, of no file. */
static bool is_plain(const char *permissions, const char *device,
                     uint64_t inode, const char *name)
{
    return strcmp(permissions, "rw-p") == 0 && strcmp(device, "00:00") == 0 &&
           inode == 0 &&
           (name[0] == '\0' || strcmp(name, "[heap]") == 0 ||
            strncmp(name, "[anon:", 6) == 0);
}

/* Whether it was said where the pages of this mapping are to lie: other pages
 * would not know. Who may not ask may not say either. */
static bool is_placed(uintptr_t address)
{
    int mode = MPOL_DEFAULT;

    return syscall(SYS_get_mempolicy, &mode, NULL, 0, address, MPOL_F_ADDR) ==
               0 &&
           mode != MPOL_DEFAULT;
}

static bool is_mapped_plainly(const char *low, const char *high)
{
    FILE *file = fopen("/proc/self/maps", "re");
    uintptr_t at = (uintptr_t)low;
    char *line = NULL;
    size_t room = 0;

    if (file == NULL)
        return false;
    while (at < (uintptr_t)high && getline(&line, &room, file) > 0) {
        uintptr_t start, end;
        char permissions[8], device[16], name[16] = "";
        uint64_t inode;

        if (sscanf(line,
                   "%" SCNxPTR "-%" SCNxPTR " %7s %*s %15s %" SCNu64 " %15s",
                   &start, &end, permissions, device, &inode, name) < 5)
            break;
        if (end <= at)
            continue;
        if (start > at || !is_plain(permissions, device, inode, name) ||
            is_placed(at))
            break;
        at = end;
    }
    free(line);
    fclose(file);
    return at >= (uintptr_t)high;
}

/* This advice is refused for memory that is locked, or of huge pages; it moves
 * pages to a list from which they are reclaimed earlier, and these are about
 * to go. */
static bool is_unlocked(char *low, char *high)
{
    return madvise(low, (size_t)(high - low), MADV_COLD) == 0;
}

/* ---- adopting ---- */

void rsched_memory_guard(bool (*holds)(void))
{
    atomic_store(&guard, holds);
}

static bool is_guarded(void)
{
    bool (*holds)(void) = atomic_load(&guard);

    return holds == NULL || holds();
}

static uintptr_t page_bytes(void)
{
    return (uintptr_t)sysconf(_SC_PAGESIZE);
}

char *rs_page_up(char *address)
{
    return address + (-(uintptr_t)address & (page_bytes() - 1));
}

char *rs_page_down(char *address)
{
    return address - ((uintptr_t)address & (page_bytes() - 1));
}

static char *end_of(const struct rsched_piece *p)
{
    return p->address + p->bytes;
}

static int compare(const void *a, const void *b)
{
    const struct rsched_piece *p = a, *q = b;

    return p->address < q->address ? -1 : p->address > q->address;
}

/* In the order of addresses; what touches becomes one. */
static size_t merge(struct rsched_piece *parts, size_t number)
{
    size_t kept = 0;

    if (number > 0)
        qsort(parts, number, sizeof(*parts), compare);
    for (size_t i = 0; i < number; i++) {
        const struct rsched_piece *p = &parts[i];
        struct rsched_piece *last = kept > 0 ? &parts[kept - 1] : NULL;

        if (last == NULL || p->address > end_of(last))
            parts[kept++] = *p;
        else if (end_of(p) > end_of(last))
            last->bytes = (uint64_t)(end_of(p) - last->address);
    }
    return kept;
}

size_t rs_adopt_pages(struct rsched_piece *parts, size_t number)
{
    size_t merged = merge(parts, number), kept = 0;

    for (size_t i = 0; i < merged; i++) {
        char *low = rs_page_up(parts[i].address);
        char *high = rs_page_down(end_of(&parts[i]));

        if (low < high)
            parts[kept++] = (struct rsched_piece){low, (uint64_t)(high - low), 1, 0};
    }
    return kept;
}

/* What that takes, in ps, together with taking it back; measured from 16 KiB to 4 MiB:
 * docs/adopted.md. */
static uint64_t adopt_time(uint64_t bytes)
{
    const uint64_t once_ps = UINT64_C(90) * 1000 * 1000, byte_ps = 560;

    return bytes > (UINT64_MAX - once_ps) / byte_ps ? UINT64_MAX
                                                    : once_ps + bytes * byte_ps;
}

bool rs_adopt_is_due(struct rs_adopt_watch *w, uint64_t saves, uint64_t bytes)
{
    uint64_t all;

    if (w->after == 0)
        w->after = (uint32_t)rs_config()->adopt;
    if (saves == 0)
        return false;
    if (__builtin_mul_overflow(saves, (uint64_t)w->after, &all) ||
        all >= adopt_time(bytes))
        return true;
    if (w->after <= UINT32_MAX / 2) {
        w->in = w->after;
        w->after *= 2;
    }
    return false;
}

/* Whole pages, of which none lies in a region. @return whether it is known now
 * what has become of them */
static bool adopt(char *low, char *high)
{
    enum rsched_adoption result = RSCHED_ADOPTED;
    int error;

    if (!rs_offer_holds(low, high)) {
        result = RSCHED_ADOPT_ORIGIN;
    } else if (!is_mapped_plainly(low, high) || !is_unlocked(low, high)) {
        result = RSCHED_ADOPT_MAPPING;
    } else if (rs_pin_holds(low, high) || has_pinned() || opens_device()) {
        result = RSCHED_ADOPT_DEVICE;
    } else if (!is_guarded()) {
        result = RSCHED_ADOPT_GUARD;
    } else {
        /* Before, so that whoever reclaims it looks for adopted pages. */
        rs_offer_mark(low);
        error = rs_shared_adopt(low, (uint64_t)(high - low));
        if (error == RSCHED_ESTATE)
            return false; /* another thread has adopted or pinned pages of it */
        if (error != 0)
            result = error == RSCHED_ELIMIT ? RSCHED_ADOPT_BUDGET
                                            : RSCHED_ADOPT_SYSTEM;
    }
    atomic_fetch_add_explicit(&counts[result], (uint64_t)(high - low),
                              memory_order_relaxed);
    return true;
}

/* Of pages that nobody has adopted, each piece that was offered by itself. */
static bool adopt_pieces(char *low, char *high)
{
    bool known = true;

    while (low < high && known) {
        char *edge = (char *)rs_offer_edge(low, high);
        char *end = rs_page_down(edge);

        if (low < end)
            known = adopt(low, end);
        low = rs_page_up(edge);
    }
    return known;
}

void rs_adopt(char *low, char *high)
{
    struct rs_place place;

    low = rs_page_up(low);
    high = rs_page_down(high);
    while (low < high) {
        bool found = rs_shared_find(low, high, &place);
        char *end = found ? rs_page_down(place.address) : high;

        if (low < end && !adopt_pieces(low, end))
            continue;
        low = found ? rs_page_up(place.address + place.bytes) : high;
    }
}
