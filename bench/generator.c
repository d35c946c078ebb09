/* The hot loops of the load generator: prepared frames out, every reply checked, nothing allocated on the way.
 *
 * Sockets come connected and non-blocking from Python. Each function returns 0 or one of the failures below, with
 * `detail` saying more; a run that met any error counts for nothing. load.py mirrors the structs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

enum { OK, CLOSED, ERROR_CODE, WRONG_CORRELATION, STALLED, MALFORMED, SYSTEM };
enum { CONNECTIONS_MAX = 256, REPLIES_BYTES = 1 << 16 };
#define STALL_S 20.0

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
static uint32_t get32(const uint8_t *p) { return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]; }
static int16_t get16(const uint8_t *p) { return (int16_t)(p[0] << 8 | p[1]); }
static void put32(uint8_t *p, uint32_t v) { p[0] = v >> 24; p[1] = v >> 16; p[2] = v >> 8; p[3] = v; }
static void put64(uint8_t *p, uint64_t v) { put32(p, v >> 32); put32(p + 4, (uint32_t)v); }

/* Replies of one connection, read in bulk and cut into frames. */
struct inbox {
    uint8_t bytes[REPLIES_BYTES];
    size_t filled;
};

static int fill(int fd, struct inbox *in, int32_t *detail) {
    ssize_t got = recv(fd, in->bytes + in->filled, REPLIES_BYTES - in->filled, 0);
    if (got > 0) { in->filled += got; return OK; }
    if (got == 0) return CLOSED;
    if (errno == EAGAIN || errno == EINTR) return OK;
    *detail = errno;
    return SYSTEM;
}

/* Checks the Produce reply at `at`; sets *bytes to its whole length, or to 0 if it is not all there yet. */
static int check(const struct inbox *in, size_t at, uint32_t correlation, uint32_t error_at, size_t *bytes, int32_t *detail) {
    *bytes = 0;
    if (in->filled - at < 4) return OK;
    const uint8_t *reply = in->bytes + at;
    size_t whole = 4 + (size_t)get32(reply);
    if (whole < error_at + 2 || whole > REPLIES_BYTES) return MALFORMED;
    if (in->filled - at < whole) return OK;
    if (get32(reply + 4) != correlation) return WRONG_CORRELATION;
    if ((*detail = get16(reply + error_at)) != 0) return ERROR_CODE;
    *bytes = whole;
    return OK;
}

static void keep_tail(struct inbox *in, size_t at) {
    in->filled -= at;
    if (in->filled && at) memmove(in->bytes, in->bytes + at, in->filled);
}

struct produce_load {
    int32_t connections, depth;
    const int32_t *fds;
    uint8_t *const *blocks;      /* per connection: `depth` copies of its frame, correlation ids 0..depth-1 */
    const uint64_t *frame_bytes; /* per connection */
    uint32_t error_at;
    int32_t detail;
    double seconds;
    double elapsed;
    uint64_t acked;
};

/* As many requests as the broker takes, never more than `depth` unanswered on a connection. */
int produce_load(struct produce_load *l) {
    int n = l->connections, failure = OK, unanswered = 0;
    struct pollfd polls[CONNECTIONS_MAX];
    uint64_t sent[CONNECTIONS_MAX] = {0}, acked[CONNECTIONS_MAX] = {0};
    if (n > CONNECTIONS_MAX) return MALFORMED;
    struct inbox *in = calloc(n, sizeof *in);
    for (int i = 0; i < n; i++) polls[i] = (struct pollfd){l->fds[i], POLLIN | POLLOUT, 0};
    double start = now_s(), end = start + l->seconds, progress = start, now = start;
    do {
        if (poll(polls, n, 100) < 0 && errno != EINTR) { failure = SYSTEM; l->detail = errno; break; }
        now = now_s();
        unanswered = 0;
        for (int i = 0; i < n && !failure; i++) {
            if (polls[i].revents & ~POLLOUT) {
                failure = fill(l->fds[i], &in[i], &l->detail);
                size_t at = 0, bytes = 0;
                while (!failure) {
                    failure = check(&in[i], at, acked[i] % l->depth, l->error_at, &bytes, &l->detail);
                    if (!bytes || failure) break;
                    at += bytes;
                    acked[i]++;
                    l->acked++;
                    progress = now;
                }
                keep_tail(&in[i], at);
            }
            uint64_t size = l->frame_bytes[i], block = size * l->depth;
            /* After the end only what has been begun is finished. */
            uint64_t allowed = now < end ? (acked[i] + l->depth) * size : (sent[i] + size - 1) / size * size;
            while (!failure && sent[i] < allowed) {
                uint64_t from = sent[i] % block, many = block - from;
                if (many > allowed - sent[i]) many = allowed - sent[i];
                ssize_t put = send(l->fds[i], l->blocks[i] + from, many, MSG_NOSIGNAL | MSG_DONTWAIT);
                if (put < 0) {
                    if (errno != EAGAIN && errno != EINTR) { failure = SYSTEM; l->detail = errno; }
                    break;
                }
                sent[i] += put;
            }
            polls[i].events = POLLIN | (sent[i] < allowed ? POLLOUT : 0);
            unanswered += acked[i] * size < sent[i];
        }
        if (!failure && now - progress > STALL_S) failure = STALLED;
    } while (!failure && (now < end || unanswered));
    l->elapsed = now_s() - start;
    free(in);
    return failure;
}

