/* SPDX-License-Identifier: BSD-3-Clause */
#include "librsched/base/adoptable.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "librsched/base/array.h"
#include "librsched/base/offer.h"
#include "librsched/base/pin.h"

static bool (*_Atomic guard)(void);

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

/* Of the process: they are a list of hundreds of lines, read once. */
static bool list_plain(struct rs_adoptable *a, const char *low, const char *high)
{
    FILE *file = fopen("/proc/self/maps", "re");
    char *line = NULL;
    size_t room = 0;
    bool good = file != NULL;

    while (good && getline(&line, &room, file) > 0) {
        uintptr_t start, end;
        char permissions[8], device[16], name[16] = "";
        uint64_t inode;
        struct rs_range *plain;

        if (sscanf(line,
                   "%" SCNxPTR "-%" SCNxPTR " %7s %*s %15s %" SCNu64 " %15s",
                   &start, &end, permissions, device, &inode, name) < 5 ||
            start >= (uintptr_t)high)
            break;
        if (end <= (uintptr_t)low || !is_plain(permissions, device, inode, name))
            continue;
        plain = rs_array_grow(a->plain, &a->room, a->num_plain + 1, sizeof(*plain));
        good = plain != NULL;
        if (!good)
            break;
        a->plain = plain;
        plain[a->num_plain++] = (struct rs_range){start, end};
    }
    free(line);
    if (file != NULL)
        fclose(file);
    return good;
}

static bool is_mapped_plainly(const struct rs_adoptable *a, uintptr_t low, uintptr_t high)
{
    size_t first = 0, last = a->num_plain;

    while (first < last) { /* the first one that ends behind `low` */
        size_t middle = first + (last - first) / 2;

        if (a->plain[middle].high <= low)
            first = middle + 1;
        else
            last = middle;
    }
    for (; low < high; first++) {
        if (first == a->num_plain || a->plain[first].low > low || is_placed(low))
            return false;
        low = a->plain[first].high;
    }
    return true;
}

/* This advice is refused for memory that is locked, or of huge pages; it moves
 * pages to a list from which they are reclaimed earlier, and these are about
 * to go. */
static bool is_unlocked(char *low, char *high)
{
    return madvise(low, (size_t)(high - low), MADV_COLD) == 0;
}

/* ---- of many pieces ---- */

void rsched_memory_guard(bool (*holds)(void))
{
    atomic_store(&guard, holds);
}

static bool is_guarded(void)
{
    bool (*holds)(void) = atomic_load(&guard);

    return holds == NULL || holds();
}

bool rs_adoptable_look(struct rs_adoptable *a, const char *low, const char *high)
{
    *a = (struct rs_adoptable){.process = RSCHED_ADOPTED};
    if (has_pinned() || opens_device())
        a->process = RSCHED_ADOPT_DEVICE;
    else if (!is_guarded())
        a->process = RSCHED_ADOPT_GUARD;
    if (rs_offers_list(low, high, &a->offers, &a->num_offers) &&
        list_plain(a, low, high))
        return true;
    rs_adoptable_fini(a);
    return false;
}

void rs_adoptable_fini(struct rs_adoptable *a)
{
    free(a->offers);
    free(a->plain);
}

enum rsched_adoption rs_adoptable_is(const struct rs_adoptable *a, char *low, char *high)
{
    if (rs_offers_holding(a->offers, a->num_offers, low, high) == NULL)
        return RSCHED_ADOPT_ORIGIN;
    if (!is_mapped_plainly(a, (uintptr_t)low, (uintptr_t)high) || !is_unlocked(low, high))
        return RSCHED_ADOPT_MAPPING;
    return rs_pin_holds(low, high) ? RSCHED_ADOPT_DEVICE : a->process;
}
