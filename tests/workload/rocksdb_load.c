/*
 * A RocksDB load shaped like a CKB node's, for tests and demonstrations that should not wait for a real node.
 *
 * A chain thread commits one optimistic transaction per block; reader threads answer requests with plain reads. The
 * calls per block are fixed, so that the rate of every function is known beforehand, and each call of RocksDB's C API
 * that a probe may watch is counted, so that what a probe reports can be held against the truth. Keys repeat after
 * KEY_SPACE_BLOCKS blocks: the database stays bounded however long it runs.
 *
 * SIGUSR1 prints the counts as one JSON line; after SIGUSR2, which prints them too, no call is made before the next
 * SIGUSR2; SIGTERM, SIGINT or the end of its time stops, prints them a last time and exits with 0.
 */
#define _GNU_SOURCE
#include "listen.h"

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <rocksdb/c.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    KEY_BYTES = 32, /* CKB keys most columns by a 256-bit hash */
    LARGEST_VALUE_BYTES = 1024,
    KEY_SPACE_BLOCKS = 4096,
    KEYS_PER_BLOCK = 16, /* room for the keys of one block in one column */
    RECENT_BLOCKS = 64,  /* a block mostly reads what the last blocks wrote */
    CELL_LIFE_BLOCKS = 16,
    BLOCKS_PER_FILTER_BATCH = 10,
    REQUESTS_PER_BLOCK = 5,
    READS_PER_REQUEST = 8,
    REQUESTS_PER_MULTI_GET = 5,
    REQUESTS_PER_ITERATOR = 10,
    ITERATOR_STEPS = 8,
    MOST_READERS = 16,
};

/* CKB's columns; the name of each column family is the number written out. */
enum column {
    INDEX, BLOCK_HEADER, BLOCK_BODY, BLOCK_UNCLE, META, TRANSACTION_INFO, BLOCK_EXT, BLOCK_PROPOSAL_IDS, BLOCK_EPOCH,
    EPOCH, CELL, UNCLES, CELL_DATA, NUMBER_HASH, CELL_DATA_HASH, BLOCK_EXTENSION, CHAIN_ROOT_MMR, BLOCK_FILTER,
    BLOCK_FILTER_HASH, COLUMNS,
};

/* What the transaction of one block does in each column. */
static const struct traffic {
    enum column column;
    unsigned gets, puts, deletes;
    size_t value_bytes;
} block_traffic[] = {
    {INDEX, 1, 2, 0, 32},
    {BLOCK_HEADER, 2, 1, 0, 240},
    {BLOCK_BODY, 0, 4, 0, 600},
    {BLOCK_UNCLE, 0, 1, 0, 60},
    {META, 0, 2, 0, 40},
    {TRANSACTION_INFO, 1, 4, 0, 80},
    {BLOCK_EXT, 2, 1, 0, 90},
    {BLOCK_PROPOSAL_IDS, 0, 1, 0, 30},
    {BLOCK_EPOCH, 2, 1, 0, 32},
    {EPOCH, 1, 0, 0, 108},
    {CELL, 2, 4, 2, 150},
    {CELL_DATA, 0, 4, 2, 200},
    {NUMBER_HASH, 0, 1, 0, 40},
    {CELL_DATA_HASH, 0, 4, 2, 32},
    {BLOCK_EXTENSION, 0, 1, 0, 40},
    {CHAIN_ROOT_MMR, 9, 2, 0, 120},
};

#define COUNTED_FUNCTIONS(apply)                  \
    apply(rocksdb_get_pinned_cf)                  \
    apply(rocksdb_multi_get_cf)                   \
    apply(rocksdb_create_iterator_cf)             \
    apply(rocksdb_put_cf)                         \
    apply(rocksdb_delete_cf)                      \
    apply(rocksdb_write)                          \
    apply(rocksdb_optimistictransaction_begin)    \
    apply(rocksdb_transaction_get_pinned_cf)      \
    apply(rocksdb_transaction_get_for_update_cf)  \
    apply(rocksdb_transaction_create_iterator_cf) \
    apply(rocksdb_transaction_put_cf)             \
    apply(rocksdb_transaction_delete_cf)          \
    apply(rocksdb_transaction_commit)