struct fetch_load {
    int32_t connections;
    int32_t detail;
    const int32_t *fds;
    uint8_t *const *frames;
    const uint64_t *frame_bytes;
    const int64_t *end_offsets;
    uint32_t offset_at, error_at, records_at;
    uint32_t batch_bytes, batch_records, unused;
    double seconds;
    double elapsed;
    uint64_t replies, bytes, records;
};

struct reader {
    uint8_t head[512];
    size_t filled;
    uint64_t skip; /* bytes of the reply still to be thrown away */
    int64_t offset;
};

static int ask(struct fetch_load *l, int i, struct reader *r) {
    put64(l->frames[i] + l->offset_at, r->offset);
    ssize_t put = send(l->fds[i], l->frames[i], l->frame_bytes[i], MSG_NOSIGNAL);
    r->filled = 0;
    if (put == (ssize_t)l->frame_bytes[i]) return OK;
    l->detail = errno;
    return SYSTEM;
}

/* The head of a reply is complete: check it, and know how much follows and where to go on reading. */
static int learn(struct fetch_load *l, int i, struct reader *r, size_t head) {
    uint64_t length = 0;
    for (int k = 0, more = 1; more; k++) {
        if (k == 4) return MALFORMED;
        length |= (uint64_t)(r->head[l->records_at + k] & 0x7f) << 7 * k;
        more = r->head[l->records_at + k] & 0x80;
    }
    if ((l->detail = get16(r->head + 13)) != 0 || (l->detail = get16(r->head + l->error_at)) != 0) return ERROR_CODE;
    uint64_t whole = 4 + (uint64_t)get32(r->head), batches = length ? (length - 1) / l->batch_bytes : 0;
    if (whole < head || length > whole || !batches) return MALFORMED;
    r->skip = whole - head;
    r->offset += batches * l->batch_records;
    if (r->offset >= l->end_offsets[i]) r->offset = 0;
    l->bytes += batches * l->batch_bytes;
    l->records += batches * l->batch_records;
    return OK;
}

