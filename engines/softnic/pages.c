/* SPDX-License-Identifier: BSD-3-Clause */
#include "engines/softnic/pages.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "librsched/base/descriptor.h"

enum { SLOTS = 8, RECORD_BYTES = 256, REGISTER_BYTES = 512 };

struct softnic_shelf {
    struct softnic_shelf *next;
    char *records, *registers;
    unsigned taken; /* a bit for each slot */
};

void *softnic_pages_allocate(size_t bytes)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return pages == MAP_FAILED ? NULL : pages;
}

void softnic_pages_free(void *pages, size_t bytes)
{
    if (pages != NULL)
        munmap(pages, bytes);
}

static void *map_registers(void)
{
    int fd = rs_descriptor_keep(memfd_create("softnic-registers", MFD_CLOEXEC));
    void *page = MAP_FAILED;

    if (fd >= 0 && ftruncate(fd, SOFTNIC_PAGE) == 0)
        page = mmap(NULL, SOFTNIC_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                    0);
    if (fd >= 0)
        close(fd);
    return page == MAP_FAILED ? NULL : page;
}

static void shelf_free(struct softnic_shelf *s)
{
    softnic_pages_free(s->records, SOFTNIC_PAGE);
    softnic_pages_free(s->registers, SOFTNIC_PAGE);
    free(s);
}

static struct softnic_shelf *add_shelf(struct softnic_shelves *shelves)
{
    struct softnic_shelf *s = calloc(1, sizeof(*s));

    if (s == NULL)
        return NULL;
    s->records = softnic_pages_allocate(SOFTNIC_PAGE);
    s->registers = map_registers();
    if (s->records == NULL || s->registers == NULL) {
        shelf_free(s);
        return NULL;
    }
    s->next = shelves->first;
    shelves->first = s;
    return s;
}

int softnic_slot_take(struct softnic_shelves *shelves,
                       struct softnic_slot *slot)
{
    struct softnic_shelf *s = shelves->first;
    unsigned number = 0;

    while (s != NULL && s->taken == (1u << SLOTS) - 1)
        s = s->next;
    if (s == NULL)
        s = add_shelf(shelves);
    if (s == NULL)
        return -1;
    while ((s->taken >> number & 1) != 0)
        number++;
    s->taken |= 1u << number;
    *slot = (struct softnic_slot){
        .shelf = s,
        .number = number,
        .records = s->records + (size_t)number * RECORD_BYTES,
        .registers = s->registers + (size_t)number * REGISTER_BYTES};
    memset(slot->records, 0, RECORD_BYTES);
    memset(slot->registers, 0, REGISTER_BYTES);
    return 0;
}

void softnic_slot_give_back(struct softnic_slot *slot)
{
    if (slot->shelf != NULL)
        slot->shelf->taken &= ~(1u << slot->number);
    slot->shelf = NULL;
}

void softnic_shelves_fini(struct softnic_shelves *shelves)
{
    while (shelves->first != NULL) {
        struct softnic_shelf *s = shelves->first;

        shelves->first = s->next;
        shelf_free(s);
    }
}