#define ENUMERATOR(function) COUNT_OF_##function,
#define NAME(function) #function,
enum counted_function { COUNTED_FUNCTIONS(ENUMERATOR) FUNCTIONS };
static const char *const function_names[] = {COUNTED_FUNCTIONS(NAME)};

static atomic_uint_fast64_t calls[FUNCTIONS];

/* Calls a function of RocksDB and counts the call. */
#define COUNTED(function, ...) \
    (atomic_fetch_add_explicit(&calls[COUNT_OF_##function], 1, memory_order_relaxed), function(__VA_ARGS__))

static struct {
    rocksdb_optimistictransactiondb_t *transactions;
    rocksdb_t *base;
    rocksdb_column_family_handle_t *column[COLUMNS + 1]; /* one more: "default" must be opened too */
    rocksdb_options_t *options;
    rocksdb_readoptions_t *read;
    rocksdb_writeoptions_t *write;
    rocksdb_optimistictransaction_options_t *transaction;
} db;

/* Work holds it shared, a report holds it alone: no call is under way while the counts are read. */
static pthread_rwlock_t working;
static atomic_bool stopping;
static atomic_uint_fast64_t blocks;
static unsigned blocks_per_second = 20; /* 0: as fast as it goes */
static char value[LARGEST_VALUE_BYTES];

static void die(const char *what, const char *why)
{
    fprintf(stderr, "rocksdb_load: %s: %s\n", what, why);
    _Exit(1); /* other threads may still be inside RocksDB: run no destructors under them */
}

static void check(const char *what, const char *error)
{
    if (error)
        die(what, error);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* splitmix64 */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t next_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15u;
    return mix(*state);
}

struct key {
    char bytes[KEY_BYTES];
};

/* The i-th key that `block` writes in a column. */
static struct key key_of(uint64_t block, unsigned i)
{
    struct key key;
    uint64_t word = (block % KEY_SPACE_BLOCKS) * KEYS_PER_BLOCK + i % KEYS_PER_BLOCK;
    for (size_t at = 0; at < KEY_BYTES; at += sizeof(word)) {
        word = mix(word);
        memcpy(key.bytes + at, &word, sizeof(word));
    }
    return key;
}

/* A key of one of the `window` blocks before `block`. */
static struct key earlier_key(uint64_t *random, uint64_t block, uint64_t window, unsigned keys)
{
    if (window > block)
        window = block + 1;
    return key_of(block - next_random(random) % window, (unsigned)(next_random(random) % keys));
}

static void drop(rocksdb_pinnableslice_t *found)
{
    if (found)
        rocksdb_pinnableslice_destroy(found);
}

static void walk(rocksdb_iterator_t *iterator, struct key from)
{
    rocksdb_iter_seek(iterator, from.bytes, KEY_BYTES);
    for (int step = 0; step < ITERATOR_STEPS && rocksdb_iter_valid(iterator); step++)
        rocksdb_iter_next(iterator);
    rocksdb_iter_destroy(iterator);
}

static void transact_column(rocksdb_transaction_t *transaction, const struct traffic *traffic, uint64_t block,
                            uint64_t *random)
{
    rocksdb_column_family_handle_t *column = db.column[traffic->column];
    char *error = NULL;

    for (unsigned i = 0; i < traffic->gets; i++) {
        struct key key = earlier_key(random, block, RECENT_BLOCKS, traffic->puts ? traffic->puts : 1);
        drop(COUNTED(rocksdb_transaction_get_pinned_cf, transaction, db.read, column, key.bytes, KEY_BYTES, &error));
        check("rocksdb_transaction_get_pinned_cf", error);
    }
    for (unsigned i = 0; i < traffic->puts; i++) {
        struct key key = key_of(block, i);
        COUNTED(rocksdb_transaction_put_cf, transaction, column, key.bytes, KEY_BYTES, value, traffic->value_bytes,
                &error);
        check("rocksdb_transaction_put_cf", error);
    }
    for (unsigned i = 0; i < traffic->deletes; i++) {
        struct key key = key_of(block + KEY_SPACE_BLOCKS - CELL_LIFE_BLOCKS, i);
        COUNTED(rocksdb_transaction_delete_cf, transaction, column, key.bytes, KEY_BYTES, &error);
        check("rocksdb_transaction_delete_cf", error);
    }
}

static void commit_block(uint64_t block, uint64_t *random)
{
    char *error = NULL;
    rocksdb_transaction_t *transaction =
        COUNTED(rocksdb_optimistictransaction_begin, db.transactions, db.write, db.transaction, NULL);

    size_t tip_bytes;
    char *tip = COUNTED(rocksdb_transaction_get_for_update_cf, transaction, db.read, db.column[META], "TIP", 3,
                        &tip_bytes, 1, &error);
    check("rocksdb_transaction_get_for_update_cf", error);
    rocksdb_free(tip);

    for (size_t i = 0; i < sizeof(block_traffic) / sizeof(*block_traffic); i++)
        transact_column(transaction, &block_traffic[i], block, random);
    walk(COUNTED(rocksdb_transaction_create_iterator_cf, transaction, db.read, db.column[CELL]), key_of(block, 0));

    COUNTED(rocksdb_transaction_commit, transaction, &error);
    check("rocksdb_transaction_commit", error);
    rocksdb_transaction_destroy(transaction);
}

/* Outside transactions, as CKB's block filter service writes. */
static void write_filters(uint64_t block)
{
    char *error = NULL;
    rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
    for (unsigned i = 0; i < BLOCKS_PER_FILTER_BATCH; i++) {
        struct key key = key_of(block - i, 0);
        rocksdb_writebatch_put_cf(batch, db.column[BLOCK_FILTER], key.bytes, KEY_BYTES, value, 160);
        rocksdb_writebatch_put_cf(batch, db.column[BLOCK_FILTER_HASH], key.bytes, KEY_BYTES, value, 32);
    }
    COUNTED(rocksdb_write, db.base, db.write, batch, &error);
    check("rocksdb_write", error);
    rocksdb_writebatch_destroy(batch);

    struct key latest = key_of(block, 0), oldest = key_of(block + 1, 0);
    COUNTED(rocksdb_put_cf, db.base, db.write, db.column[META], "FILTER", 6, latest.bytes, KEY_BYTES, &error);
    check("rocksdb_put_cf", error);
    COUNTED(rocksdb_delete_cf, db.base, db.write, db.column[UNCLES], oldest.bytes, KEY_BYTES, &error);
    check("rocksdb_delete_cf", error);
}

static void multi_get(uint64_t *random, uint64_t block)
{
    struct key keys[READS_PER_REQUEST];
    const rocksdb_column_family_handle_t *columns[READS_PER_REQUEST];
    const char *key_list[READS_PER_REQUEST];
    size_t key_sizes[READS_PER_REQUEST], value_sizes[READS_PER_REQUEST];
    char *values[READS_PER_REQUEST], *errors[READS_PER_REQUEST];

    for (int i = 0; i < READS_PER_REQUEST; i++) {
        keys[i] = earlier_key(random, block, KEY_SPACE_BLOCKS, 4);
        columns[i] = db.column[TRANSACTION_INFO];
        key_list[i] = keys[i].bytes;
        key_sizes[i] = KEY_BYTES;
    }
    COUNTED(rocksdb_multi_get_cf, db.base, db.read, columns, READS_PER_REQUEST, key_list, key_sizes, values,
            value_sizes, errors);
    for (int i = 0; i < READS_PER_REQUEST; i++) {
        check("rocksdb_multi_get_cf", errors[i]);
        rocksdb_free(values[i]);
    }
}

static void answer_request(uint64_t request, uint64_t *random)
{
    /* Half of a node's reads go to the chain root MMR. */
    static const enum column read_columns[] = {CHAIN_ROOT_MMR, BLOCK_HEADER, CHAIN_ROOT_MMR, CELL,
                                               CHAIN_ROOT_MMR, BLOCK_EXT,    CHAIN_ROOT_MMR, INDEX};
    uint64_t block = atomic_load(&blocks);

    for (int i = 0; i < READS_PER_REQUEST; i++) {
        char *error = NULL;
        struct key key = earlier_key(random, block, KEY_SPACE_BLOCKS, 1);
        drop(COUNTED(rocksdb_get_pinned_cf, db.base, db.read, db.column[read_columns[i]], key.bytes, KEY_BYTES,
                     &error));
        check("rocksdb_get_pinned_cf", error);
    }
    if (request % REQUESTS_PER_MULTI_GET == 0)
        multi_get(random, block);
    if (request % REQUESTS_PER_ITERATOR == 0)
        walk(COUNTED(rocksdb_create_iterator_cf, db.base, db.read, db.column[NUMBER_HASH]), key_of(block, 0));
}

/* Sleeps until the next of `per_second` evenly spaced moments; after a long stall it goes on from now, without a burst. */
static void pace(uint64_t *due, unsigned per_second)
{
    if (!per_second)
        return;
    uint64_t now = now_ns();
    *due += 1000000000u / per_second;
    if (*due + 1000000000u < now)
        *due = now;
    struct timespec until = {.tv_sec = (time_t)(*due / 1000000000u), .tv_nsec = (long)(*due % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}

static void *run_chain(void *unused)
{
    uint64_t random = 1, due = now_ns();
    pthread_setname_np(pthread_self(), "chain");
    while (!atomic_load(&stopping)) {
        pthread_rwlock_rdlock(&working);
        uint64_t block = atomic_load(&blocks) + 1;
        commit_block(block, &random);
        if (block % BLOCKS_PER_FILTER_BATCH == 0)
            write_filters(block);
        atomic_store(&blocks, block);
        pthread_rwlock_unlock(&working);
        pace(&due, blocks_per_second);
    }
    return unused;
}

static void *run_reader(void *number)
{
    uint64_t random = 2 + (uintptr_t)number, due = now_ns();
    pthread_setname_np(pthread_self(), "reader");
    for (uint64_t request = 0; !atomic_load(&stopping); request++) {
        pthread_rwlock_rdlock(&working);
        answer_request(request, &random);
        pthread_rwlock_unlock(&working);
        pace(&due, blocks_per_second * REQUESTS_PER_BLOCK);
    }
    return NULL;
}

static void open_database(const char *path)
{
    static char names[COLUMNS][3];
    const char *name_list[COLUMNS + 1];
    const rocksdb_options_t *option_list[COLUMNS + 1];

    db.options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(db.options, 1);
    rocksdb_options_set_create_missing_column_families(db.options, 1);
    /* Small buffers: flushes and compactions happen within a short test, and the log stays small. */
    rocksdb_options_set_write_buffer_size(db.options, 1 << 20);
    rocksdb_options_set_max_total_wal_size(db.options, 16 << 20);
    rocksdb_options_set_keep_log_file_num(db.options, 2);
    for (int i = 0; i < COLUMNS; i++) {
        snprintf(names[i], sizeof(names[i]), "%d", i);
        name_list[i] = names[i];
        option_list[i] = db.options;
    }
    name_list[COLUMNS] = "default";
    option_list[COLUMNS] = db.options;

    char *error = NULL;
    db.transactions = rocksdb_optimistictransactiondb_open_column_families(db.options, path, COLUMNS + 1, name_list,
                                                                           option_list, db.column, &error);
    check(path, error);
    db.base = rocksdb_optimistictransactiondb_get_base_db(db.transactions);
    db.read = rocksdb_readoptions_create();
    db.write = rocksdb_writeoptions_create();
    db.transaction = rocksdb_optimistictransaction_options_create();
    rocksdb_optimistictransaction_options_set_set_snapshot(db.transaction, 1);
}

static void close_database(void)
{
    rocksdb_optimistictransaction_options_destroy(db.transaction);
    rocksdb_writeoptions_destroy(db.write);
    rocksdb_readoptions_destroy(db.read);
    for (int i = 0; i <= COLUMNS; i++)
        rocksdb_column_family_handle_destroy(db.column[i]);
    rocksdb_optimistictransactiondb_close_base_db(db.base);
    rocksdb_optimistictransactiondb_close(db.transactions);
    rocksdb_options_destroy(db.options);
}

/* With `until`, no call is made before one of these signals. */
static void report(FILE *to, uint64_t started, const sigset_t *until)
{
    pthread_rwlock_wrlock(&working);
    fprintf(to, "{\"seconds\":%.3f,\"blocks\":%llu,\"calls\":{", (double)(now_ns() - started) / 1e9,
            (unsigned long long)atomic_load(&blocks));
    for (int i = 0; i < FUNCTIONS; i++)
        fprintf(to, "%s\"%s\":%llu", i ? "," : "", function_names[i], (unsigned long long)atomic_load(&calls[i]));
    fprintf(to, "}}\n");
    if (fflush(to))
        die("report", strerror(errno));
    int signal;
    if (until)
        sigwait(until, &signal);
    pthread_rwlock_unlock(&working);
}

static unsigned number(const char *option, const char *text, unsigned least, unsigned most)
{
    char *end;
    errno = 0;
    unsigned long parsed = strtoul(text, &end, 10);
    if (errno || end == text || *end || *text == '-' || parsed < least || parsed > most)
        die(option, "not a number in range");
    return (unsigned)parsed;
}

static void start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    int error = pthread_create(thread, NULL, run, argument);
    if (error)
        die("pthread_create", strerror(error));
}

static const char usage[] =
    "usage: rocksdb_load --db PATH [--blocks-per-second N] [--readers N] [--seconds N] [--calls-file PATH]\n"
    "                    [--listen PORT]...\n"
    "  --db PATH              the database's folder, created where it is missing\n"
    "  --blocks-per-second N  default 20; 0: as fast as it goes\n"
    "  --readers N            threads that read, default 1\n"
    "  --seconds N            stop by itself so long after the start\n"
    "  --calls-file PATH      append the counts there instead of printing them\n"
    "  --listen PORT          accept TCP connections too\n";

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"db", required_argument, NULL, 'd'},         {"blocks-per-second", required_argument, NULL, 'b'},
        {"readers", required_argument, NULL, 'r'},    {"calls-file", required_argument, NULL, 'c'},
        {"seconds", required_argument, NULL, 's'},    {"listen", required_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},             {0},
    };
    const char *path = NULL, *calls_file = NULL;
    unsigned readers = 1, seconds = 0; /* 0: for ever */
    static bool listens[UINT16_MAX + 1]; /* not on the stack, of which whoever profiles this copies 32 KiB */
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 'd': path = optarg; break;
        case 'b': blocks_per_second = number("--blocks-per-second", optarg, 0, 100000); break;
        case 'r': readers = number("--readers", optarg, 1, MOST_READERS); break;
        case 's': seconds = number("--seconds", optarg, 1, 1000000); break;
        case 'c': calls_file = optarg; break;
        case 'l': listens[number("--listen", optarg, 1, UINT16_MAX)] = true; break;
        case 'h': fputs(usage, stdout); return 0;
        default: fputs(usage, stderr); return 2;
        }
    }
    if (!path || optind != argc) {
        fputs(usage, stderr);
        return 2;
    }
    FILE *to = calls_file ? fopen(calls_file, "a") : stdout;
    if (!to)
        die(calls_file, strerror(errno));

    /* Before RocksDB starts its threads, so that every one of them leaves these signals to sigwait below. */
    sigset_t signals, resume;
    sigemptyset(&resume);
    sigaddset(&resume, SIGUSR2);
    signals = resume;
    sigaddset(&signals, SIGUSR1);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    alarm(seconds);

    uint64_t random = 0;
    for (size_t i = 0; i < sizeof(value); i++)
        value[i] = (char)next_random(&random);

    /* Otherwise a report could wait for ever behind readers that never pause. */
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&working, &attributes);

    open_database(path);
    uint64_t started = now_ns();
    pthread_t chain, reader[MOST_READERS];
    start(&chain, run_chain, NULL);
    for (unsigned i = 0; i < readers; i++)
        start(&reader[i], run_reader, (void *)(uintptr_t)i);
    for (unsigned port = 0; port <= UINT16_MAX; port++) {
        int error = listens[port] ? listen_at(port) : 0;
        if (error)
            die("--listen", strerror(error));
    }

    int signal = 0;
    while (!sigwait(&signals, &signal) && (signal == SIGUSR1 || signal == SIGUSR2))
        report(to, started, signal == SIGUSR2 ? &resume : NULL);

    atomic_store(&stopping, true);
    pthread_join(chain, NULL);
    for (unsigned i = 0; i < readers; i++)
        pthread_join(reader[i], NULL);
    report(to, started, NULL);
    close_database();
    return 0;
}