/* One fetch under way per connection, from the start of its partition to the end and over again. */
int fetch_load(struct fetch_load *l) {
    int n = l->connections, failure = OK, waiting = n;
    size_t head = l->records_at + 4;
    struct pollfd polls[CONNECTIONS_MAX];
    if (n > CONNECTIONS_MAX || head > sizeof ((struct reader *)0)->head) return MALFORMED;
    struct reader *readers = calloc(n, sizeof *readers);
    double start = now_s(), end = start + l->seconds, progress = start, now = start;
    for (int i = 0; i < n && !failure; i++) {
        polls[i] = (struct pollfd){l->fds[i], POLLIN, 0};
        failure = ask(l, i, &readers[i]);
    }
    while (!failure && waiting) {
        if (poll(polls, n, 100) < 0 && errno != EINTR) { failure = SYSTEM; l->detail = errno; break; }
        now = now_s();
        for (int i = 0; i < n && !failure; i++) {
            if (!polls[i].revents) continue;
            struct reader *r = &readers[i];
            /* MSG_TRUNC throws the bytes away inside the kernel, so the copy does not make the client the limit. */
            ssize_t got = r->filled < head ? recv(l->fds[i], r->head + r->filled, head - r->filled, MSG_DONTWAIT)
                                           : recv(l->fds[i], NULL, r->skip, MSG_DONTWAIT | MSG_TRUNC);
            if (got == 0) { failure = CLOSED; break; }
            if (got < 0) {
                if (errno == EAGAIN || errno == EINTR) continue;
                failure = SYSTEM; l->detail = errno; break;
            }
            progress = now;
            if (r->filled < head) {
                r->filled += got;
                if (r->filled == head) failure = learn(l, i, r, head);
                if (failure || r->filled < head || r->skip) continue;
            } else r->skip -= got;
            if (r->skip) continue;
            l->replies++;
            if (now < end) failure = ask(l, i, r);
            else { waiting--; polls[i].fd = -1; }
        }
        if (!failure && now - progress > STALL_S) failure = STALLED;
    }
    l->elapsed = now_s() - start;
    free(readers);
    return failure;
}

struct latency_load {
    int32_t connections, count;
    const int32_t *fds;
    uint8_t *const *frames;
    const uint64_t *frame_bytes;
    uint32_t error_at;
    int32_t detail;
    double rate;
    double *latencies, *lags; /* seconds, one per message: reply minus due time; sending minus due time */
};

/* Message k is due at start + k / rate, whether or not earlier ones were answered: latency counts from then. */
int latency_load(struct latency_load *l) {
    int n = l->connections, failure = OK, answered = 0;
    struct pollfd polls[CONNECTIONS_MAX];
    uint32_t sent[CONNECTIONS_MAX] = {0}, acked[CONNECTIONS_MAX] = {0};
    size_t partial[CONNECTIONS_MAX] = {0};
    if (n > CONNECTIONS_MAX) return MALFORMED;
    struct inbox *in = calloc(n, sizeof *in);
    for (int i = 0; i < n; i++) polls[i] = (struct pollfd){l->fds[i], POLLIN, 0};
    prctl(PR_SET_TIMERSLACK, 1);
    double start = now_s() + 0.01, progress = start;
    int next = 0; /* the first message that has not been begun */
    while (!failure && answered < l->count) {
        double now = now_s(), due = start + next / l->rate;
        int blocked = 0;
        while (next < l->count && now >= due) {
            int i = next % n;
            uint8_t *frame = l->frames[i];
            if (!partial[i]) { put32(frame + 8, sent[i]); l->lags[next] = now - due; }
            ssize_t put = send(l->fds[i], frame + partial[i], l->frame_bytes[i] - partial[i], MSG_NOSIGNAL | MSG_DONTWAIT);
            if (put < 0 && errno != EAGAIN && errno != EINTR) { failure = SYSTEM; l->detail = errno; break; }
            if (put > 0) partial[i] += put;
            if (partial[i] < l->frame_bytes[i]) { blocked = 1; break; }
            partial[i] = 0;
            sent[i]++;
            next++;
            due = start + next / l->rate;
            now = now_s();
        }
        double wait = next < l->count && !blocked ? due - now : 0.001;
        if (wait < 0) wait = 0;
        struct timespec timeout = {(time_t)wait, (long)((wait - (time_t)wait) * 1e9)};
        if (ppoll(polls, n, &timeout, NULL) < 0 && errno != EINTR) { failure = SYSTEM; l->detail = errno; }
        now = now_s();
        for (int i = 0; i < n && !failure; i++) {
            if (!polls[i].revents) continue;
            failure = fill(l->fds[i], &in[i], &l->detail);
            size_t at = 0, bytes = 0;
            while (!failure) {
                failure = check(&in[i], at, acked[i], l->error_at, &bytes, &l->detail);
                if (!bytes || failure) break;
                at += bytes;
                int64_t message = (int64_t)acked[i]++ * n + i;
                l->latencies[message] = now - (start + message / l->rate);
                answered++;
                progress = now;
            }
            keep_tail(&in[i], at);
        }
        if (!failure && now - progress > STALL_S) failure = STALLED;
    }
    free(in);
    return failure;
}
